// After an update: a control plane of this machine that runs as a service hands over to the new executable. The former
// process answers until the new one does (cli/handover.ts), so a version that does not start interrupts nothing.

import { existsSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Step } from "../../base/plan/plan.ts";
import {
  controlUnit,
  controlUnitPath,
  packagedControlUnitPath,
} from "../../platform/systemd/control-unit.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import { systemctlCommand } from "../../platform/systemd/systemd.ts";
import { runsProgram } from "../../platform/processes.ts";
import { askedProperties } from "../../platform/systemd/unit-properties.ts";
import type { System } from "../../base/system.ts";

type UsedSystem = Pick<System, "run" | "sleep">;

/** Longer than the start of a server with a usual database. */
const takesOverWithinMs = 60_000;
/** Shorter: the previous version has already started on this machine. */
const takesBackWithinMs = 15_000;
const lookEveryMs = 250;

/**
 * Has the new executable take over from the running control plane. Does nothing without a control plane, and if that runs the new
 * executable already: an earlier run may have been killed after the handover. Throws failed if the new executable does not start;
 * the former process then still answers.
 */
export async function handOverControlPlane(
  executable: string,
  system: UsedSystem,
  withinMs = takesOverWithinMs,
): Promise<void> {
  const former = await controlProcess(system);
  if (former === undefined || (former.isActive && runsProgram(former.pid, executable))) return;
  if (former.isActive) {
    const { status } = await system.run(systemctlCommand("reload", controlUnit));
    // The unit has no ExecReload: an administrator wrote it.
    if (status !== 0) await system.run(systemctlCommand("try-restart", controlUnit), { timeoutMs: 90_000 });
  }
  for (let waited = 0; waited < withinMs; waited += lookEveryMs) {
    const current = await controlProcess(system);
    // Another process has taken over, or the one that was starting is ready.
    if (current?.isActive === true && (current.pid !== former.pid || !former.isActive)) return;
    await system.sleep(lookEveryMs);
  }
  throw new AppError(
    "failed",
    "The control plane does not start with this version; the former process still answers",
    {
      hint: `See why: journalctl -u ${controlUnit}. Go back: ${brand.executable} self-update --rollback`,
    },
  );
}

/** After a rollback: no process of the version that failed stays, not even one that has not taken over yet. */
export async function bringBackControlPlane(executable: string, system: UsedSystem): Promise<void> {
  const main = await controlProcess(system);
  if (main === undefined) return;
  for (const pid of main.others) if (!runsProgram(pid, executable)) kill(pid);
  try {
    if (main.isActive) return await handOverControlPlane(executable, system, takesBackWithinMs);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    // It did not take over in time: restart it, although nothing answers meanwhile.
  }
  await system.run(systemctlCommand("kill", "--signal=SIGKILL", controlUnit));
  // After too many failed starts systemd would refuse this one.
  await system.run(systemctlCommand("reset-failed", controlUnit));
  await system.run(systemctlCommand("restart", "--no-block", controlUnit));
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // The process has ended already.
  }
}

/** The plan of handOverControlPlane. */
export async function planHandOver(system: UsedSystem): Promise<Step[]> {
  if ((await controlProcess(system)) === undefined) return [];
  return [{ step: "run", argv: systemctlCommand("reload", controlUnit) }];
}

/**
 * The main process of the control plane's unit. Undefined if no control plane runs here as a service. `isActive`: false while it
 * starts. `others`: the unit's other processes, such as a successor that starts beside it.
 */
async function controlProcess(
  system: UsedSystem,
): Promise<{ pid: number; isActive: boolean; others: number[] } | undefined> {
  if (!hasSystemd() || ![controlUnitPath, packagedControlUnitPath].some((path) => existsSync(path)))
    return undefined;
  const names = ["MainPID", "ActiveState", "ControlGroup"] as const;
  const answer = await askedProperties(controlUnit, names, system);
  const { MainPID = "", ActiveState, ControlGroup = "" } = answer ?? {};
  const pid = Number(MainPID);
  if (!(pid > 0)) return undefined;
  // Control groups of version 2, and of version 1.
  const lists = ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd"].map(
    (top) => `${top}${ControlGroup}/cgroup.procs`,
  );
  const members = lists.map((path) => readTextIfThere(path) ?? "").join("\n");
  const others = members
    .split("\n")
    .map(Number)
    .filter((each) => each > 0 && each !== pid);
  return { pid, isActive: ActiveState === "active" || ActiveState === "reloading", others };
}
