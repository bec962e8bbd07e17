// Brings the running engine to the current generation of an organization's files, and back to an earlier generation.

import { AppError, messageOf } from "../../errors.ts";
import type { EngineControl } from "../engine/engine.ts";
import { dropGeneration, markApplied, switchGeneration } from "../files/generations.ts";

/** How long an engine must run with a new configuration before it counts as applied. */
const proofOfLifeMs = 500;

/** Rejects with engine_failed if the engine does not run with the current generation. */
export async function reloadOrRestart(control: EngineControl, restart: boolean): Promise<void> {
  if (!(await control.running())) return;
  try {
    await (restart ? control.restart() : control.reload());
    await control.alive(proofOfLifeMs);
  } catch (error) {
    // An engine may end because of what it had before, for example an expired certificate. Only an engine that was
    // started with the new configuration shows whether that one is bad.
    if (restart || (await control.running())) throw error;
    await control.restart();
    await control.alive(proofOfLifeMs);
  }
}

/** `reached` is false if the engine was not told to apply the failed generation. */
export async function rollBack(
  directory: string,
  previous: string,
  failed: string,
  { restart, reached }: { restart: boolean; reached: boolean },
  control: EngineControl,
): Promise<void> {
  switchGeneration(directory, previous);
  dropGeneration(directory, failed);
  markApplied(directory);
  if (!reached) return;
  try {
    const lives = await control.running();
    await (restart || !lives ? control.restart() : control.reload());
  } catch (error) {
    throw new AppError(
      "engine_failed",
      `The overlay engine does not run with the previous configuration either: ${messageOf(error)}`,
      { cause: error },
    );
  }
}
