// Brings the running engine to the current generation of an organization's files, and back to an earlier generation. Before
// that, the engine tests the configuration.

import { defer } from "../../base/defer.ts";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { AppError, messageOf } from "../../base/errors.ts";
import { writeNewFile } from "../../base/files.ts";
import { whyForeign } from "../../platform/program-safety.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import { testConfig, type EngineRunner } from "../engine/engine.ts";
import {
  currentGeneration,
  dropGeneration,
  markApplied,
  pruneGenerations,
  switchGeneration,
} from "../files/generations.ts";

/** How long an engine must run with a new configuration before it counts as applied. */
const proofOfLifeMs = 500;

/**
 * Runs the engine's test on this text, in a file of `directory`. `name`: what an error says is refused. Throws
 * bad_configuration.
 */
export async function testText(
  enginePath: string,
  directory: string,
  text: string,
  system: EngineRunner,
  name?: string,
): Promise<void> {
  // Root must not run a program that others can change. Its test is left out, so that renewals and revocations arrive all the
  // same: the running engine then shows whether it takes the text.
  if (whyForeign(enginePath, system.isRoot, system) !== undefined) return;
  const path = join(directory, "test.yml");
  using _ = defer(() => rmSync(path, { force: true }));
  // A killed run may have left it.
  rmSync(path, { force: true });
  writeNewFile(path, text, 0o644);
  await testConfig(enginePath, path, system, name);
}

/** Rejects with engine_failed if the engine does not run with the current generation. */
export async function reloadOrRestart(
  control: EngineControl,
  { restart }: { restart: boolean },
): Promise<void> {
  if (!(await control.running())) return;
  try {
    await (restart ? control.restart() : control.reload());
    await control.alive(proofOfLifeMs);
  } catch (error) {
    // After a reload the engine may have ended because of its former configuration, for example an expired certificate. Only an
    // engine that was started with the new configuration shows whether that one is bad.
    if (restart || (await control.running())) throw error;
    await control.restart();
    await control.alive(proofOfLifeMs);
  }
}

/** `reached`: false if the files were not switched, so that the engine was not told to apply them. */
type SwitchFailure = { error: unknown; reached: boolean };

/** Switches to a staged generation and brings the engine to it. After a failure, which it returns, the caller rolls back. */
export async function trySwitch(
  directory: string,
  generation: string,
  { restart }: { restart: boolean },
  control: EngineControl,
): Promise<SwitchFailure | undefined> {
  let reached = false;
  try {
    switchGeneration(directory, generation);
    reached = true;
    await reloadOrRestart(control, { restart });
  } catch (error) {
    return { error, reached };
  }
  markApplied(directory);
  pruneGenerations(directory);
  return undefined;
}

/**
 * Switches to a staged generation. After a failure it rolls back, if there is a former generation, and throws the failure.
 * `onReached`: called before that if the engine was told to apply the generation.
 */
export async function switchOrRollBack(
  directory: string,
  generation: string,
  { restart, onReached }: { restart: boolean; onReached?(): void },
  control: EngineControl,
): Promise<void> {
  const formerGeneration = currentGeneration(directory);
  const failure = await trySwitch(directory, generation, { restart }, control);
  if (failure === undefined) return;
  const { error, reached } = failure;
  if (reached) onReached?.();
  if (formerGeneration !== undefined)
    await rollBack(directory, formerGeneration, generation, { restart, reached }, control);
  throw error;
}

/**
 * Makes the former generation current, and brings the engine back to it. `reached`: false if the engine was not told to apply
 * the failed generation, so that it still runs with the former one. Throws engine_failed if it does not run with that either.
 */
export async function rollBack(
  directory: string,
  formerGeneration: string,
  failedGeneration: string,
  { restart, reached }: { restart: boolean; reached: boolean },
  control: EngineControl,
): Promise<void> {
  switchGeneration(directory, formerGeneration);
  dropGeneration(directory, failedGeneration);
  markApplied(directory);
  if (!reached) return;
  try {
    // Not running: it ended with the failed configuration, so there is nothing to reload.
    const isRunning = await control.running();
    await (restart || !isRunning ? control.restart() : control.reload());
  } catch (error) {
    throw new AppError(
      "engine_failed",
      `The overlay engine does not run with the previous configuration either: ${messageOf(error)}`,
      { cause: error },
    );
  }
}
