// Finds out whether overrides.yml is why the engine refuses a configuration, and which of its keys. The error must name that
// file: the administrator of the machine wrote it, and has never seen the staged file that the engine was given.

import { join } from "node:path";
import { hasCode } from "../../base/errors.ts";
import { isMap, type YamlMap } from "../../base/yaml.ts";
import { readOverrides } from "../files/config/config-file.ts";

/** Tests the configuration, with these overrides instead of those of overrides.yml. `name`: what an error says is refused. */
export type TestOverrides = (own?: { overrides?: YamlMap; name?: string }) => Promise<void>;

/** The refusal, which names overrides.yml and the key; undefined if the engine refuses the configuration without it, too. */
export async function faultInOverrides(directory: string, test: TestOverrides): Promise<string | undefined> {
  const overrides = readOverrides(directory);
  if (Object.keys(overrides).length === 0) return undefined;
  const withoutAny = await refusal(test, { overrides: {} });
  if (withoutAny !== undefined) return undefined;
  const path = join(directory, "overrides.yml");
  for (const [key, alone] of keysOf(overrides)) {
    const found = await refusal(test, { overrides: alone, name: `${key} in ${path}` });
    if (found !== undefined) return found;
  }
  // Each key alone is accepted: then the engine refuses their combination.
  return refusal(test, { overrides, name: path });
}

/** Only an error of the engine itself proves that it refuses the configuration. */
async function refusal(
  test: TestOverrides,
  own: { overrides: YamlMap; name?: string },
): Promise<string | undefined> {
  try {
    await test(own);
    return undefined;
  } catch (error) {
    if (hasCode(error, "bad_configuration")) return error.message;
    throw error;
  }
}

/** Pairs of a key, such as `listen.port`, and the overrides with that key alone. */
function keysOf(overrides: YamlMap): [string, YamlMap][] {
  return Object.entries(overrides).flatMap(([section, value]): [string, YamlMap][] =>
    isMap(value)
      ? Object.entries(value).map(([key, setting]) => [
          `${section}.${key}`,
          { [section]: { [key]: setting } },
        ])
      : [[section, { [section]: value }]],
  );
}
