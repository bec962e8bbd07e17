// Whether the unit that must watch an organization runs, and starts after a boot; and what brings it back. Light to load:
// `status` asks it.

import { AppError } from "../errors.ts";
import type { System } from "../system.ts";
import { systemctlCommand } from "./systemd.ts";
import { unitProperties } from "./unit-properties.ts";

export type UnitState = {
  /** stopped: it is there, and does not run. */
  is: "running" | "stopped" | "masked" | "missing";
  startsAtBoot: boolean;
  /** Its main process. */
  pid: number | undefined;
};

export async function unitState(unit: string, system: Pick<System, "run">): Promise<UnitState> {
  const names = ["LoadState", "ActiveState", "UnitFileState", "MainPID"] as const;
  const { LoadState, ActiveState, UnitFileState, MainPID } = await unitProperties(unit, names, system);
  const isMasked = LoadState === "masked" || UnitFileState.startsWith("masked");
  const isActive = ["active", "activating", "reloading"].includes(ActiveState);
  const there = isActive ? "running" : "stopped";
  return {
    is: isMasked ? "masked" : LoadState === "loaded" ? there : isActive ? "running" : "missing",
    startsAtBoot: UnitFileState.startsWith("enabled"),
    pid: Number(MainPID) || undefined,
  };
}

/** Starts a unit that is there, now and at each boot, also one that is masked or disabled. Throws `failed`. */
export async function bringBack(unit: string, system: Pick<System, "run">): Promise<void> {
  const { is, startsAtBoot } = await unitState(unit, system);
  if (is === "missing" || (is === "running" && startsAtBoot)) return;
  const lines = [
    ...(is === "masked"
      ? [
          ["unmask", unit],
          ["unmask", "--runtime", unit],
        ]
      : []),
    ["enable", "--now", unit],
  ];
  for (const words of lines) {
    const { status, stderr } = await system.run(systemctlCommand(...words), { timeoutMs: 60_000 });
    if (status === 0) continue;
    const why = stderr.trim().split("\n")[0] ?? "";
    throw new AppError("failed", `systemd could not ${words.join(" ")}: ${why || `exit ${status}`}`);
  }
}
