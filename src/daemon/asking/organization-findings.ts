// The findings of an organization for `status`, `doctor` and `netcheck`: those of its health, and whether anything
// watches it (check-auth and its timer in server mode, the daemon in desktop mode).

import { existsSync } from "node:fs";
import { join } from "node:path";
import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { byGravity, certificateFindings, makeFinding, type Finding } from "../../node/health/findings.ts";
import type { Health } from "../../node/health/verdict.ts";
import type { UnitState } from "../../platform/service-state.ts";
import type { OrganizationState } from "../ipc/messages.ts";
import { roughly } from "./text-table.ts";
import { unitsServe } from "../../platform/config-root.ts";
import { daemonRestartHint, hasSystemd } from "../../platform/service-manager.ts";
import type { System } from "../../base/system.ts";

/** The interval of checks in server mode, and the age at which the last one is late. */
const checkEveryS = 60;
const lateAfterS = 3 * checkEveryS;

/** What watches an organization. `unit`: undefined without systemd. */
export type Watcher = {
  unit: UnitState | undefined;
  /** Desktop mode: the daemon answers, or listens without an answer, and its process. */
  daemon?: { answers: boolean; isSilent?: boolean | undefined; pid?: number | undefined };
  /** Server mode: when the last check looked, ms since 1970; undefined: never since the boot. */
  checkedAt?: number | undefined;
  /** host.key is missing: no start can help. */
  lacksKey?: boolean;
  /** The daemon runs, and does not know the organization. */
  isForgotten?: boolean;
};

/** An organization that the daemon does not report. `isForgotten`: the daemon runs, and does not know it. */
export type Unreported = { status: OrganizationState; checkedAt: number | undefined; isForgotten: boolean };

type Report = { daemon: { running: boolean; silent?: true; pid?: number }; teams: OrganizationState[] };

/** Adds findings to a report. `others`: organizations that the daemon does not report. */
export async function withFindings<R extends Report>(
  report: R,
  others: readonly Unreported[],
  system: Pick<System, "run" | "platform" | "now">,
  configRoot: string,
): Promise<R> {
  const { running: answers, silent: isSilent, pid } = report.daemon;
  const modes = new Set(report.teams.filter(isWatched).map(({ mode }) => mode));
  const hasUnits = modes.size > 0 && hasSystemd(system) && unitsServe(configRoot);
  const units = hasUnits ? await unitsOf(modes, answers, system) : undefined;
  const now = system.now();
  const teams = report.teams.map((status) => {
    const { checkedAt, isForgotten = false } =
      others.find((other) => other.status.team === status.team) ?? {};
    const unit = units?.[status.mode];
    const daemon = status.mode === "desktop" ? { daemon: { answers, isSilent, pid } } : {};
    const lacksKey = isWatched(status) && !existsSync(join(configRoot, status.team, "host.key"));
    const findings = findingsOf(status, { unit, checkedAt, isForgotten, lacksKey, ...daemon }, now);
    return findings.length === 0 ? status : { ...status, findings };
  });
  return { ...report, teams };
}

const isWatched = ({ state, wanted }: OrganizationState) => state === "running" || wanted === "up";

async function unitsOf(
  modes: ReadonlySet<OrganizationState["mode"]>,
  daemonAnswers: boolean,
  system: Pick<System, "run">,
): Promise<Partial<Record<OrganizationState["mode"], UnitState>>> {
  const { daemonUnit, isEnabled } = await import("../../platform/systemd/systemd.ts");
  const { checksState, unitState } = await import("../../platform/service-state.ts");
  // Skips systemd if the daemon answers and is enabled at boot: then there is nothing to find.
  const asksDaemon = modes.has("desktop") && !(daemonAnswers && isEnabled(daemonUnit));
  const [server, desktop] = await Promise.all([
    modes.has("server") ? checksState(system) : undefined,
    asksDaemon ? unitState(daemonUnit, system) : undefined,
  ]);
  return given({ server, desktop });
}

export function findingsOf(status: OrganizationState, watcher: Watcher, now: number): Finding[] {
  const { state, wanted, health, team: slug } = status;
  if (state === "revoked") return [];
  if (watcher.isForgotten === true)
    return [
      makeFinding(
        "forgotten",
        slug,
        "The daemon does not know this organization, and does not run it; its files stay",
      ),
    ];
  const isRunning = state === "running";
  const watch = isRunning || wanted === "up" ? watchFindings(status, watcher, now) : [];
  // systemd does not answer, and may have started an engine that the process table does not show: do not say that none runs.
  const isUnknown = watch.some(({ kind }) => kind === "manager_silent");
  if (!isRunning) return isUnknown ? watch : [...notRunning(status, watcher), ...watch];
  const certificate = certificateFindings(
    slug,
    Date.parse(status.certificate_not_after) <= now ? "expired" : "valid",
  );
  const ofHealth = health === undefined ? [] : healthFindings(slug, health);
  const kindsOfHealth = new Set(ofHealth.map(({ kind }) => kind));
  const findings = byGravity([
    ...certificate.filter(({ kind }) => !kindsOfHealth.has(kind)),
    ...ofHealth,
    ...watch,
  ]);
  // Whether traffic passes is still unknown: not green.
  return health !== undefined || findings.length > 0
    ? findings
    : [makeFinding("probing", slug, "Nothing has looked at it since its engine started")];
}

