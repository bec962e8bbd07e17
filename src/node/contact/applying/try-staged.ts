// Runs the engine's own test on a generation that is staged, before anything uses it.

import { join } from "node:path";
import { fromSystemError, hasCode } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { finishConfig } from "../../files/config/config-file.ts";
import { dropGeneration } from "../../files/generations.ts";
import type { Organization } from "../../files/organizations.ts";
import { testText } from "../generation-switch.ts";
import type { Next, SyncDeps } from "../next-config.ts";
import { faultInOverrides, type TestOverrides } from "../overrides-fault.ts";

/** Why an engine refuses a configuration. `isOfOverrides`: because of overrides.yml of this machine. */
export type Refusal = { reason: string; isOfOverrides: boolean };

/**
 * Why the engine refuses the staged generation. Undefined: it accepts it, or there is no engine. If it is refused, or this fails, the
 * generation is removed.
 */
export async function tryStaged(
  { slug, directory }: Organization,
  generation: string,
  next: Next,
  { engine, system }: SyncDeps,
): Promise<Refusal | undefined> {
  try {
    if (engine.path === undefined) return undefined;
    const refusal = await testStaged(directory, generation, next, engine.path, system);
    if (refusal !== undefined) dropGeneration(directory, generation);
    return refusal;
  } catch (error) {
    dropGeneration(directory, generation);
    throw fromSystemError(`try out the new configuration of ${slug}`, error);
  }
}

async function testStaged(
  directory: string,
  generation: string,
  { sent, names, localApi, dataPlane }: Next,
  enginePath: string,
  system: SyncDeps["system"],
): Promise<Refusal | undefined> {
  const filesIn = join(directory, "generations", generation);
  const test: TestOverrides = async ({ overrides, name } = {}) => {
    const text = finishConfig(sent, directory, {
      names,
      localApi,
      dataPlane,
      filesIn,
      ...given({ overrides }),
    });
    await testText(enginePath, filesIn, text, system, name);
  };
  try {
    await test();
    return undefined;
  } catch (error) {
    // Only an error of the engine itself proves that the configuration is bad.
    if (!hasCode(error, "bad_configuration")) throw error;
    // If the engine accepts the configuration without overrides.yml, the refusal names the key there.
    const fault = await faultInOverrides(directory, test);
    return { reason: fault ?? error.message, isOfOverrides: fault !== undefined };
  }
}
