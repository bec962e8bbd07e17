// Reads YAML with limits on size, nodes, depth and aliases. Parsing blocks the event loop, and a small text with aliases
// can expand to a large tree.

import { AppError } from "../../../base/errors.ts";
import { readTextIfThere } from "../../../base/files.ts";
import { isMap, yamlLimits, type YamlMap, type YamlValue } from "../../../base/yaml.ts";

/** Remaining limits of the tree: nodes, characters and levels. `what` names the text in errors. */
type Budget = { nodes: number; characters: number; depth: number; what: string };

/** Parses a text of the control plane or of this machine's administrator. Throws bad_configuration if it is too large. */
export function readYaml(text: string, what: string): YamlMap {
  const { bytes, nodes, depth } = yamlLimits;
  if (Buffer.byteLength(text) > bytes) throw tooLarge(what, `${bytes / 1024 / 1024} MiB`);
  // A cheap check before the parser: each value starts on its own line or, in brackets, after a bracket or comma. Up to two
  // separators are allowed for each, since a line may end with CRLF.
  const separators = count(text, ["\n", "\r", ",", "[", "{"]);
  if (separators > 2 * nodes) throw tooLarge(what, `${nodes} nodes`);
  // A merge (`<<: *a`) makes the parser copy a map at each use, with at most as many keys as there are separators.
  const aliases = count(text, [" *", "\t*", "\n*", "\r*", ",*", "[*", "{*", ":*"]);
  if (aliases * separators > maxMerged) throw repeated(what);
  return parse(text, { nodes, characters: mostCharacters(text), depth, what });
}

/** Keys that merges may copy in all. */
const maxMerged = 1_000_000;

/** Without aliases a tree is at most about as large as its text; see `spend`. */
const mostCharacters = (text: string) => 2 * text.length + 10;

/**
 * Parses a configuration in force, which this program wrote. An earlier version without limits may have accepted a larger
 * one, which must stay readable so that a smaller one can replace it.
 */
export function readOwnYaml(text: string, what: string): YamlMap {
  const characters = mostCharacters(text);
  return parse(text, { nodes: characters, characters, depth: Infinity, what });
}

/** The text of a config.yml, if it is YAML with at least one section. Undefined: it is gone or damaged. */
export function readWhole(path: string): string | undefined {
  try {
    const text = readTextIfThere(path);
    return text !== undefined && Object.keys(readOwnYaml(text, path)).length > 0 ? text : undefined;
  } catch {
    return undefined;
  }
}

function parse(text: string, budget: Budget): YamlMap {
  try {
    const tree = copyTree(Bun.YAML.parse(text) ?? {}, budget);
    if (isMap(tree)) return tree;
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("bad_configuration", `${budget.what} is not valid YAML`, { cause: error });
  }
  throw notAccepted(budget.what);
}

/** Copies the tree: with aliases one object appears in many places, and a key `__proto__` is not a plain property. */
function copyTree(value: unknown, budget: Budget): YamlValue {
  budget.nodes -= 1;
  if (budget.nodes < 0) throw tooLarge(budget.what, `${yamlLimits.nodes} nodes`);
  spend(budget, typeof value === "string" ? value.length + 1 : 1);
  if (typeof value !== "object" || value === null) {
    if (value === null || typeof value === "string" || typeof value === "boolean") return value;
    if (typeof value === "number" && Number.isSafeInteger(value)) return value;
    throw notAccepted(budget.what);
  }
  if (budget.depth <= 0) throw tooLarge(budget.what, `${yamlLimits.depth} levels`);
  const inner = (item: unknown) => {
    budget.depth -= 1;
    const copied = copyTree(item, budget);
    budget.depth += 1;
    return copied;
  };
  if (Array.isArray(value)) return value.map(inner);
  const entries = Object.entries(value).filter(([key]) => key !== "__proto__");
  for (const [key] of entries) spend(budget, key.length);
  return Object.fromEntries(entries.map(([key, item]) => [key, inner(item)]));
}

function spend(budget: Budget, characters: number): void {
  budget.characters -= characters;
  // Only aliases can make a tree larger than its text.
  if (budget.characters < 0) throw repeated(budget.what);
}

function count(text: string, parts: readonly string[]): number {
  let found = 0;
  for (const part of parts) {
    for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + 1)) found += 1;
  }
  return found;
}

function tooLarge(what: string, limit: string): AppError {
  return new AppError("bad_configuration", `${what} has more than ${limit}`, {
    hint: "Reduce rules, routes, overrides or blocked certificates. Until it fits, the present configuration stays in force.",
  });
}

function repeated(what: string): AppError {
  return new AppError("bad_configuration", `${what} uses too many aliases`);
}

function notAccepted(what: string): AppError {
  return new AppError("bad_configuration", `${what} has values that the engine does not accept`);
}