/** The finding if the organization should run and does not. While it starts or stops there is none. */
function notRunning(
  { team: slug, state, wanted, message }: OrganizationState,
  { lacksKey = false }: Watcher,
): Finding[] {
  if (wanted === "down" || !["stopped", "waiting"].includes(state)) return [];
  if (lacksKey) {
    const what = `It should run, but is ${state}: its host.key is missing`;
    const cure = `Restore it from a backup of this machine, or register again: ${brand.executable} doctor has the line`;
    return [makeFinding("not_running", slug, what, cure)];
  }
  const why = message === undefined ? "" : `: ${message}`;
  return [makeFinding("not_running", slug, `It should run, but is ${state}${why}`)];
}

/** The findings of the health. Earlier daemons send only the verdict: then they are made of it. */
function healthFindings(slug: string, { findings, verdict, reason = "", broken }: Health): Finding[] {
  if (findings !== undefined) return findings;
  const silent =
    broken.length === 0 ? [] : [makeFinding("peers_silent", slug, `No answer from ${broken.join(", ")}`)];
  if (verdict === "running") return silent;
  return [
    makeFinding(verdict === "degraded" ? "lighthouses_silent" : "tunnels_unknown", slug, reason),
    ...silent,
  ];
}

const nothingArrives = "no change and no revocation reaches this node";

function watchFindings(status: OrganizationState, watcher: Watcher, now: number): Finding[] {
  const { team: slug, mode, uptime_s = 0 } = status;
  const { unit, daemon, checkedAt } = watcher;
  const broken = brokenWatch(status, watcher);
  if (broken !== undefined) return [broken];
  // A daemon that was started by hand, beside a unit that is off, is what its user wants.
  const startsAtBoot =
    unit === undefined || unit.startsAtBoot || (mode === "desktop" && unit.pid !== daemon?.pid);
  const boot = startsAtBoot
    ? []
    : [
        makeFinding(
          "not_started_at_boot",
          slug,
          `${watcherName(mode)} does not start after a reboot`,
          startLine(slug),
        ),
      ];
  const ageS = checkedAt === undefined ? uptime_s : Math.abs(now - checkedAt) / 1000;
  if (mode === "desktop" || unit === undefined || ageS <= lateAfterS) return boot;
  const late =
    checkedAt === undefined
      ? "It was not checked since its start"
      : `The last check was ${roughly(ageS)} ago`;
  const check = `${brand.executable} check-auth --org-slug ${quoteWord(slug)}`;
  return [makeFinding("not_checked", slug, `${late}: ${nothingArrives}`, check), ...boot];
}

const watcherName = (mode: OrganizationState["mode"]) =>
  mode === "server" ? "The timer of its checks" : "The daemon";
const startLine = (slug: string) => `${brand.executable} start ${quoteWord(slug)}`;

/** Why nothing watches the organization, or why that is unknown. In this order: an earlier reason explains the later ones. */
function brokenWatch(
  { team: slug, mode }: OrganizationState,
  { unit, daemon }: Watcher,
): Finding | undefined {
  if (mode === "desktop" && daemon?.isSilent === true)
    return makeFinding(
      "not_checked",
      slug,
      `The daemon listens but does not answer: ${nothingArrives}`,
      daemonRestartHint(daemon.pid),
    );
  const isDaemonUp = mode === "desktop" && daemon?.answers === true;
  if (unit?.is === "unknown" && !isDaemonUp)
    return makeFinding(
      "manager_silent",
      slug,
      `systemd does not answer: whether ${mode === "server" ? "its engine and its checks run" : "the daemon runs"}, now and after a reboot, is unknown`,
    );
  if (unit?.is === "missing" && !isDaemonUp)
    return makeFinding(
      "not_checked",
      slug,
      `${watcherName(mode)} is not installed: ${nothingArrives}`,
      `${brand.executable} install-systemd`,
    );
  if (unit !== undefined && unit.is !== "running" && !isDaemonUp)
    return makeFinding(
      "not_checked",
      slug,
      `${watcherName(mode)} is ${unit.is}: ${nothingArrives}`,
      startLine(slug),
    );
  if (mode === "desktop" && daemon?.answers === false)
    return makeFinding(
      "not_checked",
      slug,
      `The daemon does not run: ${nothingArrives}`,
      `sudo ${brand.executable} --ipc-mode socket`,
    );
  if (unit?.lacks !== undefined)
    return makeFinding(
      "not_checked",
      slug,
      `Its checks start ${unit.lacks}, which is gone: ${nothingArrives}`,
      startLine(slug),
    );
  return undefined;
}
