// The service of the control plane that `agent setup` installs on this machine.

import { statSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { readTextIfThere, textOrEmpty } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import type { Change } from "../../platform/machine-changes.ts";
import type { Context } from "../command.ts";
import type { SetupRequest } from "./setup-request.ts";

/** The changes that install the service: user, directory, settings, unit. None where all is as wanted. */
export async function installationChanges(request: SetupRequest, { system }: Context): Promise<Change[]> {
  const control = await import("../../platform/systemd/control-unit.ts");
  const { isStale } = await import("../../platform/service-state.ts");
  const users = textOrEmpty("/etc/passwd");
  const parent = statSync(control.controlParent, { throwIfNoEntry: false });
  const isPrivilegedPort = request.listen.port < 1024;
  return control.controlInstallation(
    { settings: request.settings, unit: control.controlService(system.executable, isPrivilegedPort) },
    {
      hasUser: users.split("\n").some((line) => line.startsWith(`${control.controlUser}:`)),
      // The user of the service must get through the directory above its data.
      isParentOpen: ((parent?.mode ?? 0) & 0o777) === 0o755,
      sysctl: readTextIfThere(control.controlSysctlPath),
      packagedSysctl: readTextIfThere(control.packagedSysctlPath),
      settings: readTextIfThere(control.controlSettingsPath),
      unit: readTextIfThere(control.controlUnitPath),
      packagedUnit: readTextIfThere(control.packagedControlUnitPath),
      isStale: await isStale(
        [control.controlSettingsPath, control.controlUnitPath],
        control.controlUnit,
        system,
      ),
    },
  );
}

/** Throws failed without systemd. */
export async function requireServiceManager(system: Pick<System, "platform">): Promise<void> {
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  if (hasSystemd(system)) return;
  throw new AppError("failed", "systemd does not run on this machine", {
    hint: `Run the control plane from your init: \`${brand.executable} serve\`.`,
  });
}

/** States in which the service may have its data and its port. A run that was killed leaves it starting. */
const ownStates = new Set(["active", "activating", "reloading", "deactivating"]);

/** Throws before the first change where the service could not run: no root, no systemd, data or port in use. */
export async function requireUsable(request: SetupRequest, { system }: Context): Promise<void> {
  const { requireRoot, refuseUnsafe } = await import("../../node/enroll/service-checks.ts");
  requireRoot(system);
  await requireServiceManager(system);
  refuseUnsafe(system.executable, "executable", system);
  const { controlUnit } = await import("../../platform/systemd/control-unit.ts");
  const { systemctlCommand } = await import("../../platform/systemd/systemd.ts");
  const { stdout } = await system.run(systemctlCommand("is-active", controlUnit));
  if (ownStates.has(stdout.trim())) return;
  await refuseRunning(request.dataDirectory);
  refuseTakenPort(request.listen);
}

/** Throws busy if a control plane that was started by hand uses the data. */
async function refuseRunning(dataDirectory: string): Promise<void> {
  const { lockFile } = await import("../../platform/file-lock.ts");
  try {
    const lock = lockFile(join(dataDirectory, "serve.lock"));
    if (lock !== undefined) return lock.release();
  } catch (error) {
    // There is no data yet.
    if (systemErrorCode(error) === "ENOENT") return;
    throw error;
  }
  throw new AppError("busy", `Another \`${brand.executable} serve\` uses ${dataDirectory}`, {
    hint: "Stop it, also its own unit if you wrote one, then run this command again. Its data is taken over.",
  });
}

function refuseTakenPort({ hostname, port }: SetupRequest["listen"]): void {
  try {
    Bun.listen({ hostname, port, socket: { data: () => undefined } }).stop(true);
  } catch (error) {
    throw new AppError("failed", `TCP port ${port} is taken by another program`, {
      cause: error,
      hint: `Stop it, choose another --port, or let it be the proxy: --tls off. See which: ss -ltnp sport = :${port}`,
    });
  }
}

/** Installs and starts the service. If it does not start, the error has the sentence from its journal. */
export async function install(request: SetupRequest, context: Context): Promise<void> {
  const { system } = context;
  const { applyChanges } = await import("../../platform/machine-changes.ts");
  const { controlSettingsPath, controlUnit } = await import("../../platform/systemd/control-unit.ts");
  try {
    await applyChanges(await installationChanges(request, context), system);
  } catch (error) {
    // The command that failed names the unit if it was the start of the service. Other failures have no journal.
    if (!(error instanceof AppError) || !error.message.includes(controlUnit)) throw error;
    const journal = ["/usr/bin/journalctl", "--unit", controlUnit, "--lines", "5", "--output", "cat"];
    const { stdout } = await system.run(journal);
    const line = stdout.split("\n").findLast((each) => each.startsWith(`${brand.executable}: `));
    throw new AppError("failed", `The control plane does not start: ${line ?? error.message}`, {
      cause: error,
      hint: `See: journalctl -u ${controlUnit}. Settings: ${controlSettingsPath}. Then run this command again.`,
    });
  }
}
