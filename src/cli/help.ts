// Help texts. citty renders usage and flags; the list of commands is ours, because citty has no sections and puts every
// command's name into the usage line.

import { renderUsage } from "citty";
import { brand } from "../brand.ts";
import { allCommands, allSections, firstCommands } from "./commands.ts";
import { daemonFlags } from "./settings.ts";
import { flagsOf, withSecretFiles, type Args, type Flags } from "./values.ts";

const allFlags = `See all global flags with \`${brand.executable} help flags\`.\n`;

/** Help of a command: its own flags first, then the global flags that matter to it. Help of a group: its commands. */
export async function commandHelp(name: string, globals: Flags): Promise<string> {
  const section = (await allSections()).find((each) => Object.hasOwn(each.commands, name));
  const command = section?.commands[name];
  if (command === undefined || section === undefined) return groupHelp(name, globals);
  const { notes, examples } = await command.load();
  const meta = { ...command.meta, name };
  const all = await command.args();
  const shared = Object.keys(await sharedFlags());
  // Commands with all flags of the target show them in `help target`, not one by one.
  const isTargeted = shared.every((flag) => Object.hasOwn(all, flag));
  const args = Object.fromEntries(
    Object.entries(all).filter(([flag]) => !isTargeted || !shared.includes(flag)),
  );
  const usage = plain(await renderUsage({ meta, args }, { meta: { name: brand.executable } }));
  return [
    `${usage.trimEnd()}\n`,
    ...(notes === undefined ? [] : [`${notes.trim()}\n`]),
    `EXAMPLES\n\n${examples.map((example) => `  ${example}\n`).join("")}`,
    `GLOBAL OPTIONS\n\n${await flagLines(globals, (flag) => section.flags.includes(flag))}`,
    `${isTargeted ? targetHint : ""}${allFlags}`,
  ].join("\n");
}

const targetHint = `On which control plane it works (--profile, --api-base, --local …): \`${brand.executable} help target\`.\n`;

/** The flags that say where an admin command works: the same for almost all of them. */
async function sharedFlags(): Promise<Args> {
  const { targetFlags } = await import("./admin/target.ts");
  return withSecretFiles(targetFlags);
}

/** The flags that say where an admin command works. */
export async function targetHelp(): Promise<string> {
  return [
    `Flags of the commands of \`${brand.executable} admin\` that say on which control plane they work.\n`,
    `Without them: the profile of \`${brand.executable} login\`, else the data directory of this machine.\n`,
    `TARGET OPTIONS\n\n${await flagLines(flagsOf(await sharedFlags()), () => true)}`,
  ].join("\n");
}

/** Help of several commands: of all, of `admin`, or of those that begin with `prefix`. */
export function groupHelp(prefix: string, globals: Flags): Promise<string> {
  if (prefix === "") return firstHelp();
  return prefix === "admin" ? adminHelp() : listCommands(prefix, globals);
}

const title = `${brand.title}: a node manager for private overlay networks.\n`;

/** A heading, and rows of a name and its text. `width`: of the column of names. */
const listed = (heading: string, rows: readonly (readonly [string, string])[], width: number) =>
  `${heading}\n\n${rows.map(([name, text]) => `  ${name.padEnd(width)} ${text}\n`).join("")}`;

/** The help without a command: the first commands for a new administrator, and how to find the others. */
async function firstHelp(): Promise<string> {
  const commands = await allCommands();
  const more = [
    [`${brand.executable} help commands`, "all commands"],
    [`${brand.executable} admin --help`, "the commands of administrators, by subject"],
    [`${brand.executable} help flags`, "the flags of every command"],
    [`${brand.executable} <command> --help`, "flags and examples of one command"],
  ] as const;
  const width = Math.max(...more.map(([name]) => name.length + 1));
  return [
    title,
    `USAGE  ${brand.executable} <command> [flags]\n`,
    ...firstCommands.map((group) =>
      listed(
        group.title,
        group.names.map((name) => [name, commands[name]?.meta.description ?? ""]),
        width,
      ),
    ),
    listed("MORE", more, width),
  ].join("\n");
}

/** The subjects of the admin commands with their verbs. */
async function adminHelp(): Promise<string> {
  const verbs = new Map<string, string[]>();
  const withoutVerb: [string, string][] = [];
  for (const [name, { meta }] of Object.entries(await allCommands())) {
    const [first, subject = "", verb] = name.split(" ");
    if (first !== "admin") continue;
    if (verb === undefined) withoutVerb.push([subject, meta.description]);
    else verbs.set(subject, [...(verbs.get(subject) ?? []), verb]);
  }
  const admin = `${brand.executable} admin`;
  const width = Math.max(...[...verbs.keys()].map((subject) => subject.length + 1));
  return [
    title,
    `USAGE  ${admin} <subject> <verb> [flags]\n       ${admin} <command> [flags]\n`,
    listed(
      "SUBJECTS AND THEIR VERBS",
      [...verbs].map(([subject, verbsOfSubject]) => [subject, verbsOfSubject.join(", ")]),
      width,
    ),
    listed("COMMANDS", withoutVerb, width),
    `See what a subject's verbs do with \`${admin} <subject> --help\`, and the flags of one with \`${admin} <subject> <verb> --help\`.\n`,
  ].join("\n");
}

/** The list of all commands, or of those that begin with `prefix`. */
export async function listCommands(prefix: string, globals: Flags): Promise<string> {
  const shown = (await allSections()).map((section) => ({
    heading: section.title,
    rows: Object.entries(section.commands).filter(([name]) => prefix === "" || name.startsWith(`${prefix} `)),
  }));
  const width = Math.max(20, ...shown.flatMap(({ rows }) => rows.map(([name]) => name.length + 1)));
  const lists = shown
    .filter(({ rows }) => rows.length > 0)
    .map(({ heading, rows }) =>
      listed(
        heading,
        rows.map(([name, { meta }]) => [name, meta.description]),
        width,
      ),
    );
  const usage = `${brand.executable}${prefix === "" ? "" : ` ${prefix}`}`;
  const daemon = `       ${brand.executable} --ipc-mode socket      run the daemon\n`;
  return [
    title,
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
