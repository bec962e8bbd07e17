// The arguments of a command as it declares them, and their values as it reads them.

import type { BooleanArgDef, PositionalArgDef, StringArgDef } from "citty";
import { brand } from "../brand.ts";
import { parseDuration, parseSize } from "../base/quantities.ts";
import { AppError } from "../base/errors.ts";
import type { System } from "../base/system.ts";

/**
 * citty's declaration of a flag, and what our parser adds to it. A `default` is only shown in the help: a flag that is not
 * given has no value.
 */
type Flag = ((BooleanArgDef & { type: "boolean" }) | (StringArgDef & { type: "string" })) & {
  alias?: string;
  /** May be given several times. */
  repeatable?: true;
  /** An empty value clears something, and the help says so. Of all other flags it is an error. */
  clears?: true;
  /** Gets a second flag, NAME-file, that names a file ("-" is standard input). */
  secret?: true;
};
export type Flags = Record<string, Flag>;
type ValueFlag = Extract<Flag, { type: "string" }>;
type SwitchFlag = Extract<Flag, { type: "boolean" }>;

/** A word without a flag. `many`: further words belong to it, too. */
export type Word = PositionalArgDef & { type: "positional"; many?: true };
export type Args = Record<string, Flag | Word>;

/** A flag with a value. `valueHint`: the value in the help, such as FILE. */
export const valueFlag = (
  valueHint: string,
  description: string,
  more: Omit<ValueFlag, "type" | "valueHint" | "description"> = {},
): ValueFlag => ({ type: "string", valueHint, description, ...more });

/** A flag that is true or false. */
export const switchFlag = (
  description: string,
  more: Omit<SwitchFlag, "type" | "description"> = {},
): SwitchFlag => ({ type: "boolean", description, ...more });

export const wordArg = (description: string, more: Omit<Word, "type" | "description"> = {}): Word => ({
  type: "positional",
  description,
  ...more,
});

export function flagsOf(args: Args): Flags {
  const flags: Flags = {};
  for (const [name, arg] of Object.entries(args)) if (arg.type !== "positional") flags[name] = arg;
  return flags;
}

/** Adds the NAME-file flag of each secret. */
export function withSecretFiles(args: Args): Args {
  const all: Args = {};
  for (const [name, arg] of Object.entries(args)) {
    all[name] = arg;
    if (arg.type === "positional" || arg.secret === undefined) continue;
    all[`${name}-file`] = valueFlag("FILE", `Read --${name} from a file (- is standard input)`);
  }
  return all;
}

/** The values of a command's flags: the flag wins over its environment variable. Each reader checks the form. */
export class Values {
  readonly #values: ReadonlyMap<string, readonly string[]>;
  readonly #system: Pick<System, "readStdin">;

  constructor(values: ReadonlyMap<string, readonly string[]>, system: Pick<System, "readStdin">) {
    this.#values = values;
    this.#system = system;
  }

  /** The same with further values, for flags that neither the command line nor the environment gives. */
  withDefaults(defaults: ReadonlyMap<string, readonly string[]>): Values {
    return new Values(new Map([...defaults, ...this.#values]), this.#system);
  }

  text(name: string): string | undefined {
    return this.#values.get(name)?.at(-1);
  }

  /** The first of these flags that is given. */
  firstOf(names: readonly string[]): string | undefined {
    return names.find((name) => this.text(name) !== undefined);
  }

  required(name: string): string {
    const value = this.text(name);
    if (value === undefined) throw new AppError("usage", `Missing --${name}`);
    return value;
  }

  list(name: string): readonly string[] {
    return this.#values.get(name) ?? [];
  }

  on(name: string): boolean {
    return this.text(name) === "true";
  }

  integer(name: string, min: number, max: number): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const number = Number(value);
    if (!/^\d+$/.test(value) || number < min || number > max) {
      throw new AppError("usage", `--${name} must be a whole number from ${min} to ${max}, not "${value}"`);
    }
    return number;
  }

  /** Seconds, at least `min`. */
  duration(name: string, min = 1): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const seconds = parseDuration(value);
    if (seconds === undefined || seconds < min) {
      throw new AppError("usage", `--${name} must be a duration such as 90s, 15m, 24h or 7d, not "${value}"`);
    }
    return seconds;
  }

  /** Bytes. */
  size(name: string): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const bytes = parseSize(value);
    if (bytes === undefined || bytes === 0) {
      throw new AppError("usage", `--${name} must be a size such as 500MB or 4GB, not "${value}"`);
    }
    return bytes;
  }

  choice<T extends string>(name: string, choices: readonly T[]): T | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const found = choices.find((choice) => choice === value);
    if (found === undefined)
      throw new AppError("usage", `--${name} must be one of ${choices.join(", ")}, not "${value}"`);
    return found;
  }

  /** A secret from its flag, its variable, or the file (or standard input) that --NAME-file names. */
  async secret(name: string): Promise<string | undefined> {
    const [file, given] = [this.text(`${name}-file`), this.text(name)];
    if (given !== undefined) {
      // Other users of this machine can read the command line of a process, and a server runs for months.
      const { hideWord } = await import("../platform/hide-word.ts");
      hideWord(given);
    }
    if (file === undefined) return given;
    if (given !== undefined) throw new AppError("usage", `Give --${name} or --${name}-file, not both`);
    const secret = await readNamedFile(`${name}-file`, file, this.#system);
    if (secret === "")
      throw new AppError("usage", `--${name}-file: ${file === "-" ? "standard input" : file} is empty`);
    return secret;
  }
}

/** The text of the file that a flag names ("-" is standard input), without its last line end. */
export async function readNamedFile(
  flag: string,
  file: string,
  system: Pick<System, "readStdin">,
): Promise<string> {
  const { readTextIfThere } = await import("../base/files.ts");
  const text = file === "-" ? await system.readStdin() : readTextIfThere(file);
  if (text === undefined) throw new AppError("usage", `--${flag}: there is no file ${file}`);
  return text.replace(/\r?\n$/, "");
}

/** The environment variable of a flag. */
export function variableOf(flag: string): string {
  return brand.envPrefix + flag.toUpperCase().replaceAll("-", "_");
}
