// Help texts. citty renders usage and flags; the list of commands is ours, because citty has no sections and puts every
// command's name into the usage line.

import { renderUsage } from "citty";
import { brand } from "../brand.ts";
import { allSections } from "./commands.ts";
import { daemonFlags } from "./settings.ts";
import type { Flags } from "./values.ts";

const allFlags = `See all global flags with \`${brand.executable} help flags\`.\n`;

/** Help of a command: its own flags first, then the global flags that matter to it. Help of a group: its commands. */
export async function commandHelp(name: string, globals: Flags): Promise<string> {
  const section = (await allSections()).find((each) => Object.hasOwn(each.commands, name));
  const command = section?.commands[name];
  if (command === undefined || section === undefined) return listCommands(name, globals);
  const { notes, examples } = await command.load();
  const meta = { ...command.meta, name };
  const usage = plain(await renderUsage({ meta, args: command.args }, { meta: { name: brand.executable } }));
  return [
    `${usage.trimEnd()}\n`,
    ...(notes === undefined ? [] : [`${notes.trim()}\n`]),
    `EXAMPLES\n\n${examples.map((example) => `  ${example}\n`).join("")}`,
    `GLOBAL OPTIONS\n\n${await flagLines(globals, (flag) => section.flags.includes(flag))}`,
    allFlags,
  ].join("\n");
}

/** The list of all commands, or of those that begin with `prefix`. */
export async function listCommands(prefix: string, globals: Flags): Promise<string> {
  const shown = (await allSections()).map(({ title, commands }) => ({
    title,
    rows: Object.entries(commands).filter(([name]) => prefix === "" || name.startsWith(`${prefix} `)),
  }));
  const width = Math.max(20, ...shown.flatMap(({ rows }) => rows.map(([name]) => name.length + 1)));
  const lists = shown.flatMap(({ title, rows }) => {
    const lines = rows.map(([name, { meta }]) => `  ${name.padEnd(width)} ${meta.description}\n`);
    return rows.length === 0 ? [] : [`${title}\n\n${lines.join("")}`];
  });
  const usage = `${brand.executable}${prefix === "" ? "" : ` ${prefix}`}`;
  const daemon = `       ${brand.executable} --ipc-mode socket      run the daemon\n`;
  return [
    `${brand.title}: a node manager for private overlay networks.\n`,
    `USAGE  ${usage} <command> [flags]\n${prefix === "" ? daemon : ""}`,
    ...lists,
    ...(prefix === ""
      ? [`GLOBAL OPTIONS\n\n${await flagLines(globals, (flag) => !daemonFlags.includes(flag))}`]
      : []),
    `See the flags and examples of a command with \`${usage} <command> --help\`.\n${prefix === "" ? allFlags : ""}`,
  ].join("\n");
}

/** Every global flag. */
export async function flagsHelp(globals: Flags): Promise<string> {
  return [
    `Global flags of ${brand.executable}. They may stand before or after the command.\n`,
    `Each flag has an environment variable: --config-root is ${brand.envPrefix}CONFIG_ROOT. A flag wins over its variable.\n`,
    `EVERY COMMAND\n\n${await flagLines(globals, (flag) => !daemonFlags.includes(flag))}`,
    `THE DAEMON, AND COMMANDS THAT TALK TO IT\n\n${await flagLines(globals, (flag) => daemonFlags.includes(flag))}`,
  ].join("\n");
}

/** citty's lines for the chosen flags. */
async function flagLines(flags: Flags, isChosen: (name: string) => boolean): Promise<string> {
  const args = Object.fromEntries(Object.entries(flags).filter(([name]) => isChosen(name)));
  const [, lines = ""] = plain(await renderUsage({ meta: { name: "", description: "" }, args })).split(
    "OPTIONS\n\n",
  );
  return `${lines.trimEnd()}\n`;
}

/** Without colors: help goes into pipes and golden files. */
function plain(text: string): string {
  return Bun.stripANSI(text).replace(/ +$/gm, "");
}
