// The second part of an update, after the candidate was put beside the executable: replaces the executable with it and tries it;
// with services the guard does this. It must not know where the candidate came from. By a file, the marker, the guard learns what
// to do, and this process its verdict.

import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { applyChanges, planChanges, type Change } from "../../platform/machine-changes.ts";
import { rootOfUnits } from "../../platform/config-root.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import {
  authTimer,
  daemonUnit,
  guardUnit,
  systemctlCommand,
  unitDirectory,
  unitPath,
} from "../../platform/systemd/systemd.ts";
import { guardService } from "../../platform/systemd/units.ts";
import { controlUnit } from "../../platform/systemd/control-unit.ts";
import { flagIn } from "../../engine/pinned-engine.ts";
import { keepFormer, keptPath, planKeep, swapIn } from "../../release/replace.ts";
import type { System } from "../../base/system.ts";
import { planRestart } from "../enroll/services.ts";
import { markerPath, readMarker, writeMarker } from "../files/update-marker.ts";

export type Places = { stateDb: string; configRoot: string };

/** Longer than a rollback by the guard, which usually takes at most 60 s. */
const verdictMs = 120_000;
const selfTestMs = 20_000;

const VersionReport = v.object({ version: v.pipe(v.string(), v.maxLength(64)) });

/** undefined if the executable does not run, hangs, or prints something else. */
export async function versionOf(path: string, system: Pick<System, "run">): Promise<string | undefined> {
  const argv = [path, "version", "--no-check", "--json"];
  const result = await system.run(argv, { timeoutMs: selfTestMs }).catch((error: unknown) => {
    if (error instanceof AppError) return undefined;
    throw error;
  });
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), VersionReport), result?.stdout);
  return result?.status === 0 && parsed.success ? parsed.output.version : undefined;
}

/** Our units, also those of a package beside this executable, which a new version must be able to run. */
export function guardedUnits(): string[] {
  return hasSystemd()
    ? [daemonUnit, authTimer, controlUnit].filter((name) => unitPath(name) !== undefined)
    : [];
}

/**
 * With services, the guard replaces the executable: before it starts nothing has changed, and then it finishes even if this
 * process or the power fails.
 */
export async function replaceUnderGuard(
  candidate: string,
  { from, to, path }: { from: string; to: string; path: string },
  places: Places,
  system: System,
): Promise<void> {
  if (guardedUnits().length === 0) {
    swapIn(candidate, path);
    return applyChanges(planRestart(places, system), system);
  }
  keepFormer(path);
  writeMarker(places.stateDb, {
    executable: path,
    candidate,
    from,
    to,
    started_at: formatTime(system.now()),
  });
  await applyChanges(startOfGuard(path, places), system);
  await awaitVerdict(to, places, system);
}

/** The plan of replaceUnderGuard, up to the start of the guard. */
export function planUnderGuard(path: string, places: Places): Step[] {
  return [
    ...planKeep(path),
    planReplaced(markerPath(places.stateDb), 0o644),
    ...planChanges(startOfGuard(path, places)),
  ];
}

function startOfGuard(path: string, { stateDb, configRoot }: Places): Change[] {
  // The guard watches the services, whose config root may be another one than this command's.
  const content = guardService(keptPath(path), stateDb, rootOfUnits() ?? configRoot);
  return [
    { change: "file", path: join(unitDirectory, guardUnit), content, mode: 0o644 },
    { change: "run", argv: systemctlCommand("daemon-reload") },
    { change: "run", argv: systemctlCommand("restart", "--no-block", guardUnit) },
  ];
}

/**
 * Refuses a second update while a guard runs, even if the process that started it has ended, and whatever its state
 * database is.
 */
export async function refuseSecond({ stateDb }: Places, system: System): Promise<void> {
  const guard = readTextIfThere(join(unitDirectory, guardUnit)) ?? "";
  const marker = readMarker(flagIn(guard, "state-db-path") ?? stateDb);
  if (marker === undefined || marker.result !== undefined || !hasSystemd()) return;
  const { status } = await system.run(systemctlCommand("is-active", "--quiet", guardUnit));
  if (status !== 0) return;
  throw new AppError("busy", `An update to ${marker.to} is in progress`, {
    hint: "Wait a minute, then run the command again.",
  });
}

async function awaitVerdict(to: string, places: Places, system: System): Promise<void> {
  for (let waited = 0; waited < verdictMs; waited += 250) {
    const marker = readMarker(places.stateDb);
    if (marker?.result === "healthy") return;
    if (marker?.result === "returned") {
      throw new AppError("failed", `Version ${to} did not work here: ${marker.reason ?? "no reason given"}`, {
        hint: "The previous version is restored.",
      });
    }
    await system.sleep(250);
  }
  throw new AppError("failed", `The guard of the update has not confirmed version ${to}`, {
    hint: `See: journalctl -u ${guardUnit}`,
  });
}
