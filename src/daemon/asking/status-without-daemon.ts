// The status of an organization that no daemon runs: in mode server from systemd; in mode desktop from the process table,
// because its engine can outlive the daemon.

import { given } from "../../base/given.ts";
import { join } from "node:path";
import { AppError, messageOf } from "../../base/errors.ts";
import { seenDataPlane } from "../../node/files/config/data-plane-in-force.ts";
import { readSyncState } from "../../node/files/generations.ts";
import { openOrganization, type Organization } from "../../node/files/organizations.ts";
import { ageOf, identifyProcess, type ProcessIdentity } from "../../platform/process-identity.ts";
import { countPeers, metricsUrl } from "../../node/engine/peers.ts";
import { certificateWarning, readOrganizationFacts } from "../../node/files/organization-facts.ts";
import { readSavedHealth, savedHealthDirectory, type SavedHealth } from "../../node/health/saved-health.ts";
import { isStopped } from "../../node/files/stopped.ts";
import { mappingShown } from "../../node/files/mapping-state.ts";
import { tcpShown } from "../../node/files/tcp-state.ts";
import { isRunByUnits } from "../../node/engine/systemd-engine.ts";
import { engineUnit, isEnabled } from "../../platform/systemd/systemd.ts";
import { unitProperties } from "../../platform/systemd/unit-properties.ts";
import type { System } from "../../base/system.ts";
import { clean } from "../../base/log.ts";
import type { OrganizationState } from "../ipc/messages.ts";
import { findEngineProcess } from "../../node/engine/engine-process.ts";

type Places = { configRoot: string; stateDb: string };

type Observed = Pick<OrganizationState, "state" | "wanted" | "pid" | "uptime_s">;

/** `checkedAt`: when check-auth last ran, ms since 1970; undefined: not since the boot. */
export type FoundStatus = { status: OrganizationState; isDamaged: boolean; checkedAt: number | undefined };

/** An organization with damaged files gets a status too, so that it does not hide the others. */
export async function readStatusWithoutDaemon(
  { configRoot, stateDb }: Places,
  slug: string,
  system: Pick<System, "run" | "platform" | "now" | "fetch">,
): Promise<FoundStatus> {
  const saved = readSavedHealth(savedHealthDirectory(configRoot, system.platform), slug, system.now());
  const checkedAt = saved === undefined ? undefined : Date.parse(saved.run_at ?? saved.written_at);
  try {
    const status = await readStatus({ configRoot, stateDb }, slug, saved, system);
    return { status, isDamaged: false, checkedAt };
  } catch (error) {
    const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
    const { mode = "server", name = "", directory } = salvageOrganization(configRoot, slug);
    const observed = observeProcess(join(directory, "config.yml"));
    const hint = error instanceof AppError ? error.details.hint : undefined;
    const message = hint === undefined ? messageOf(error) : `${messageOf(error)}. ${hint}`;
    const facts = { team: slug, mode, name, ip_address: "", certificate_not_after: "" };
    return { status: { ...facts, ...observed, message }, isDamaged: true, checkedAt };
  }
}

