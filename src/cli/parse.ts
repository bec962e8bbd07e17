// Strict parsing of the command line: an unknown or repeated flag, a missing value and a surplus word are errors. citty's
// parser accepts them. A value comes from its flag, else from its AGENT_ variable.

import { AppError } from "../base/errors.ts";
import { unknownCommand, unknownFlag } from "./unknown-words.ts";
import { flagsOf, variableOf, type Args, type Flags, type Word } from "./values.ts";

export type FoundCommand = { name: string; rest: string[] };

/** Finds the command among the words and skips global flags with their values. Without a command, the name is empty. */
export function findCommand(argv: readonly string[], names: readonly string[], globals: Flags): FoundCommand {
  const rest: string[] = [];
  let name = "";
  for (let at = 0; at < argv.length; at++) {
    const token = argv[at] ?? "";
    // The words are a command, and no command of more words begins with them.
    const isComplete = names.includes(name) && !isBeginning(names, name);
    if (token === "--" || isComplete) {
      rest.push(...argv.slice(at));
      break;
    }
    if (token.startsWith("-")) {
      rest.push(token);
      const flag = findFlag(splitFlag(token).label, globals);
      if (
        flag !== undefined &&
        globals[flag.name]?.type === "string" &&
        !token.includes("=") &&
        at + 1 < argv.length
      ) {
        rest.push(argv[++at] ?? "");
      }
      continue;
    }
    const longer = name === "" ? token : `${name} ${token}`;
    if (names.includes(longer) || isBeginning(names, longer)) name = longer;
    else if (names.includes(name)) rest.push(token);
    else throw unknownCommand(name, argv.slice(at), names);
  }
  return { name, rest };
}

/** Whether these words begin a longer command. */
function isBeginning(names: readonly string[], words: string): boolean {
  const begin = `${words} `;
  return names.some((each) => each.startsWith(begin));
}

export type Parsed = { values: Map<string, string[]>; words: string[] };

/** Reads flags and words. With `--help`, missing or surplus words are no error. */
export function parseFlags(
  tokens: readonly string[],
  args: Args,
  env: Record<string, string | undefined>,
): Parsed {
  const flags = flagsOf(args);
  const values = new Map<string, string[]>();
  const words: string[] = [];
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at] ?? "";
    if (token === "--") {
      words.push(...tokens.slice(at + 1));
      break;
    }
    if (!token.startsWith("-") || token === "-") {
      words.push(token);
      continue;
    }
    const { label, attached } = splitFlag(token);
    const flag = findFlag(label, flags);
    if (flag === undefined) throw unknownFlag(label, flags);
    const { name, negated } = flag;
    const definition = flags[name];
    if (values.has(name) && definition?.repeatable === undefined)
      throw new AppError("usage", `--${name} is given twice`);
    const isBoolean = definition?.type === "boolean";
    const value = isBoolean ? booleanValue(label, attached, negated) : (attached ?? tokens[++at]);
    if (value === undefined || (attached === undefined && !isBoolean && isLongFlag(value))) {
      const hint = definition?.valueHint === undefined ? "" : `: ${definition.valueHint}`;
      throw new AppError("usage", `--${name} needs a value${hint}`);
    }
    // `clears`: an empty value of this flag removes what is stored.
    if (value === "" && definition?.clears !== true) throw emptyValue(name, definition);
    values.set(name, [...(values.get(name) ?? []), value]);
  }
  addFromEnvironment(values, flags, env);
  if (!values.has("help")) {
    checkWords(words, args);
    checkRequired(values, flags);
  }
  return { values, words };
}

/**
 * Refuse an empty value, often an unset variable of a script: the root of all organizations would become the current
 * directory.
 */
function emptyValue(name: string, definition: Flags[string] | undefined): AppError {
  const hint = definition?.valueHint === undefined ? "" : `: ${definition.valueHint}`;
  return new AppError("usage", `--${name} is empty: it needs a value${hint}`, {
    hint: `Leave --${name} out, or check the variable that it was made of.`,
  });
}

