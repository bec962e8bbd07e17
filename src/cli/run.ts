// The command line's edge: finds the command, reads its flags strictly, runs it, and turns what was thrown into a
// sentence on stderr (or an object with --json) and the documented exit status.

import { brand, keyringWord } from "../brand.ts";
import { AppError, fromSystemError } from "../errors.ts";
import { clean, cleanErrors, cut, makeLog, maxTextLength, printable, redact } from "../log.ts";
import type { System } from "../system.ts";
import type { Command } from "./command.ts";
import { Values, type Flags } from "./values.ts";
import { commands } from "./commands.ts";
import { makeOutput } from "./output.ts";
import { findCommand, parseFlags } from "./parse.ts";
import { globalFlags, readSettings } from "./settings.ts";

/** Runs one command line to its end; the exit status of decisions 2. */
export async function run(argv: readonly string[], system: System): Promise<number> {
  try {
    if (argv[0] === keyringWord) {
      // Our own short-lived child, which alone asks the keyring: in no help, and it reads no flags.
      const { answerAsKeyringChild } = await import("../node/files/keyring.ts");
      return await answerAsKeyringChild(argv.slice(1), system);
    }
    return await dispatch(argv, system);
  } catch (error) {
    return report(error, (flag) => asked(flag, argv, system.env), system);
  }
}

async function dispatch(argv: readonly string[], system: System): Promise<number> {
  const globals = globalFlags(system);
  const names = Object.keys(commands);
  const asked =
    argv[0] === "help"
      ? [...argv.slice(1), "--help"]
      : argv[0] === "--version"
        ? ["version", "--no-check", ...argv.slice(1)]
        : argv;
  const { name, rest } = findCommand(asked, names, globals);
  const entry = commands[name];
  if (entry === undefined) return withoutCommand(name, rest, globals, system);
  const { command } = await entry.load();
  return execute(command, rest, globals, system);
}

async function withoutCommand(
  prefix: string,
  rest: readonly string[],
  globals: Flags,
  system: System,
): Promise<number> {
  const { values } = parseFlags(rest, globals, [], system.env);
  if (prefix === "" && values.has("ipc-mode") && !values.has("help")) {
    const { command } = await import("./daemon.ts");
    return execute(command, rest, globals, system);
  }
  const { listCommands } = await import("./help.ts");
  if (!values.has("help")) {
    system.stderr.write(listCommands(prefix));
    return 2;
  }
  system.stdout.write(listCommands(prefix));
  return 0;
}

async function execute(
  command: Command,
  rest: readonly string[],
  globals: Flags,
  system: System,
): Promise<number> {
  const own = withSecretFiles(command.flags ?? {});
  if (rest.some((token) => token === "--help" || token === "-h")) {
    const { commandHelp } = await import("./help.ts");
    system.stdout.write(await commandHelp(command, globals));
    return 0;
  }
  const parsed = parseFlags(rest, { ...globals, ...own }, command.words ?? [], system.env);
  if (command.isService === true) {
    const { refuseUnknownVariables } = await import("./environment.ts");
    await refuseUnknownVariables(system.env, { ...globals, ...own }, commands);
  }
  const values = new Values(parsed.values, system);
  const settings = readSettings(values, system);
  const log = makeLog({
    verbose: settings.verbose,
    ...(settings.logFile === undefined ? {} : { file: settings.logFile }),
    write: system.stderr.write,
    now: system.now,
    stamped: false,
  });
  const output = makeOutput(settings, system);
  return (await command.run({ commands, system, settings, values, words: parsed.words, log, output })) ?? 0;
}

function withSecretFiles(flags: Flags): Flags {
  const files = Object.entries(flags)
    .filter(([, flag]) => flag.secret)
    .map(
      ([name]) =>
        [
          `${name}-file`,
          { type: "string", valueHint: "FILE", description: `Read --${name} from a file` },
        ] as const,
    );
  return { ...flags, ...Object.fromEntries(files) };
}

/** Whether a boolean global flag is set, for errors that come before or instead of a full reading of the line. */
function asked(flag: string, argv: readonly string[], env: Record<string, string | undefined>): boolean {
  const given = argv.find((token) => token === `--${flag}` || token.startsWith(`--${flag}=`));
  const value =
    given?.split("=")[1] ?? (given === undefined ? env[brand.envPrefix + flag.toUpperCase()] : "true");
  return value === "true" || value === "1";
}

/** Says what went wrong. Unforeseen errors are a defect of ours: the sentence says so, --verbose shows more. */
function report(error: unknown, asked: (flag: string) => boolean, system: System): number {
  const known = error instanceof AppError ? error : fromSystemError("finish the command", error);
  const message = clean(known.message);
  const hint = known.details.hint === undefined ? undefined : clean(known.details.hint);
  const errors = known.details.errors === undefined ? undefined : cleanErrors(known.details.errors);
  if (asked("json")) {
    const body = {
      code: known.code,
      message,
      ...(hint === undefined ? {} : { hint }),
      ...(errors === undefined ? {} : { errors }),
    };
    system.stdout.write(`${JSON.stringify({ error: body })}\n`);
  } else {
    const fields = Object.entries(errors ?? {}).map(([field, texts]) => `  ${field}: ${texts.join(" ")}\n`);
    const more = printable(`${fields.join("")}${hint === undefined ? "" : `${hint}\n`}`);
    system.stderr.write(`${brand.executable}: ${message}\n${more}`);
    if (!(error instanceof AppError) && error instanceof Error && asked("verbose")) {
      system.stderr.write(`${printable(redact(cut(error.stack ?? "", maxTextLength)))}\n`);
    }
  }
  return known.exitStatus;
}
