// Whether the unit that must watch an organization runs, and starts after a boot. Light to load: `status` uses it.

import { existsSync, statSync } from "node:fs";
import { AppError } from "../base/errors.ts";
import type { System } from "../base/system.ts";
import { hasSystemd } from "./service-manager.ts";
import { authTimer, authUnit, isEnabled, systemctlCommand, unitPath } from "./systemd/systemd.ts";
import { lacksProgram, readUnit } from "./systemd/unit-file.ts";
import { startedProgram, unitProperties } from "./systemd/unit-properties.ts";

export type UnitState = {
  /** stopped: it is there, and does not run. unknown: systemd does not answer. */
  is: "running" | "stopped" | "masked" | "missing" | "unknown";
  startsAtBoot: boolean;
  /** The main process of the unit. */
  pid: number | undefined;
  /** The program of a timer's service, if that file is gone. */
  lacks?: string | undefined;
};

export async function unitState(unit: string, system: Pick<System, "run">): Promise<UnitState> {
  const names = ["LoadState", "ActiveState", "UnitFileState", "MainPID"] as const;
  const answer = await unitProperties(unit, names, system);
  if (answer === undefined) return { is: "unknown", startsAtBoot: isEnabled(unit), pid: undefined };
  return {
    is: whatItIs(answer),
    startsAtBoot: answer.UnitFileState.startsWith("enabled"),
    // systemd says 0 where there is no main process.
    pid: Number(answer.MainPID) || undefined,
  };
}

type Answer = Record<"LoadState" | "ActiveState" | "UnitFileState", string>;

function whatItIs({ LoadState, ActiveState, UnitFileState }: Answer): UnitState["is"] {
  // First, because a unit that was masked while it ran is active still.
  if (LoadState === "masked" || UnitFileState.startsWith("masked")) return "masked";
  if (["active", "activating", "reloading"].includes(ActiveState)) return "running";
  return LoadState === "loaded" ? "stopped" : "missing";
}

/** The timer of the checks, and whether they can run. */
export async function checksState(system: Pick<System, "run">): Promise<UnitState> {
  const [timer, lacks] = await Promise.all([unitState(authTimer, system), lackingProgram(authUnit, system)]);
  return { ...timer, lacks };
}

/** systemd is asked only if the file of the unit names a program that is gone: a drop-in may name another one. */
async function lackingProgram(unit: string, system: Pick<System, "run">): Promise<string | undefined> {
  const path = unitPath(unit);
  const text = path === undefined ? undefined : readUnit(path);
  if (text === undefined || !lacksProgram(text)) return undefined;
  const started = startedProgram((await unitProperties(unit, ["ExecStart"], system))?.ExecStart ?? "");
  return started === undefined || existsSync(started) ? undefined : started;
}

/** A masked unit cannot be started. A mask may be in /etc, or until the next boot in /run: remove both. Throws `failed`. */
export async function unmask(unit: string, system: Pick<System, "run">): Promise<void> {
  if ((await unitState(unit, system)).is !== "masked") return;
  for (const words of [
    ["unmask", unit],
    ["unmask", "--runtime", unit],
  ]) {
    const { status, stderr } = await system.run(systemctlCommand(...words), { timeoutMs: 60_000 });
    if (status === 0) continue;
    const why = stderr.trim().split("\n")[0] ?? "";
    throw new AppError("failed", `systemd could not ${words.join(" ")}: ${why || `exit ${status}`}`);
  }
}

/** Start times of processes are rounded to 10 ms, and times of files to a tick. */
const roundedMs = 50;

/** Whether the unit's process started before one of these files was written. */
export async function isStale(
  paths: readonly string[],
  unit: string,
  system: Pick<System, "run" | "now">,
): Promise<boolean> {
  const { ageOf, identifyProcess } = await import("./process-identity.ts");
  if (!hasSystemd()) return false;
  const running = identifyProcess((await unitState(unit, system)).pid ?? 0);
  if (running === undefined) return false;
  const startedAt = system.now() - ageOf(running);
  return paths.some((path) => {
    const written = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
    return written !== undefined && written > startedAt + roundedMs;
  });
}
