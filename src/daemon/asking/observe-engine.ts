// Whether an engine runs that no daemon watches: from systemd, else from the process table.

import { join } from "node:path";
import { findEngineProcess } from "../../node/engine/engine-process.ts";
import type { Organization } from "../../node/files/organizations.ts";
import { isStopped } from "../../node/files/stopped.ts";
import { ageOf, identifyProcess, type ProcessIdentity } from "../../platform/process-identity.ts";
import { engineUnit, isEnabled } from "../../platform/systemd/systemd.ts";
import { unitProperties } from "../../platform/systemd/unit-properties.ts";
import type { System } from "../../base/system.ts";
import type { OrganizationState } from "../ipc/messages.ts";

export type Observed = Pick<OrganizationState, "state" | "wanted" | "pid" | "uptime_s">;

const states: Record<string, OrganizationState["state"]> = {
  active: "running",
  activating: "waiting",
  deactivating: "stopping",
};

export async function observeUnit(
  { slug, directory }: Organization,
  system: Pick<System, "run">,
): Promise<Observed> {
  const unit = await unitProperties(engineUnit(slug), ["ActiveState", "MainPID", "UnitFileState"], system);
  const wanted = (isAtBoot: boolean) => (isAtBoot && !isStopped(directory) ? "up" : "down");
  // systemd does not answer, which the findings say. Files and process arguments show what it starts.
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
