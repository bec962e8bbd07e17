// The edge of the command line: finds the command, parses its flags strictly, runs it, and turns an error into a sentence
// on stderr (with --json: an object on stdout) and its exit status.

import { brand, keyringWord, pagesWord } from "../brand.ts";
import { AppError, fromSystemError } from "../base/errors.ts";
import { cut, makeLog, maxTextLength, printable } from "../base/log.ts";
import { redact } from "../base/redact.ts";
import type { System } from "../base/system.ts";
import { lazyCommand, type Command, type CommandTable, type Context } from "./command.ts";
import { allCommands, commands } from "./commands.ts";
import { errorBody } from "./error-body.ts";
import { placesOf } from "./hints.ts";
import { makeOutput } from "./output.ts";
import { findCommand, parseFlags, readBoolean, type FoundCommand } from "./parse.ts";
import { withMeaning } from "./unknown-words.ts";
import { globalFlags, logOptions, readSettings } from "./settings.ts";
import { Values, variableOf } from "./values.ts";

/** Runs one command line; the exit status. */
export async function run(argv: readonly string[], system: System): Promise<number> {
  try {
    if (argv[0] === keyringWord) {
      // Our own short-lived child process, which alone calls the keyring. It has no flags and is in no help.
      const { answerAsKeyringChild } = await import("../node/files/keyring.ts");
      return await answerAsKeyringChild(argv.slice(1), system);
    }
    if (argv[0] === pagesWord) {
      // Started by a running control plane, to examine the pages of its database.
      const { answerAsPagesChild } = await import("../server/store/sqlite/files.ts");
      return answerAsPagesChild(argv[1] ?? "", system);
    }
    return await dispatch(argv, system);
  } catch (error) {
    return report(error, (flag) => isSet(flag, argv, system.env), system);
  }
}

async function dispatch(argv: readonly string[], system: System): Promise<number> {
  const [first, ...others] = argv;
  const topic = first === "help" ? topicOf(others[0]) : undefined;
  if (topic !== undefined) return printTopic(topic, system);
  // Two other spellings: `help COMMAND` and --version.
  let line = argv;
  if (first === "help") line = [...others, "--help"];
  if (first === "--version") line = ["version", "--no-check", ...others];
  const { command, name, rest } = await find(line, system);
  if (command === undefined) return withoutCommand(name, rest, system);
  if (rest.some((token) => token === "--help" || token === "-h")) return printHelp(name, system);
  try {
    return await execute(command, rest, system);
  } catch (error) {
    // Hints at another command that these words may mean, such as an admin command.
    throw withMeaning(error, [...name.split(" "), ...rest], Object.keys(await allCommands()));
  }
}

/** The command of a command line. Loads the admin commands only if it may be one of them. */
async function find(
  line: readonly string[],
  system: System,
): Promise<FoundCommand & { command: Command | undefined }> {
  const findIn = (table: CommandTable) => {
    const found = findCommand(line, Object.keys(table), globalFlags(system));
    return { ...found, command: table[found.name] };
  };
  if (line.includes("admin")) return findIn(await allCommands());
  try {
    return findIn(commands);
  } catch {
    // An unknown command: the sentence names what was meant, which may be an admin command.
    return findIn(await allCommands());
  }
}

/** For a line without a complete command: the help of the group, or with --ipc-mode the daemon. */
async function withoutCommand(prefix: string, rest: readonly string[], system: System): Promise<number> {
  const { values } = parseFlags(rest, globalFlags(system), system.env);
  if (values.has("help")) return printHelp(prefix, system);
  if (prefix === "" && values.has("ipc-mode")) {
    const daemon = lazyCommand("Run the daemon", () => import("./node/daemon.ts"));
    return execute(daemon, rest, system);
  }
  const { groupHelp } = await import("./help.ts");
  system.stderr.write(await groupHelp(prefix, globalFlags(system)));
  return 2;
}

/** Help of a command, or of a group of commands. */
async function printHelp(name: string, system: System): Promise<number> {
  const { commandHelp } = await import("./help.ts");
  system.stdout.write(await commandHelp(name, globalFlags(system)));
  return 0;
}

const topics = ["commands", "flags", "target"] as const;
const topicOf = (word: string | undefined) => topics.find((each) => each === word);

/** Texts of `agent help commands`, `agent help flags` and `agent help target`. */
async function printTopic(topic: (typeof topics)[number], system: System): Promise<number> {
  const { flagsHelp, listCommands, targetHelp } = await import("./help.ts");
  const globals = globalFlags(system);
  const texts = {
    commands: () => listCommands("", globals),
    flags: () => flagsHelp(globals),
    target: targetHelp,
  };
  system.stdout.write(await texts[topic]());
  return 0;
}

async function execute(command: Command, rest: readonly string[], system: System): Promise<number> {
  const args = { ...globalFlags(system), ...(await command.args()) };
  const parsed = parseFlags(rest, args, system.env);
  if ((await command.load()).isService === true) {
    const { refuseUnknownVariables } = await import("./environment.ts");
    await refuseUnknownVariables(system.env, args, allCommands);
  }
  const values = new Values(parsed.values, system);
  const settings = readSettings(values, system);
  const log = makeLog(logOptions(settings, system));
  // Puts flags such as --config-root into the commands that hints show, if this command line has them.
  const place = placesOf(values);
  const output = makeOutput(settings, system, place);
  const data: Context = { allCommands, system, settings, values, words: parsed.words, log, output };
  try {
    return (await command.run({ data })) ?? 0;
  } catch (error) {
    throw withPlaces(error, place);
  }
}

/** The same error, whose hint names the places in use. */
function withPlaces(error: unknown, place: (sentence: string) => string): unknown {
  if (!(error instanceof AppError) || error.details.hint === undefined) return error;
  return new AppError(error.code, error.message, { ...error.details, hint: place(error.details.hint) });
}

/** Whether a boolean global flag is set. Also works for a command line that cannot be parsed. */
function isSet(flag: string, argv: readonly string[], env: Record<string, string | undefined>): boolean {
  const given = argv.find((token) => token === `--${flag}` || token.startsWith(`--${flag}=`));
  const [, value = "true"] = given === undefined ? ["", env[variableOf(flag)] ?? "false"] : given.split("=");
  return readBoolean(value) === true;
}

/** Prints an error. An error that is no AppError is a defect of ours: --verbose shows where it happened. */
function report(error: unknown, isFlagSet: (flag: string) => boolean, system: System): number {
  const known = error instanceof AppError ? error : fromSystemError("finish the command", error);
  const body = errorBody(known);
  if (isFlagSet("json")) {
    system.stdout.write(`${JSON.stringify({ error: body })}\n`);
  } else {
    const { message, hint, errors } = body;
    // Do not repeat a single fault that the message already names.
    const fields = Object.entries(errors ?? {}).flatMap(([field, texts]) =>
      texts
        .filter((text) => texts.length > 1 || !message.includes(text))
        .map((text) => `  ${field}: ${text}\n`),
    );
    const details = printable(`${fields.join("")}${hint === undefined ? "" : `${hint}\n`}`);
    system.stderr.write(`${brand.executable}: ${message}\n${details}`);
    if (!(error instanceof AppError) && error instanceof Error && isFlagSet("verbose")) {
      system.stderr.write(`${printable(redact(cut(error.stack ?? "", maxTextLength)))}\n`);
    }
  }
  return known.exitStatus;
}
