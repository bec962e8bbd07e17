// The guard of an update, run by the previous executable: restarts the services with the new version, watches them, and
// restores the previous version if they fail. It must not trust anything of the new version.

import { given } from "../../base/given.ts";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { AppError, errorTable } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { rootOfUnits } from "../../platform/config-root.ts";
import {
  authTimer,
  daemonUnit,
  guardUnit,
  systemctlCommand,
  unitDirectory,
  unitPath,
} from "../../platform/systemd/systemd.ts";
import { unitProperties } from "../../platform/systemd/unit-properties.ts";
import { bringBack, keptPath, putInPlace } from "../../release/replace.ts";
import type { System } from "../../base/system.ts";
import { readMarker, writeMarker, type Marker } from "../files/update-marker.ts";
import { bringBackControlPlane, handOverControlPlane } from "./control-plane-handover.ts";
import { versionOf } from "./update-trial.ts";

/** A daemon must be ready within this time. Together with what follows, a rollback takes at most 60 s. */
const readyWithinMs = 25_000;
/** How long the daemon must then keep running. */
const stableMs = 6_000;
/** After this many crashes the daemon has failed. */
const maxRestarts = 3;
const checkWithinMs = 25_000;
/** In this time the new process of the control plane must take over. */
const takesOverWithinMs = 45_000;
/** Exit statuses of a check that works, whatever it found out about the control plane and this node. */
const answers: readonly number[] = [0, errorTable.control_plane_unreachable[0], errorTable.access_revoked[0]];

type Needs = { stateDb: string; system: System; log: Log };

/** Executes the update that the marker describes, judges it, and deletes the guard's own unit. */
export async function guardUpdate({ stateDb, system, log }: Needs): Promise<void> {
  const marker = readMarker(stateDb);
  let result = marker?.result;
  if (marker !== undefined && result === undefined) {
    // From now on the guard continues after a reboot.
    await system.run(systemctlCommand("enable", guardUnit));
    // Not there: the guard has put it in its place before a reboot.
    if (existsSync(marker.candidate)) putInPlace(marker.candidate, marker.executable);
    const reason = await whyFailed(marker, system);
    result = reason === undefined ? "healthy" : "returned";
    if (reason === undefined) log.info(`Version ${marker.to} works`);
    else {
      log.error(`Version ${marker.to} does not work: ${reason}. Restoring ${marker.from}`);
      await restore(marker, system, log);
    }
    writeMarker(stateDb, { ...marker, result, ...given({ reason }) });
  }
  await system.run(systemctlCommand("disable", guardUnit));
  rmSync(join(unitDirectory, guardUnit), { force: true });
  await system.run(systemctlCommand("daemon-reload"));
  if (marker === undefined || result !== "returned") return;
  // The previous version is in its place again, so its second name is not needed. The failed one was replaced.
  if ((await versionOf(marker.executable, system)) === marker.from) {
    rmSync(keptPath(marker.executable), { force: true });
  }
}

/** The plan of guardUpdate for a new version that works. */
export async function planGuard(executable: string, system: System): Promise<Step[]> {
  const run = (...argv: string[]): Step => ({ step: "run", argv });
  const systemctl = (...words: string[]) => run(...systemctlCommand(...words));
  const daemon = (await judgesDaemon(system))
    ? [systemctl("reset-failed", daemonUnit), systemctl("restart", "--no-block", daemonUnit)]
    : [];
  const check = judgesCheck() ? [run(...checkCommand(executable))] : [];
  return [
    systemctl("enable", guardUnit),
    planReplaced(executable, 0o755),
    ...daemon,
    ...check,
    systemctl("disable", guardUnit),
    { step: "file", path: join(unitDirectory, guardUnit), mode: "0644", change: "removed" },
    systemctl("daemon-reload"),
  ];
}

/** Returns the reason of a failure, or undefined. */
async function whyFailed(marker: Marker, system: System): Promise<string | undefined> {
  const version = await versionOf(marker.executable, system);
  // A power failure after the rollback, but before the result was saved.
  if (version === marker.from) return "it failed before the machine went down";
  if (version !== marker.to) return "it does not report its version";
  const problems = await Promise.all([whyDaemonFailed(system), whyCheckFailed(marker, system)]);
  // Last, so that the former process of the control plane answers while a bad version is found.
  return problems.find((problem) => problem !== undefined) ?? (await whyControlPlaneFailed(marker, system));
}

