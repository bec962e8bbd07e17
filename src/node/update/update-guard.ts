// The guard of an update: run by the former executable, it restarts what has to run with the new one, watches it,
// and puts the former one back if it does not do well. It trusts nothing that the new version brings.

import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "../../log.ts";
import { authTimer, daemonUnit, guardUnit, systemctlCommand, unitDirectory } from "../../platform/systemd.ts";
import { bringBack, keptPath, putInPlace } from "../../release/replace.ts";
import type { System } from "../../system.ts";
import { readMarker, writeMarker, type Marker } from "../files/update-marker.ts";
import { versionOf } from "./update-trial.ts";

/** A daemon that is not ready by then is no good; with what follows, the former one is back within 60 s. */
const readyWithinMs = 25_000;
/** How long it must then live. */
const stableMs = 6_000;
/** So many ends by itself are enough to know; waiting for more gains nothing. */
const maxRestarts = 3;
const checkWithinMs = 25_000;

type Needs = { stateDb: string; system: System; log: Log };

/** Carries out the update that the marker names, decides about it, and removes the guard's own unit. */
export async function guardUpdate({ stateDb, system, log }: Needs): Promise<void> {
  const marker = readMarker(stateDb);
  let result = marker?.result;
  if (marker !== undefined && result === undefined) {
    // From here on the next boot goes on with it.
    await system.run(systemctlCommand("enable", guardUnit));
    if (existsSync(marker.candidate)) putInPlace(marker.candidate, marker.executable);
    const reason = await judge(marker, system);
    result = reason === undefined ? "healthy" : "returned";
    if (reason === undefined) log.info(`Version ${marker.to} works`);
    else {
      log.error(`Version ${marker.to} does not work: ${reason}; ${marker.from} comes back`);
      await putBack(marker, system, log);
    }
    writeMarker(stateDb, { ...marker, result, ...(reason === undefined ? {} : { reason }) });
  }
  await system.run(systemctlCommand("disable", guardUnit));
  rmSync(join(unitDirectory, guardUnit), { force: true });
  await system.run(systemctlCommand("daemon-reload"));
  if (marker === undefined || result !== "returned") return;
  // It is in its place again, and the one that did not work is not kept.
  if ((await versionOf(marker.executable, system)) === marker.from) {
    rmSync(keptPath(marker.executable), { force: true });
  }
}

/** undefined if all is well. */
async function judge(marker: Marker, system: System): Promise<string | undefined> {
  const version = await versionOf(marker.executable, system);
  // The power went after it had been put back, before that was written down.
  if (version === marker.from) return "it did not work before the machine went down";
  if (version !== marker.to) return "it does not say its version";
  const problems = await Promise.all([judgeDaemon(system), judgeCheck(marker, system)]);
  return problems.find((problem) => problem !== undefined);
}

/** The daemon must say that it is ready, and go on living. */
async function judgeDaemon(system: System): Promise<string | undefined> {
  if (!existsSync(join(unitDirectory, daemonUnit)) || !(await isWanted(system))) return undefined;
  await system.run(systemctlCommand("reset-failed", daemonUnit));
  await system.run(systemctlCommand("restart", "--no-block", daemonUnit));
  // Until systemd has taken the job up, the former daemon still shows as active.
  await system.sleep(1000);
  let [since, livingPid] = [0, ""];
  for (let waited = 1000; waited < readyWithinMs + stableMs; waited += 500) {
    const { stdout } = await system.run(
      systemctlCommand("show", "--property=ActiveState,MainPID,Job,NRestarts", daemonUnit),
    );
    const value = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(stdout)?.[1] ?? "";
    if (value("Job") === "" && Number(value("NRestarts")) >= maxRestarts) return "the daemon keeps ending";
    const up = value("ActiveState") === "active" && value("Job") === "";
    if (!up || value("MainPID") !== livingPid) [since, livingPid] = [waited, up ? value("MainPID") : ""];
    if (livingPid !== "" && waited - since >= stableMs) return undefined;
    if (livingPid === "" && waited >= readyWithinMs) return "the daemon does not become ready";
    await system.sleep(500);
  }
  return "the daemon does not stay up";
}

/** A daemon that a person stopped and disabled is not started for the sake of an update. */
async function isWanted(system: System): Promise<boolean> {
  const enabled = await system.run(systemctlCommand("is-enabled", "--quiet", daemonUnit));
  const active = await system.run(systemctlCommand("is-active", "--quiet", daemonUnit));
  return enabled.status === 0 || active.status === 0;
}

/** In server mode: one check of the credentials, with the same answer as the former version's. */
async function judgeCheck(marker: Marker, system: System): Promise<string | undefined> {
  if (!existsSync(join(unitDirectory, authTimer))) return undefined;
  const check = async (executable: string) =>
    system.run([executable, "check-auth", "--all", "--json"], { timeoutMs: checkWithinMs });
  const { status, timedOut } = await check(marker.executable);
  // Done, unreachable, revoked: answers.
  if (!timedOut && [0, 6, 7].includes(status)) return undefined;
  if (timedOut) return "check-auth does not end";
  const former = await check(system.executable);
  return former.status === status ? undefined : `check-auth ends with status ${status}`;
}

/** The former executable takes its place again. */
async function putBack(marker: Marker, system: System, log: Log): Promise<void> {
  const kept = keptPath(marker.executable);
  // Somebody may have exchanged the two meanwhile.
  if ((await versionOf(kept, system)) === marker.from) bringBack(marker.executable);
  else log.error(`${kept} is not version ${marker.from}; ${marker.executable} stays as it is`);
  if (!existsSync(join(unitDirectory, daemonUnit)) || !(await isWanted(system))) return;
  // A new daemon that hangs would use up its time to stop; engines are not touched by this.
  await system.run(systemctlCommand("kill", "--kill-who=main", "--signal=SIGKILL", daemonUnit));
  await system.run(systemctlCommand("reset-failed", daemonUnit));
  await system.run(systemctlCommand("restart", "--no-block", daemonUnit));
}
