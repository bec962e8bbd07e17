// Reads what is left of a damaged organization's directory, for the commands that repair or remove it. Damage never
// makes these functions fail.

import { join } from "node:path";
import * as v from "valibot";
import { Credentials, Mode, NodeName } from "../../protocol.ts";
import { generations } from "./generations.ts";
import { readValidJson, type Organization } from "./organizations.ts";
import { finishReplacement } from "./replacement.ts";

export type Remains = Pick<Organization, "slug" | "directory"> & {
  nodeId: number | undefined;
  name: string | undefined;
  mode: Mode | undefined;
  apiBase: string | undefined;
};

const Part = <T>(key: string, schema: v.GenericSchema<unknown, T>) => v.object({ [key]: schema });

/** Looks in node-config.json first, then in the generations, newest first. */
export function readRemains(configRoot: string, slug: string): Remains {
  const directory = join(configRoot, slug);
  finishReplacement(configRoot, slug);
  const files = [directory, ...generationsOf(directory)].map((each) => join(each, "node-config.json"));
  const find = <T>(key: string, schema: v.GenericSchema<unknown, T>): T | undefined => {
    for (const file of files) {
      const found = readValidJson(file, Part(key, schema))?.[key];
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const credentials = readValidJson(join(directory, "credentials.json"), Credentials);
  return {
    slug,
    directory,
    nodeId: find("node_id", v.number()) ?? credentials?.node_id,
    name: find("name", NodeName),
    mode: find("mode", Mode),
    apiBase: credentials?.api_base,
  };
}

function generationsOf(directory: string): string[] {
  try {
    return generations(directory)
      .reverse()
      .map((name) => join(directory, "generations", `${name}`));
  } catch {
    // Not a directory.
    return [];
  }
}
