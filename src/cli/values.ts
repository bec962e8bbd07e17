// The flags of a command as they are declared, and their values as a command reads them.

import { parseDuration } from "../duration.ts";
import { AppError } from "../errors.ts";
import type { System } from "../system.ts";

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