/** Splits "--name=value". No regular expressions here: each costs as much as the rest of the parsing, at every start. */
function splitFlag(token: string): { label: string; attached: string | undefined } {
  const at = token.indexOf("=");
  return at < 0
    ? { label: token, attached: undefined }
    : { label: token.slice(0, at), attached: token.slice(at + 1) };
}

function isLongFlag(token: string): boolean {
  return token.startsWith("--") && token.length > 2;
}

function findFlag(label: string, flags: Flags): { name: string; negated: boolean } | undefined {
  if (label.length === 2 && label !== "--") {
    const name = Object.keys(flags).find((each) => flags[each]?.alias === label.slice(1));
    return name === undefined ? undefined : { name, negated: false };
  }
  if (!label.startsWith("--")) return undefined;
  const name = label.slice(2);
  if (Object.hasOwn(flags, name)) return { name, negated: false };
  const positive = name.startsWith("no-") ? name.slice(3) : "";
  return Object.hasOwn(flags, positive) && flags[positive]?.type === "boolean"
    ? { name: positive, negated: true }
    : undefined;
}

function booleanValue(label: string, attached: string | undefined, negated: boolean): string {
  const value = readBoolean(attached ?? "true");
  if (value === undefined)
    throw new AppError("usage", `${label} must be true or false, not "${attached ?? ""}"`);
  return String(value !== negated);
}

/** The value of a boolean flag or of its variable. Undefined: it is neither true nor false. */
export function readBoolean(text: string): boolean | undefined {
  if (/^(true|1|yes)$/i.test(text)) return true;
  return /^(false|0|no)$/i.test(text) ? false : undefined;
}

function addFromEnvironment(
  values: Map<string, string[]>,
  flags: Flags,
  env: Record<string, string | undefined>,
): void {
  for (const [name, flag] of Object.entries(flags)) {
    const variable = variableOf(name);
    const value = env[variable];
    if (value === undefined || value === "" || values.has(name) || name === "help") continue;
    // A file that a flag names wins over the secret in a variable.
    if (flag.secret && values.has(`${name}-file`)) continue;
    if (flag.type === "boolean" && readBoolean(value) === undefined) {
      throw new AppError("usage", `${variable} must be true or false, not "${value}"`);
    }
    values.set(name, [flag.type === "boolean" ? String(readBoolean(value)) : value]);
  }
}

function checkRequired(values: ReadonlyMap<string, unknown>, flags: Flags): void {
  for (const [name, { required, valueHint, description }] of Object.entries(flags)) {
    if (required !== true || values.has(name)) continue;
    throw new AppError("usage", `Missing --${name} ${valueHint ?? ""}: ${description ?? ""}`);
  }
}

function checkWords(given: readonly string[], args: Args): void {
  const words: (Word & { name: string })[] = [];
  for (const [name, arg] of Object.entries(args)) if (arg.type === "positional") words.push({ ...arg, name });
  const extra = given[words.length];
  if (extra !== undefined && words.at(-1)?.many !== true)
    throw new AppError("usage", `Unexpected word "${extra}"`, { hint: "See --help." });
  const missing = words.find(({ required }, at) => required !== false && given[at] === undefined);
  if (missing === undefined) return;
  // The user may have left out an earlier word than the one that is missing: show what each word was taken for.
  const taken = words.flatMap(({ name }, at) => (given[at] === undefined ? [] : [`${name} "${given[at]}"`]));
  const all = words.map(({ name, required }) => (required === false ? `[${name}]` : name)).join(" ");
  const hint = `Taken as ${taken.join(", ")}. The words are ${all}.`;
  throw new AppError(
    "usage",
    `Missing ${missing.name}: ${missing.description ?? ""}`,
    taken.length === 0 ? {} : { hint },
  );
}
