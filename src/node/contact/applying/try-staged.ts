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

/**
 * Why the engine refuses the staged generation. Undefined: it accepts it, or there is no engine. If this fails in any way, the
 * generation is removed.
 */
export async function tryStaged(
  { slug, directory }: Organization,
  generation: string,
  next: Next,
  { engine, system }: SyncDeps,
): Promise<string | undefined> {
  try {
    if (engine.path !== undefined) await testStaged(directory, generation, next, engine.path, system);
    return undefined;
  } catch (error) {
    dropGeneration(directory, generation);
    // Only an error of the engine itself proves that the configuration is bad.
    if (hasCode(error, "bad_configuration")) return error.message;
    throw fromSystemError(`try out the new configuration of ${slug}`, error);
  }
}

async function testStaged(
  directory: string,
  generation: string,
  { sent, names, localApi, dataPlane }: Next,
  enginePath: string,
  system: SyncDeps["system"],
): Promise<void> {
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
  // If the engine accepts the configuration without overrides.yml, the error names the key there that it refuses.
  await test().catch(async (error: unknown) => {
    throw (await faultInOverrides(directory, test)) ?? error;
  });
}
