// After an update: a control plane of this machine that runs as a service hands over to the new executable. The former
// process answers until the new one does (cli/handover.ts), so a version that does not start interrupts nothing.

import { existsSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import type { Step } from "../../plan.ts";
import { controlUnit, controlUnitPath, packagedControlUnitPath } from "../../platform/control-unit.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import { systemctlCommand } from "../../platform/systemd.ts";
import type { System } from "../../system.ts";

type Edge = Pick<System, "run" | "sleep">;

/** Longer than the start of a server with a usual database. */
const takesOverWithinMs = 60_000;

/** Throws failed if the former process still answers; the update itself stays. */
export async function handOverControlPlane(system: Edge): Promise<void> {
  const former = await mainProcess(system);
  if (former === undefined) return;
  const { status } = await system.run(systemctlCommand("reload", controlUnit));
  // A unit that an administrator wrote, without the handover.
  if (status !== 0) await system.run(systemctlCommand("try-restart", controlUnit), { timeoutMs: 90_000 });
  for (let waited = 0; waited < takesOverWithinMs; waited += 250) {
    const present = await mainProcess(system);
    if (present !== undefined && present !== former) return;
    await system.sleep(250);
  }
  throw new AppError(
    "failed",
    "The control plane does not start with this version; the former process still answers",
    {
      hint: `See why: journalctl -u ${controlUnit}. Go back: ${brand.executable} self-update --rollback`,
    },
  );
}

/** The plan of handOverControlPlane. */
export async function planHandOver(system: Edge): Promise<Step[]> {
  if ((await mainProcess(system)) === undefined) return [];
  return [{ step: "run", argv: systemctlCommand("reload", controlUnit) }];
}

/** Undefined if no control plane runs here as a service. */
async function mainProcess(system: Edge): Promise<string | undefined> {
  if (!hasSystemd() || ![controlUnitPath, packagedControlUnitPath].some((path) => existsSync(path)))
    return undefined;
  const { stdout } = await system.run(systemctlCommand("show", "--property=MainPID", "--value", controlUnit));
  const pid = stdout.trim();
  return /^[1-9]\d*$/.test(pid) ? pid : undefined;
}
