// Refused configurations are remembered: for `status` and `doctor`, and so that the running engine is not given the same one
// again at each check-in. Each trial may drop all tunnels.

import { wholeConfiguration } from "../../../engine/left-out.ts";
import { sha256Hex } from "../../../base/sha256.ts";
import type { EngineInUse } from "../../engine/engine-in-use.ts";
import { readSyncState, writeSyncState } from "../../files/generations.ts";
import type { SyncState } from "../../files/config/sync-state.ts";
import type { Next } from "../next-config.ts";

/** Pause before the running engine is again given a configuration that it refused. */
const refusedMs = 60 * 60_000;

/** The refusal of this configuration by the running engine, if it is younger than the pause. `digest`: of `digestOf`. */
export function recentRefusal(directory: string, digest: string, nowMs: number): SyncState["refused"] {
  const refused = readSyncState(directory)?.refused;
  // Not a number if nothing was refused.
  const ageMs = nowMs - Date.parse(refused?.at ?? "");
  return refused?.digest === digest && ageMs >= 0 && ageMs < refusedMs ? refused : undefined;
}

/**
 * Stores a refusal until a configuration is applied, or the control plane sends the one in force again. `byRunningEngine`:
 * undefined if only the engine's test refused it. That is tried again at each check-in, because it disturbs no tunnel.
 */
export function noteRefusal(
  directory: string,
  {
    reason,
    byRunningEngine,
    isOfOverrides = false,
  }: {
    reason: string;
    byRunningEngine: SyncState["refused"];
    isOfOverrides?: boolean | undefined;
  },
): void {
  const state = readSyncState(directory);
  if (state === undefined) return;
  const others = (state.left_out ?? []).filter(({ key }) => key !== wholeConfiguration);
  const entry = { key: wholeConfiguration, reason: reason.slice(0, 400) };
  const noted = {
    ...state,
    left_out: [entry, ...others],
    refused: byRunningEngine,
    refused_overrides: isOfOverrides || undefined,
  };
  if (!Bun.deepEquals(noted, state)) writeSyncState(directory, noted);
}

/** Stands for a configuration and the engine that it is for. node-config.json is left out: the engine does not read it. */
export function digestOf({ files, configYml }: Next, { path, version }: EngineInUse): string {
  const { "node-config.json": _, ...forEngine } = files;
  return sha256Hex(JSON.stringify([forEngine, configYml, path, version]));
}
