// What a command is: a light description (flags, words, examples) and a function that loads the doer when it
// runs. Files that describe commands import nothing heavy, so that help and completion cost nothing.

import { AppError } from "../errors.ts";
import { parseDuration } from "../duration.ts";
import type { Log } from "../log.ts";
import type { Step } from "../plan.ts";
import type { System } from "../system.ts";
import type { Settings } from "./settings.ts";

export type Flag = {
  type: "boolean" | "string";
  description: string;
  /** What stands for the value in help: URL, SLUG, N. */
  valueHint?: string;
  alias?: string;
  /** Shown in help; booleans with default true get a --no- form. */
  default?: string | boolean;
  /** Said in help; `Values.required` refuses to go on without it. */
  required?: true;
  /** May be given several times. */
  repeatable?: true;
  /** A secret also gets a NAME-file flag ("-" is standard input). */
  secret?: true;
};

export type Flags = Record<string, Flag>;

export type Word = { name: string; description: string; required?: boolean; many?: boolean };

export type Command = {
  /** The words that call it: "overlay install". */
  name: string;
  summary: string;
  /** More for --help: exit statuses that are special, what it does not do. */
  notes?: string;
  flags?: Flags;
  words?: readonly Word[];
  examples: readonly string[];
  /** Runs for long, with settings that somebody wrote down: an unknown variable of ours is refused. */
  isService?: true;
  /** The exit status, 0 if it returns nothing. Failures are thrown as AppError. */
  run(context: Context): Promise<number | void>;
};

export type Context = {
  system: System;
  settings: Settings;
  values: Values;
  words: readonly string[];
  log: Log;
  output: CommandOutput;
};

export type CommandOutput = {
  /** The one result of a command: the object with --json, else the text (with its final newline). */
  result(object: Record<string, unknown>, text: string): void;
  /** The plan of a --dry-run. */
  plan(steps: readonly Step[]): void;
  /** Data printed as it comes (logs, completion scripts); not used together with result. */
  raw(text: string): void;
  /** A sentence for the person, on stderr. */
  say(text: string): void;
  json: boolean;
};

/** The values of one command's flags: flag before variable before default. Readers check the shape. */
export class Values {
  readonly #values: ReadonlyMap<string, readonly string[]>;
  readonly #system: Pick<System, "readStdin">;

  constructor(values: ReadonlyMap<string, readonly string[]>, system: Pick<System, "readStdin">) {
    this.#values = values;
    this.#system = system;
  }

  text(name: string): string | undefined {
    return this.#values.get(name)?.at(-1);
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
      throw new AppError("usage", `--${name} takes a whole number from ${min} to ${max}, not "${value}"`);
    }
    return number;
  }

  /** Seconds. */
  duration(name: string): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const seconds = parseDuration(value);
    if (seconds === undefined) {
      throw new AppError("usage", `--${name} takes a duration such as 90s, 15m, 24h or 7d, not "${value}"`);
    }
    return seconds;
  }

  choice<T extends string>(name: string, choices: readonly T[]): T | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const found = choices.find((choice) => choice === value);
    if (found === undefined)
      throw new AppError("usage", `--${name} is one of ${choices.join(", ")}, not "${value}"`);
    return found;
  }

  /** A secret from its flag, its variable, or the file (or standard input) named by --NAME-file. */
  async secret(name: string): Promise<string | undefined> {
    const file = this.text(`${name}-file`);
    if (file === undefined) return this.text(name);
    if (this.text(name) !== undefined)
      throw new AppError("usage", `Give --${name} or --${name}-file, not both`);
    const { readTextIfThere } = await import("../files.ts");
    const text = file === "-" ? await this.#system.readStdin() : readTextIfThere(file);
    if (text === undefined) throw new AppError("usage", `--${name}-file: there is no file ${file}`);
    const secret = text.replace(/\r?\n$/, "");
    if (secret === "")
      throw new AppError("usage", `--${name}-file: ${file === "-" ? "standard input" : file} is empty`);
    return secret;
  }
}
