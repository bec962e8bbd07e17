// Whether an engine runs that no daemon watches, and whether it should: from systemd, else from the process table and what the
// daemon has stored.

import { join } from "node:path";
import { findEngineProcess } from "../../node/engine/engine-process.ts";
import { isRunByUnits } from "../../node/engine/systemd-engine.ts";
import type { Organization } from "../../node/files/organizations.ts";
import { isStopped } from "../../node/files/stopped-by-user.ts";
import { ageOf, identifyProcess, type ProcessIdentity } from "../../platform/process-identity.ts";
import { engineUnit, isEnabled } from "../../platform/systemd/systemd.ts";
import { unitProperties } from "../../platform/systemd/unit-properties.ts";
import type { System } from "../../base/system.ts";
import type { OrganizationState } from "../ipc/messages.ts";

export type Observed = Pick<OrganizationState, "state" | "wanted" | "pid" | "uptime_s">;

export type Places = { configRoot: string; stateDb: string };

export async function observeEngine(
  organization: Organization,
  places: Places,
  system: Pick<System, "run" | "platform">,
): Promise<Observed> {
  const { slug, directory, config } = organization;
  if (isRunByUnits({ directory, mode: config.mode }, system)) return observeUnit(organization, system);
  const wanted = config.mode === "desktop" ? await storedWanted(slug, places) : undefined;
  return observeProcess(join(directory, "config.yml"), wanted);
}

/** By the unit's ActiveState. All others, such as failed, count as stopped. */
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
  const wanted = (isAtBoot: boolean) => (isAtBoot && !isStopped(directory) ? "up" : "down");
  // systemd does not answer: the process table shows what runs, and files show what it starts. `status` says so.
  if (unit === undefined)
    return observeProcess(join(directory, "config.yml"), wanted(isEnabled(engineUnit(slug))));
  return {
    state: states[unit.ActiveState] ?? "stopped",
    wanted: wanted(unit.UnitFileState.startsWith("enabled")),
    ...runtimeOf(identifyProcess(Number(unit.MainPID))),
  };
}

/** `wanted`: the desired state; unset: what the process table shows. */
export function observeProcess(configPath: string, wanted?: Observed["wanted"]): Observed {
  const process = findEngineProcess(configPath);
  if (process === undefined) return { state: "stopped", wanted: wanted ?? "down" };
  return { state: "running", wanted: wanted ?? "up", ...runtimeOf(process) };
}

function runtimeOf(process: ProcessIdentity | undefined): Pick<Observed, "pid" | "uptime_s"> {
  return process === undefined ? {} : { pid: process.pid, uptime_s: Math.floor(ageOf(process) / 1000) };
}

/** The desired state that the daemon has stored. Only root can read it; for other users the process table decides. */
async function storedWanted(
  slug: string,
  { configRoot, stateDb }: Places,
): Promise<Observed["wanted"] | undefined> {
  const { peekRecords } = await import("../state.ts");
  try {
    return peekRecords(stateDb, { warn() {}, error() {} }, Date.now, configRoot).get(slug)?.wanted;
  } catch {
    return undefined;
  }
}
