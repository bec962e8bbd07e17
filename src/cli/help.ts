// Help texts: the list of commands, and a command's usage rendered by citty from its description.

import { defineCommand, renderUsage, type ArgsDef } from "citty";
import { brand } from "../brand.ts";
import type { Command } from "./command.ts";
import type { Flags } from "./values.ts";
import { sections } from "./commands.ts";

/** Help of one command, or of a group ("overlay") where `command` is undefined. */
export async function commandHelp(command: Command, globals: Flags): Promise<string> {
  const usage = await renderUsage(
    defineCommand({
      meta: { name: command.name, description: command.summary },
      args: { ...positionals(command), ...toCitty(command.flags ?? {}) },
    }),
    defineCommand({ meta: { name: brand.executable } }),
  );
  const global = await renderUsage(
    defineCommand({ meta: { name: "", description: "" }, args: toCitty(globals) }),
  );
  const globalOptions = strip(global).split("OPTIONS\n").at(-1) ?? "";
  const notes = command.notes === undefined ? "" : `${command.notes.trim()}\n\n`;
  const examples = command.examples.map((example) => `  ${example}\n`).join("");
  return `${strip(usage).trimEnd()}\n\n${notes}EXAMPLES\n\n${examples}\nGLOBAL OPTIONS\n${globalOptions.trimEnd()}\n`;
}

/** The list of commands, whole or those that begin with `prefix`. */
export function listCommands(prefix = ""): string {
  const lines = sections.flatMap(({ title, commands }) => {
    const rows = Object.entries(commands).filter(([name]) => prefix === "" || name.startsWith(`${prefix} `));
    if (rows.length === 0) return [];
    return [`${title}\n`, ...rows.map(([name, { summary }]) => `  ${name.padEnd(20)} ${summary}`), ""];
  });
  const usage = `${brand.executable}${prefix === "" ? "" : ` ${prefix}`}`;
  return [
    `${brand.title}: a node manager for private overlay networks.\n`,
    `USAGE  ${usage} <command> [flags]`,
    ...(prefix === "" ? [`       ${usage} --ipc-mode socket      run as the daemon`] : []),
    "",
    ...lines,
    `Use \`${usage} <command> --help\` for the flags and examples of a command.`,
    "",
  ].join("\n");
}

function positionals(command: Command): ArgsDef {
  return Object.fromEntries(
    (command.words ?? []).map((word) => [
      word.name,
      { type: "positional" as const, description: word.description, required: word.required === true },
    ]),
  );
}

function toCitty(flags: Flags): ArgsDef {
  return Object.fromEntries(
    Object.entries(flags).flatMap(([name, flag]) => {
      const shared = {
        description: flag.description + (flag.repeatable ? " (may be repeated)" : ""),
        ...(flag.valueHint === undefined ? {} : { valueHint: flag.valueHint }),
        ...(flag.alias === undefined ? {} : { alias: flag.alias }),
      };
      const own =
        flag.type === "boolean"
          ? { type: "boolean" as const, ...shared, ...(flag.default === true ? { default: true } : {}) }
          : {
              type: "string" as const,
              ...shared,
              ...(typeof flag.default === "string" ? { default: flag.default } : {}),
              ...(flag.required === true ? { required: true } : {}),
            };
      const file = {
        type: "string" as const,
        valueHint: "FILE",
        description: `Read --${name} from a file, - is standard input`,
      };
      return flag.secret
        ? [
            [name, own],
            [`${name}-file`, file],
          ]
        : [[name, own]];
    }),
  );
}

/** Help goes into pipes and golden files: the words matter, not the colours. */
function strip(text: string): string {
  return Bun.stripANSI(text).replace(/ +$/gm, "");
}