async function readStatus(
  { configRoot, stateDb }: Places,
  slug: string,
  saved: SavedHealth | undefined,
  system: Pick<System, "run" | "platform" | "now" | "fetch">,
): Promise<OrganizationState> {
  const organization = openOrganization(configRoot, slug);
  const state = readSyncState(organization.directory);
  const end = state?.certificate_not_after ?? (await readEnd(organization));
  const { revoked, dataPlane, ...facts } = readOrganizationFacts(organization, state, end);
  const { mode } = organization.config;
  const observed = isRunByUnits({ directory: organization.directory, mode }, system)
    ? await observeUnit(organization, system)
    : {
        ...observeProcess(join(configRoot, slug, "config.yml")),
        ...(await storedState(mode, slug, { configRoot, stateDb })),
      };
  const url = observed.state === "running" ? metricsUrl(organization.directory) : undefined;
  const peers = url === undefined ? undefined : await countPeers(url, system);
  const asked = given({ peers });
  const status: OrganizationState = {
    team: slug,
    mode,
    ...facts,
    ...observed,
    ...asked,
    ...seenDataPlane(dataPlane, startOf(observed, system.now())),
    ...(mode === "server" ? savedHealth(saved, observed, system) : {}),
    ...(observed.state === "running"
      ? given({
          tcp: tcpShown(organization.directory),
          port_mapping: mappingShown(organization.directory),
        })
      : {}),
  };
  if (revoked !== undefined) {
    // An engine that still runs is shown as running: the order is being carried out.
    const state = status.pid === undefined ? "revoked" : status.state;
    return { ...status, state, message: clean(`Access was revoked: ${revoked}`) };
  }
  const message = certificateWarning(facts, system.now());
  return message === undefined ? status : { ...status, message };
}

const startOf = ({ uptime_s: uptimeS }: Observed, now: number) =>
  uptimeS === undefined ? undefined : now - uptimeS * 1000;

/** The health that check-auth has stored. That of a former engine says nothing about this one. */
function savedHealth(
  saved: SavedHealth | undefined,
  { state, uptime_s = 0 }: Observed,
  system: Pick<System, "now">,
): Pick<OrganizationState, "health" | "last_checkin_at" | "relayed" | "confirm"> {
  const now = system.now();
  const { health, last_checkin_at, relayed, confirm } = saved ?? {};
  const isOfThisEngine = health !== undefined && now - Date.parse(health.checked_at) < (uptime_s + 1) * 1000;
  return {
    ...given({ last_checkin_at, relayed, confirm }),
    ...(state === "running" && isOfThisEngine ? { health } : {}),
  };
}

async function readEnd({ directory }: Organization): Promise<string> {
  const { certificateEnd } = await import("../../node/files/certificate-end.ts");
  return certificateEnd(directory);
}

function observeProcess(configPath: string): Observed {
  const process = findEngineProcess(configPath);
  if (process === undefined) return { state: "stopped", wanted: "down" };
  return { state: "running", wanted: "up", ...factsOf(process) };
}

/** The desired state that the daemon has stored. Only root can read it; for other users the process table decides. */
async function storedState(
  mode: OrganizationState["mode"],
  slug: string,
  { configRoot, stateDb }: Places,
): Promise<Partial<Pick<OrganizationState, "wanted">>> {
  if (mode === "server") return {};
  const { peekRecords } = await import("../state.ts");
  try {
    const record = peekRecords(stateDb, { warn() {}, error() {} }, Date.now, configRoot).get(slug);
    return record === undefined ? {} : { wanted: record.wanted };
  } catch {
    return {};
  }
}

const states: Record<string, OrganizationState["state"]> = {
  active: "running",
  activating: "waiting",
  deactivating: "stopping",
};

async function observeUnit(
  { slug, directory }: Organization,
  system: Pick<System, "run">,
): Promise<Observed> {
  const unit = await unitProperties(engineUnit(slug), ["ActiveState", "MainPID", "UnitFileState"], system);
  // systemd does not answer, which withFindings reports. Files and process arguments show what it starts.
  if (unit === undefined) {
    const observed = observeProcess(join(directory, "config.yml"));
    return { ...observed, wanted: !isStopped(directory) && isEnabled(engineUnit(slug)) ? "up" : "down" };
  }
  const process = identifyProcess(Number(unit.MainPID));
  const startsAtBoot = unit.UnitFileState.startsWith("enabled");
  return {
    state: states[unit.ActiveState] ?? "stopped",
    wanted: !isStopped(directory) && startsAtBoot ? "up" : "down",
    ...(process === undefined ? {} : factsOf(process)),
  };
}

function factsOf(process: ProcessIdentity): Pick<OrganizationState, "pid" | "uptime_s"> {
  return { pid: process.pid, uptime_s: Math.floor(ageOf(process) / 1000) };
}
