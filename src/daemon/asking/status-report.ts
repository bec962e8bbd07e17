// Reads the report of `agent status`: the daemon's answer, completed from systemd and the process table for organizations that
// the daemon does not run. It must start fast, so it loads the readers of files and units only when they are needed.

import { given } from "../../base/given.ts";
import { hasCode } from "../../base/errors.ts";
import { listOrganizations } from "../../node/files/list-organizations.ts";
import type { Way } from "../../node/names/service-state.ts";
import { namesPlaces } from "../../platform/names-places.ts";
import type { System } from "../../base/system.ts";
import { isHealthy } from "./health-text.ts";
import { askDaemon, SilentDaemon } from "../ipc/client.ts";
import type { Answer, OrganizationState } from "../ipc/messages.ts";
import type { LocalAddress } from "../ipc/transport.ts";
import type { Unreported } from "./organization-findings.ts";

export type StatusReport = {
  /** `silent`: it listens, and does not answer. */
  daemon: { running: boolean; silent?: true; version?: string; pid?: number };
  teams: OrganizationState[];
  /** How programs of this machine find the names of nodes; undefined if names are off. */
  names?: { way: Way["way"]; notes: readonly string[] };
};

type Places = { address: LocalAddress; configRoot: string; stateDb: string };

/** `probe`: probes organizations that no daemon watches now, instead of showing their last results. */
type StatusQuestion = {
  slug: string | undefined;
  probe?: ((report: StatusReport) => Promise<StatusReport>) | undefined;
};

/** Without `slug`: of all organizations. */
export async function readStatus(
  { address, configRoot, stateDb }: Places,
  { slug, probe }: StatusQuestion,
  system: Pick<System, "sleep" | "run" | "now" | "platform" | "fetch">,
): Promise<StatusReport> {
  let slugs: readonly string[] | undefined;
  // Called while the daemon prepares its answer. Without a daemon it is not called.
  const list = async () => void (slugs = listOrganizations(configRoot));
  const found = await statusOfDaemon(address, probe !== undefined, system, list);
  const isSilent = found === "silent";
  const answer = isSilent ? undefined : found;
  slugs ??= listOrganizations(configRoot);
  // In the answer to `status` these are objects; the type also has the slugs of the answer to `list`.
  const ofDaemon = (answer?.teams ?? []).filter((each) => typeof each === "object");
  const others = slugs.filter((each) => !ofDaemon.some(({ team }) => team === each));
  const unreported =
    others.length === 0
      ? []
      : await readOthers({ configRoot, stateDb }, others, answer !== undefined, system);
  const teams = [...ofDaemon, ...unreported.map(({ status }) => status)]
    .filter(({ team }) => slug === undefined || team === slug)
    .sort((a, b) => (a.team < b.team ? -1 : 1));
  const holder = isSilent ? (await import("../state.ts")).stateHolder(stateDb) : undefined;
  const { version, pid = holder } = answer ?? {};
  const { statePath } = namesPlaces(system, stateDb);
  const names = (await Bun.file(statePath).exists()) ? await readNames(statePath) : undefined;
  const report = {
    daemon: {
      running: answer !== undefined,
      ...(isSilent ? { silent: true as const } : {}),
      ...given({ version, pid }),
    },
    teams,
    ...given({ names }),
  };
  const probed = probe === undefined ? report : await probe(report);
  const { withFindings } = await import("./organization-findings.ts");
  return withFindings(probed, unreported, system, configRoot);
}

async function readNames(path: string): Promise<StatusReport["names"]> {
  const { readServiceState } = await import("../../node/names/service-state.ts");
  const { describeServing } = await import("../../node/names/describe-serving.ts");
  const state = readServiceState(path);
  return state === undefined ? undefined : { way: state.serving.way, notes: describeServing(state) };
}

/** Whether the daemon does not answer, though there are organizations of mode desktop. */
export function isDaemonMissed({ daemon, teams }: StatusReport): boolean {
  return !daemon.running && teams.some(({ mode }) => mode === "desktop");
}

/**
 * Whether traffic passes: at least one organization carries it, and no other one fails to. A stopped organization
 * counts only if nothing else runs, or if it was asked for.
 */
export function areHealthy({ teams }: StatusReport, asked: string | undefined): boolean {
  const isAsItShould = (status: OrganizationState) =>
    isHealthy(status) || (asked === undefined && isLeftDown(status));
  return teams.some(isHealthy) && teams.every(isAsItShould);
}

/** Whether a user has stopped the organization. */
function isLeftDown({ state, wanted }: OrganizationState): boolean {
  return state === "stopped" && wanted === "down";
}

async function statusOfDaemon(
  address: LocalAddress,
  probe: boolean,
  system: Pick<System, "sleep">,
  meanwhile: () => Promise<void>,
): Promise<Answer | "silent" | undefined> {
  try {
    const request = { action: "status", ...(probe ? { probe } : {}) };
    return await askDaemon(address, system, request, { patient: false, meanwhile });
  } catch (error) {
    if (error instanceof SilentDaemon) return "silent";
    if (hasCode(error, "daemon_unreachable")) return undefined;
    throw error;
  }
}

/**
 * Organizations that the daemon does not report: those of mode server, damaged and forgotten ones; all without a
 * daemon. Forgotten: the daemon does not load it before a command names it (organization-record.ts).
 */
async function readOthers(
  places: Pick<Places, "configRoot" | "stateDb">,
  slugs: readonly string[],
  daemonRuns: boolean,
  system: Pick<System, "run" | "now" | "platform" | "fetch">,
): Promise<Unreported[]> {
  const { readStatusWithoutDaemon } = await import("./status-without-daemon.ts");
  const found = await Promise.all(slugs.map((slug) => readStatusWithoutDaemon(places, slug, system)));
  return found.map((each) => ({
    ...each,
    isForgotten: daemonRuns && !each.isDamaged && each.status.mode === "desktop",
  }));
}