/** Its former process answers until the new one does. The next update also finds this step if it is left out. */
async function whyControlPlaneFailed(marker: Marker, system: System): Promise<string | undefined> {
  try {
    await handOverControlPlane(marker.executable, system, takesOverWithinMs);
    return undefined;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return "the control plane does not start with it";
  }
}

/** The daemon must report that it is ready and keep running. */
async function whyDaemonFailed(system: System): Promise<string | undefined> {
  if (!(await judgesDaemon(system))) return undefined;
  await system.run(systemctlCommand("reset-failed", daemonUnit));
  await system.run(systemctlCommand("restart", "--no-block", daemonUnit));
  // Until systemd starts the job, the previous daemon still shows as active.
  await system.sleep(1000);
  /** The daemon that is ready, and since when. */
  let ready: { pid: string; since: number } | undefined;
  for (let waited = 1000; waited < readyWithinMs + stableMs; waited += 500) {
    const unit = await unitProperties(daemonUnit, ["ActiveState", "MainPID", "Job", "NRestarts"], system);
    if (unit === undefined) {
      await system.sleep(500);
      continue;
    }
    if (unit.Job === "" && Number(unit.NRestarts) >= maxRestarts) return "the daemon crashes repeatedly";
    const isReady = unit.ActiveState === "active" && unit.Job === "";
    if (!isReady) ready = undefined;
    else if (ready?.pid !== unit.MainPID) ready = { pid: unit.MainPID, since: waited };
    if (ready !== undefined && waited - ready.since >= stableMs) return undefined;
    if (ready === undefined && waited >= readyWithinMs) return "the daemon does not become ready";
    await system.sleep(500);
  }
  return "the daemon does not keep running";
}

/** An update does not start a daemon that was stopped and disabled. */
async function judgesDaemon(system: System): Promise<boolean> {
  if (unitPath(daemonUnit) === undefined) return false;
  const enabled = await system.run(systemctlCommand("is-enabled", "--quiet", daemonUnit));
  const active = await system.run(systemctlCommand("is-active", "--quiet", daemonUnit));
  return enabled.status === 0 || active.status === 0;
}

/** In server mode, `check-auth` must give the same answer as with the previous version. */
async function whyCheckFailed(marker: Marker, system: System): Promise<string | undefined> {
  if (!judgesCheck()) return undefined;
  const check = async (executable: string) =>
    system.run(checkCommand(executable), { timeoutMs: checkWithinMs });
  const { status, timedOut } = await check(marker.executable);
  if (!timedOut && answers.includes(status)) return undefined;
  if (timedOut) return "check-auth does not end";
  const previous = await check(system.executable);
  return previous.status === status ? undefined : `check-auth ends with status ${status}`;
}

const judgesCheck = () => unitPath(authTimer) !== undefined;

/** The same check as the timer's: for the organizations that the units run. */
export function checkCommand(executable: string, root = rootOfUnits()): string[] {
  return [
    executable,
    "check-auth",
    "--all",
    "--json",
    ...(root === undefined ? [] : ["--config-root", root]),
  ];
}

/** Restores the previous executable. */
async function restore(marker: Marker, system: System, log: Log): Promise<void> {
  const kept = keptPath(marker.executable);
  // An administrator may have exchanged the two meanwhile.
  if ((await versionOf(kept, system)) === marker.from) bringBack(marker.executable);
  else log.error(`${kept} is not version ${marker.from}; ${marker.executable} stays as it is`);
  await Promise.all([restoreDaemon(system), bringBackControlPlane(marker.executable, system)]);
}

/** Restarts it with the executable that is there, also one that hangs or has failed. */
export async function restoreDaemon(system: System): Promise<void> {
  if (!(await judgesDaemon(system))) return;
  // SIGKILL, because a hanging daemon would use its whole stop timeout. The engines keep running.
  await system.run(systemctlCommand("kill", "--kill-who=main", "--signal=SIGKILL", daemonUnit));
  await system.run(systemctlCommand("reset-failed", daemonUnit));
  await system.run(systemctlCommand("restart", "--no-block", daemonUnit));
}
