// What a command is: a light description (flags, words, examples) and a function that loads the doer when it
// runs. Files that describe commands import nothing heavy, so that help and completion cost nothing.

import type { Log } from "../log.ts";
import type { Step } from "../plan.ts";
import type { System } from "../system.ts";
import type { Settings } from "./settings.ts";
import type { Flags, Values } from "./values.ts";

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

/** All commands by the words that call them. A command's file is loaded only when it is called. */
export type CommandTable = Record<string, { summary: string; load(): Promise<{ command: Command }> }>;

export type Context = {
  commands: CommandTable;
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
