// Reads the documents: their code blocks, the command lines in them, and what each command takes by its own --help.

import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../../src/cli/run.ts";
import { realSystem } from "../../src/base/system.ts";

const root = join(import.meta.dir, "../..");

/** Every document of the repository, by its path from the root. */
export const documents: readonly string[] = [
  ...new Bun.Glob("*.md").scanSync(root),
  ...new Bun.Glob("docs/**/*.md").scanSync(root),
].sort();

export function readDocument(file: string): string {
  return readFileSync(join(root, file), "utf8");
}

export type Block = {
  file: string;
  language: string;
  line: number;
  text: string;
  /** File and first line, and a number from the second one on that begins so. */
  key: string;
};

export function blocksOf(file: string): Block[] {
  const blocks: Block[] = [];
  let open: { language: string; line: number; lines: string[]; fence: string } | undefined;
  for (const [at, line] of readDocument(file).split("\n").entries()) {
    const [, fence, language = ""] = /^ *(```+)(\S*)\s*$/.exec(line) ?? [];
    if (open === undefined) {
      if (fence !== undefined) open = { language, line: at + 2, lines: [], fence };
    } else if (fence === open.fence) {
      const { lines, ...rest } = open;
      const first = lines.find((each) => each.trim() !== "")?.trim() ?? "";
      const key = `${file}: ${first}`;
      const same = blocks.filter((each) => each.key === key || each.key.startsWith(`${key} (`)).length;
      const text = lines.join("\n");
      blocks.push({ file, ...rest, text, key: same === 0 ? key : `${key} (${same + 1})` });
      open = undefined;
    } else open.lines.push(line);
  }
  if (open !== undefined) throw new Error(`${file}:${open.line}: this block has no end`);
  return blocks;
}

/** The text between single backticks, outside of blocks. */
export function inlineCode(file: string): string[] {
  const outside = readDocument(file).replace(/^ *(```+)[^]*?^ *\1\s*$/gm, "");
  return [...outside.matchAll(/`([^`]+)`/g)].map(([, code = ""]) => code.replace(/\s+/g, " "));
}

/** What `agent WORDS --help` prints on Linux. */
export async function helpOf(words: readonly string[]): Promise<string> {
  let out = "";
  const ignored = { write: () => undefined, isTerminal: false, columns: 80 };
  const stdout = { write: (text: string) => void (out += text), isTerminal: false, columns: 80 };
  const system = { ...realSystem(), platform: "linux", env: {}, stdout, stderr: ignored } as const;
  expect(await run([...words, "--help"], system)).toBe(0);
  return out;
}

export type Section = { title: string; commands: { name: string; summary: string }[] };

/** The sections of `agent help commands`. */
export async function sections(): Promise<Section[]> {
  const found: Section[] = [];
  for (const line of (await helpOf(["help", "commands"])).split("\n")) {
    if (/^[A-Z][A-Z ]+$/.test(line)) found.push({ title: line, commands: [] });
    const [, name, summary] = /^ {2}([a-z][a-z -]*?) {2,}(\S.*)$/.exec(line) ?? [];
    if (name !== undefined && summary !== undefined) found.at(-1)?.commands.push({ name, summary });
  }
  return found;
}

type Option = { value: boolean; required: boolean };
export type Takes = { options: Map<string, Option>; words: { required: boolean }[] };

/** What a command takes, read from its help. */
export function takesOf(help: string): Takes {
  const options = new Map<string, Option>();
  const words: { required: boolean }[] = [];
  let part = "";
  for (const line of help.split("\n")) {
    if (/^[A-Z][A-Z ]+$/.test(line)) part = line;
    else if (part === "ARGUMENTS") {
      if (/^ +[A-Z]+ {2,}/.test(line)) words.push({ required: line.includes("(Required)") });
    } else if (part.endsWith("OPTIONS")) {
      const [, names = ""] = /^ +((?:-\w, )?--[^ ]+(?:<[^>]*>)?)(?: {2,}|$)/.exec(line) ?? [];
      const option = { value: names.includes("="), required: line.includes("(Required)") };
      for (const name of names.replace(/=.*/, "").split(", ")) if (name !== "") options.set(name, option);
    }
  }
  return { options, words };
}

const known = new Map<string, Promise<Takes>>();

/** With the options that the help of admin commands leaves to `agent help target`. */
async function wholeHelp(name: string): Promise<string> {
  const help = await helpOf(name.split(" "));
  return help.includes("help target") ? `${help}\n${await helpOf(["help", "target"])}` : help;
}

/**
 * What is wrong with the words after `agent`, or undefined. `whole`: required flags and words are there too; else it may
 * be the beginning of a line.
 */
export async function wrongWith(words: readonly string[], whole: boolean): Promise<string | undefined> {
  const names = (await sections()).flatMap(({ commands }) => commands.map(({ name }) => name));
  const name = names
    .filter((each) => each.split(" ").every((word, at) => words[at] === word))
    .sort((a, b) => b.length - a.length)[0];
  if (name === undefined) {
    const isGroup = words.length > 0 && names.some((each) => each.startsWith(`${words.join(" ")} `));
    if (!whole && (isGroup || words.length === 0)) return undefined;
    const isHelp = names.some((each) => `${each} --help`.startsWith(`${words.slice(0, -1).join(" ")} `));
    if (words.at(-1) === "--help" && isHelp) return undefined;
    if (/^(--(help|version|ipc-mode)|help)\b/.test(words[0] ?? "")) return undefined;
    return `there is no command "${words.join(" ")}"`;
  }
  const takes = known.get(name) ?? wholeHelp(name).then(takesOf);
  known.set(name, takes);
  return wrongRest(words.slice(name.split(" ").length), await takes, whole);
}

function wrongRest(tokens: readonly string[], takes: Takes, whole: boolean): string | undefined {
  const given = new Set<string>();
  let count = 0;
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at] ?? "";
    if (!token.startsWith("-") || token === "-") {
      count++;
      continue;
    }
    const label = token.replace(/=.*/, "");
    const option = takes.options.get(label);
    if (option === undefined) return `it has no flag ${label}`;
    given.add(label);
    if (option.value && !token.includes("=") && tokens[++at] === undefined && whole)
      return `${label} needs a value`;
  }
  // Help does not say which word may be repeated: only an optional one is.
  if (count > takes.words.length && takes.words.at(-1)?.required !== false) return "it has too many words";
  if (!whole) return undefined;
  if (count < takes.words.filter(({ required }) => required).length) return "a word is missing";
  const missing = [...takes.options].find(([label, { required }]) => required && !given.has(label));
  return missing === undefined ? undefined : `${missing[0]} is missing`;
}

/** The command lines of a shell text, each in words; what is substituted or redirected is left out. */
export function commandLines(text: string): string[][] {
  return text
    .replace(/\\\n/g, " ")
    .replace(/\$\([^)]*\)/g, "VALUE")
    .split("\n")
    .map((line) => line.replace(/(^|\s)#.*/, ""))
    .flatMap((line) => line.split(/&&|\|\||[|;&]/))
    .map((line) =>
      [...line.matchAll(/'[^']*'|"[^"]*"|\S+/g)].map(([word]) => word.replace(/^['"]|['"]$/g, "")),
    )
    .map(withoutRedirections)
    .map((words) => words.slice(words.findIndex((word) => word !== "sudo" && !/^[A-Z_]+=/.test(word))))
    .filter((words) => words.length > 0);
}

function withoutRedirections(words: readonly string[]): string[] {
  return words.filter((word, at) => !/^\d?[<>]/.test(word) && !/^\d?[<>]+$/.test(words[at - 1] ?? ""));
}
