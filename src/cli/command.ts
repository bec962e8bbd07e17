// The declaration of a command. Files that declare commands load their implementation inside run(), so that help and
// completion stay cheap.

import type { CommandContext, CommandDef } from "citty";
import type { Log } from "../base/log.ts";
import type { Step } from "../base/plan/plan.ts";
import type { System } from "../base/system.ts";
import type { Settings } from "./settings.ts";
import type { Facts, Table } from "./table.ts";
import { withSecretFiles, type Args, type Values } from "./values.ts";

/** The export of a command's file. */
export type Implementation = {
  args?: Args;
  /** More help: special exit statuses, limits. */
  notes?: string;
  examples: readonly string[];
  /** A long-running command with a configuration file: an unknown AGENT_ variable is refused. */
  isService?: true;
  /** Returns the exit status; nothing means 0. Failures are thrown as AppError. */
  run(context: Context): Promise<number | void>;
};

/** A citty command, which `file` exports as `name`. The file is loaded when more than the description is needed. */
export function lazyCommand<Name extends string = "command">(
  description: string,
  file: () => Promise<Record<NoInfer<Name>, Implementation>>,
  name = "command" as Name,
) {
  const load = async (): Promise<Implementation> => (await file())[name];
  return {
    meta: { description },
    load,
    args: async () => withSecretFiles((await load()).args ?? {}),
    /** `data`: the Context, from cli/run.ts. */
    run: async ({ data }: Pick<CommandContext<Args>, "data">) => (await load()).run(data),
  } satisfies CommandDef<Args> & { load: unknown };
}

export type Command = ReturnType<typeof lazyCommand>;

/** Commands by their words: "overlay install". */
export type CommandTable = Record<string, Command>;

export type Context = {
  allCommands: () => Promise<CommandTable>;
  system: System;
  settings: Settings;
  values: Values;
  /** The words of the command line after the command's own name, without flags. */
  words: readonly string[];
  log: Log;
  output: CommandOutput;
};

/** Progress, on a terminal only. */
export function sayProgress(text: string, { output, system }: Pick<Context, "output" | "system">): void {
  if (!output.json && system.stderr.isTerminal) output.say(text);
}

export type CommandOutput = {
  /** The one result of a command: the object with --json, else the text (with its final newline). */
  result(object: Record<string, unknown>, text: string): void;
  /** The result of a command that lists: the object with --json, else the table, and lines below it. */
  list(object: Record<string, unknown>, table: Table, more?: string): void;
  /** The result of a command that shows one thing: the object with --json, else its facts. */
  facts(object: Record<string, unknown>, facts: Facts): void;
  /**
   * The result that users keep as a file: the object with --json, else the text, unchanged unless it goes to a terminal. There it loses
   * its control characters, with a sentence about that.
   */
  file(object: Record<string, unknown>, text: string): void;
  /** The plan of a --dry-run. */
  plan(steps: readonly Step[]): void;
  /** Data that is printed as it arrives (logs). Not used together with result. */
  raw(text: string): void;
  /** A sentence for the user, on standard error. */
  say(text: string): void;
  json: boolean;
};
