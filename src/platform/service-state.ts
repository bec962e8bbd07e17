// Whether the unit that must watch an organization runs, and starts after a boot. Light to load:
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

/** So that the unit can be started. Throws `failed`. */
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
