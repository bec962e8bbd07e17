// Reads YAML from outside: what a text may hold is counted before much is made of it, because parsing runs on the event
// loop and a small text can stand for a large tree.

import { AppError } from "../../errors.ts";
import { isMap, yamlLimits, type YamlMap, type YamlValue } from "../../yaml.ts";

/** What is left of the tree's nodes and of its characters; `depth`: how deep it may be. */
type Budget = { nodes: number; characters: number; depth: number; what: string };

/** A text that the control plane or this machine's administrator wrote. Throws bad_configuration where it is too large. */
export function readYaml(text: string, what: string): YamlMap {
  const { bytes, nodes, depth } = yamlLimits;
  if (Buffer.byteLength(text) > bytes) throw tooLarge(what, `${bytes / 1024 / 1024} MiB`);
  // A node begins on a line of its own or, in brackets, behind a comma: two for each, where keys are nodes too.
  const separators = count(text, ["\n", "\r", ",", "[", "{"]);
  if (separators > 2 * nodes) throw tooLarge(what, `${nodes} nodes`);
  // Merging (`<<: *a`) copies a map at each use, within the parser: at most so many keys as there are separators.
  const aliases = count(text, [" *", "\t*", "\n*", "\r*", ",*", "[*", "{*", ":*"]);
  if (aliases * separators > maxMerged) throw repeated(what);
  return parse(text, { nodes, characters: 2 * text.length + 10, depth, what });
}

const maxMerged = 1_000_000;

/**
 * A configuration in force, which this program wrote. A version before the limits may have accepted a larger one: it must
 * stay readable, so that a smaller one can replace it.
 */
export function readOwnYaml(text: string, what: string): YamlMap {
  const characters = 2 * text.length + 10;
  return parse(text, { nodes: characters, characters, depth: Infinity, what });
}

function parse(text: string, budget: Budget): YamlMap {
  try {
    const tree = take(Bun.YAML.parse(text) ?? {}, budget);
    if (isMap(tree)) return tree;
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("bad_configuration", `${budget.what} is no valid YAML`, { cause: error });
  }
  throw notTaken(budget.what);
}

/** A copy: aliases make one object appear in many places, and a key such as `__proto__` is no plain property. */
function take(value: unknown, budget: Budget): YamlValue {
  budget.nodes -= 1;
  if (budget.nodes < 0) throw tooLarge(budget.what, `${yamlLimits.nodes} nodes`);
  spend(budget, typeof value === "string" ? value.length + 1 : 1);
  if (typeof value !== "object" || value === null) {
    if (value === null || typeof value === "string" || typeof value === "boolean") return value;
    if (typeof value === "number" && Number.isSafeInteger(value)) return value;
    throw notTaken(budget.what);
  }
  if (budget.depth <= 0) throw tooLarge(budget.what, `${yamlLimits.depth} levels`);
  const inner = (item: unknown) => {
    budget.depth -= 1;
    const taken = take(item, budget);
    budget.depth += 1;
    return taken;
  };
  if (Array.isArray(value)) return value.map(inner);
  const entries = Object.entries(value).filter(([key]) => key !== "__proto__");
  for (const [key] of entries) spend(budget, key.length);
  return Object.fromEntries(entries.map(([key, item]) => [key, inner(item)]));
}

function spend(budget: Budget, characters: number): void {
  budget.characters -= characters;
  // Without aliases a text holds less than it has characters.
  if (budget.characters < 0) throw repeated(budget.what);
}

function count(text: string, parts: readonly string[]): number {
  let found = 0;
  for (const each of parts) {
    for (let at = text.indexOf(each); at !== -1; at = text.indexOf(each, at + 1)) found += 1;
  }
  return found;
}

function tooLarge(what: string, limit: string): AppError {
  return new AppError("bad_configuration", `${what} has more than ${limit}`, {
    hint: "Reduce rules, routes, overrides or blocked certificates. Until it fits, the present configuration stays.",
  });
}

function repeated(what: string): AppError {
  return new AppError("bad_configuration", `${what} repeats itself too often by aliases`);
}

function notTaken(what: string): AppError {
  return new AppError("bad_configuration", `${what} holds values that the engine cannot take`);
}
