// Reads what is left of a damaged organization's directory: for the commands that repair or remove it, and for
// revocations, which must arrive in any case.

import { join } from "node:path";
import * as v from "valibot";
import { hasCode } from "../../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import type { Step } from "../../base/plan/plan.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import { Mode, NodeName } from "../../protocol/values.ts";
import { generations } from "./generations.ts";
import { credentialsIfOwn, openOrganization, type Organization } from "./organizations.ts";
import { readValidJson } from "./json-file.ts";
import { finishReplacement } from "./replacement.ts";

/** What could still be read of an organization. Undefined: nowhere to be found. */
export type Salvaged = Pick<Organization, "slug" | "directory"> & {
  nodeId: number | undefined;
  name: string | undefined;
  mode: Mode | undefined;
  apiBase: string | undefined;
};

/** A JSON object with this key. Its other parts may be damaged. */
const Part = <T>(key: string, schema: v.GenericSchema<unknown, T>) => v.object({ [key]: schema });

/** For commands that change the organization: finishes an interrupted replacement first. Throws like finishReplacement. */
export function salvageOrganization(configRoot: string, slug: string): Salvaged {
  finishReplacement(configRoot, slug);
  return readRemains(configRoot, slug);
}

/** Looks in node-config.json first, then in its copies. Damage never makes it fail. Changes nothing. */
export function readRemains(configRoot: string, slug: string): Salvaged {
  const directory = join(configRoot, slug);
  const files = [join(directory, "node-config.json"), ...copiesOf(directory)];
  const find = <T>(key: string, schema: v.GenericSchema<unknown, T>): T | undefined => {
    for (const file of files) {
      const found = readValidJson(file, Part(key, schema))?.[key];
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const credentials = credentialsIfOwn(directory);
  return {
    slug,
    directory,
    nodeId: find("node_id", v.number()) ?? credentials?.node_id,
    name: find("name", NodeName),
    mode: find("mode", Mode),
    apiBase: credentials?.api_base,
  };
}

/**
 * Like openOrganization, but works with a copy if node-config.json is damaged. The caller must then accept revocations
 * only: no restore, no configuration. Throws bad_configuration if there is no copy either.
 */
export function openForRevocations(configRoot: string, slug: string): Organization {
  try {
    return openOrganization(configRoot, slug);
  } catch (error) {
    if (!hasCode(error, "bad_configuration")) throw error;
    const directory = join(configRoot, slug);
    const copies = copiesOf(directory)
      .map((path) => readValidJson(path, NodeConfig))
      .filter((copy) => copy?.org_slug === slug);
    const [config] = copies;
    if (config === undefined) throw error;
    const copiesOfNode = copies.filter((copy) => copy?.node_id === config.node_id);
    // An order counts if any of them signed it: the key may have changed between two copies.
    const orderKeys = copiesOfNode.flatMap((copy) => copy?.order_key ?? []);
    return { slug, directory, config, damage: { error, orderKeys } };
  }
}

/**
 * Keeps a copy of node-config.json outside of the generations: a new organization has a single generation, and with that one file
 * its order key would be lost.
 */
export function keepCopy(organization: Organization): void {
  const { path, text } = copyOf(organization);
  try {
    if (readTextIfThere(path) !== text) writeFileAtomic(path, text, 0o644);
  } catch {
    // A full disk or a read-only file system: the copy is not needed now, and the next check-in tries again.
  }
}

/** The plan of keepCopy. */
export function planCopy(organization: Organization): Step[] {
  const { path, text } = copyOf(organization);
  const stored = readTextIfThere(path);
  if (stored === text) return [];
  return [{ step: "file", path, mode: "0644", change: stored === undefined ? "created" : "changed" }];
}

function copyOf({ directory, config }: Organization): { path: string; text: string } {
  // Without the version: each change of it would rewrite the copy.
  const text = `${JSON.stringify({ ...config, config_version: 0 })}\n`;
  return { path: join(directory, copyName), text };
}

const copyName = "node-config.copy.json";

/** Copies of node-config.json, newest first. */
function copiesOf(directory: string): string[] {
  return [join(directory, copyName), ...generationsOf(directory)];
}

function generationsOf(directory: string): string[] {
  try {
    return generations(directory)
      .reverse()
      .map((name) => join(directory, "generations", `${name}`, "node-config.json"));
  } catch {
    // The path is not a directory.
    return [];
  }
}
