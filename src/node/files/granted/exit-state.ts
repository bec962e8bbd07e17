// exit.json: how this machine uses an exit at present. The process that sets up the exit writes it; commands and check-ins show
// it. Kept beside the control socket.

import { join } from "node:path";
import * as v from "valibot";
import { readTextIfThere, writeFileAtomic } from "../../../base/files.ts";
import { foreignText } from "../../../base/text.ts";
import { hasInterface } from "../../../platform/machine-state.ts";
import { makeSocketDirectory, socketDirectory } from "../../../platform/systemd/control-socket.ts";
import type { DataPlaneReport } from "../../../protocol/values.ts";
import { tunnelDevice } from "../config/read-config.ts";
import { readValidJson } from "../json-file.ts";
import { permissionsOrNone } from "../permissions.ts";

/**
 * used: packets for the internet take the exit. blocked: they take no way (`--strict`). beside: they take the machine's own way.
 * starting: not known yet.
 */
const ExitState = v.object({
  /** The overlay address of the exit in use. */
  exit: v.exactOptional(v.pipe(v.string(), v.maxLength(45))),
  name: v.exactOptional(foreignText(255)),
  state: v.picklist(["used", "blocked", "beside", "starting"]),
  /** Milliseconds since 1970. */
  since: v.number(),
  why: v.exactOptional(foreignText(400)),
});
export type ExitState = v.InferOutput<typeof ExitState>;

export const exitStatePath = (directory: string) => join(directory, socketDirectory, "exit.json");
export const readExitState = (directory: string) => readValidJson(exitStatePath(directory), ExitState);
export function writeExitState(directory: string, state: ExitState): void {
  makeSocketDirectory(directory);
  writeFileAtomic(exitStatePath(directory), `${JSON.stringify(state)}\n`, 0o644);
}

/** The state now: without the tunnel's interface no packet takes an exit, whatever was written last. */
export function presentExitState(directory: string): ExitState | undefined {
  const written = readExitState(directory);
  if (written?.state !== "used") return written;
  const device = tunnelDevice(readTextIfThere(join(directory, "config.yml")) ?? "");
  if (device !== undefined && hasInterface(device)) return written;
  const isStrict = permissionsOrNone(directory).exit?.strict === true;
  return { ...written, state: isStrict ? "blocked" : "beside" };
}

/** A report of the data plane with the exit that is wanted. */
export function withExitReport(
  report: { data_plane?: DataPlaneReport },
  directory: string,
): { data_plane?: DataPlaneReport } {
  const { name, state } = presentExitState(directory) ?? {};
  if (report.data_plane === undefined || name === undefined) return report;
  return { data_plane: { ...report.data_plane, exit: { name, is_used: state === "used" } } };
}
