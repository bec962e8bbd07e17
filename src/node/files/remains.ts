// What can still be read of an organization's directory, whatever has become of its files: for the commands that mend or
// remove it, which never fail because of damage.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Credentials, Mode, NodeName } from "../../protocol.ts";
import { readSound, type Organization } from "./organizations.ts";

export type Remains = Pick<Organization, "slug" | "directory"> & {
  nodeId: number | undefined;
  name: string | undefined;
  mode: Mode | undefined;
  apiBase: string | undefined;
};

const Part = <T>(key: string, schema: v.GenericSchema<unknown, T>) => v.object({ [key]: schema });

/** The file itself first, then the generations before it, the newest first. */
export function readRemains(configRoot: string, slug: string): Remains {
  const directory = join(configRoot, slug);
  const files = [directory, ...generationsOf(directory)].map((each) => join(each, "node-config.json"));
  const find = <T>(key: string, schema: v.GenericSchema<unknown, T>): T | undefined => {
    for (const file of files) {
      const found = readSound(file, Part(key, schema))?.[key];
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const credentials = readSound(join(directory, "credentials.json"), Credentials);
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
  const root = join(directory, "generations");
  try {
    return readdirSync(root)
      .filter((name) => /^\d+$/.test(name))
      .sort((a, b) => Number(b) - Number(a))
      .map((name) => join(root, name));
  } catch {
    // Not there, or something else in its place.
    return [];
  }
}
