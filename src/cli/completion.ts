// `agent completion bash|zsh|fish`: a script for the shell, generated from the table of commands and their flags.

import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import type { Implementation } from "./command.ts";
import { globalFlags } from "./settings.ts";
import { flagsOf, wordArg, type Args } from "./values.ts";

const shells = ["bash", "zsh", "fish"] as const;

export const command: Implementation = {
  args: { SHELL: wordArg(shells.join(", ")) },
  examples: [
    `${brand.executable} completion bash > /etc/bash_completion.d/${brand.executable}`,
    `${brand.executable} completion zsh > "\${fpath[1]}/_${brand.executable}"`,
    `${brand.executable} completion fish > ~/.config/fish/completions/${brand.executable}.fish`,
  ],
  async run({ allCommands, system, words, output }) {
    const shell = shells.find((each) => each === words[0]);
    if (shell === undefined) {
      throw new AppError("usage", `There is no completion script for "${words[0] ?? ""}"`, {
        hint: `Choose one of ${shells.join(", ")}.`,
      });
    }
    const entries = await Promise.all(
      Object.entries(await allCommands()).map(async ([name, { meta, args }]): Promise<Entry> => {
        return { name, summary: meta.description, flags: wordsOfFlags(await args()) };
      }),
    );
    const script = { bash, zsh, fish }[shell];
    const text = script(entries, wordsOfFlags(globalFlags(system)));
    output.result({ shell, script: text }, text);
  },
};

/** A flag or command word, with its description. */
type Word = { word: string; description: string };
type Entry = { name: string; summary: string; flags: Word[] };

/** A switch that is on by default has the form that turns it off: --no-NAME. */
function wordsOfFlags(args: Args): Word[] {
  return Object.entries(flagsOf(args)).map(([name, { description = "", default: preset }]) => ({
    word: `--${preset === true ? `no-${name}` : name}`,
    description,
  }));
}

/** The words that can follow `prefix` ("" at the beginning, "overlay" in a group). */
function nextWords(entries: readonly Entry[], prefix: string): Word[] {
  const depth = prefix === "" ? 0 : prefix.split(" ").length;
  const found = new Map<string, string>();
  for (const { name, summary } of entries) {
    if (prefix !== "" && !name.startsWith(`${prefix} `)) continue;
    const word = name.split(" ")[depth] ?? "";
    // A word that is a command and also begins others has the summary of that command.
    const isLast = name.split(" ").length === depth + 1;
    if (isLast || !found.has(word)) found.set(word, isLast ? summary : `${word} …`);
  }
  return [...found].map(([word, description]) => ({ word, description }));
}

/** Every group of commands: "", "overlay", "admin", "admin user". */
function prefixes(entries: readonly Entry[]): string[] {
  const all = entries.flatMap(({ name }) => {
    const words = name.split(" ");
    return words.map((_, length) => words.slice(0, length).join(" "));
  });
  return [...new Set(all)];
}

/**
 * In the script, `key` is the group or command that was typed so far. A word that makes none of it, such as an argument, does not
 * change it.
 */
function bash(entries: readonly Entry[], globals: readonly Word[]): string {
  const cases = [
    ...prefixes(entries).map(
      (prefix) => [prefix, nextWords(entries, prefix).map(({ word }) => word)] as const,
    ),
    ...entries.map(({ name, flags }) => [name, flags.map(({ word }) => word)] as const),
  ];
  const lines = cases.map(([key, words]) => `    "${key}") words="${words.join(" ")}" ;;`);
  return `# bash completion of ${brand.executable}
_${brand.executable}() {
  local key="" word words at
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="\${COMP_WORDS[at]}"
    case "$word" in -*) ;; *) case "|${commandKeys(entries)}|" in
      *"|\${key:+$key }$word|"*) key="\${key:+$key }$word" ;;
    esac ;; esac
  done
  case "$key" in
${lines.join("\n")}
  esac
  case "\${COMP_WORDS[COMP_CWORD]}" in -*) words="$words ${globals.map(({ word }) => word).join(" ")}" ;; esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _${brand.executable} ${brand.executable}
`;
}

/** All groups and commands, joined by bars. */
function commandKeys(entries: readonly Entry[]): string {
  return [...prefixes(entries).filter((prefix) => prefix !== ""), ...entries.map(({ name }) => name)].join(
    "|",
  );
}

function zsh(entries: readonly Entry[], globals: readonly Word[]): string {
  const list = (words: readonly Word[]) =>
    words
      .map(({ word, description }) => `'${word}:${quoteFree(description).replaceAll(":", "\\:")}'`)
      .join(" ");
  const cases = [
    ...prefixes(entries).map((prefix) => [prefix, nextWords(entries, prefix)] as const),
    ...entries.map(({ name, flags }) => [name, flags] as const),
  ];
  const lines = cases.map(([key, words]) => `    "${key}") found=(${list(words)}) ;;`);
  return `#compdef ${brand.executable}
_${brand.executable}() {
  local key="" word
  local -a found
  for word in "\${(@)words[2,CURRENT-1]}"; do
    [[ "$word" == -* ]] && continue
    [[ "|${commandKeys(entries)}|" == *"|\${key:+$key }$word|"* ]] && key="\${key:+$key }$word"
  done
  case "$key" in
${lines.join("\n")}
  esac
  [[ "\${words[CURRENT]}" == -* ]] && found+=(${list(globals)})
  _describe '${brand.executable}' found || _files
}
_${brand.executable} "$@"
`;
}

function fish(entries: readonly Entry[], globals: readonly Word[]): string {
  const name = brand.executable;
  const condition = (prefix: string) =>
    prefix === ""
      ? "__fish_use_subcommand"
      : prefix
          .split(" ")
          .map((word) => `__fish_seen_subcommand_from ${word}`)
          .join("; and ");
  const words = prefixes(entries).flatMap((prefix) =>
    nextWords(entries, prefix).map(
      ({ word, description }) =>
        `complete -c ${name} -f -n '${condition(prefix)}' -a '${word}' -d '${quoteFree(description)}'`,
    ),
  );
  const flags = entries.flatMap((entry) =>
    entry.flags.map(
      ({ word, description }) =>
        `complete -c ${name} -n '${condition(entry.name)}' -l '${word.slice(2)}' -d '${quoteFree(description)}'`,
    ),
  );
  const shared = globals.map(
    ({ word, description }) => `complete -c ${name} -l '${word.slice(2)}' -d '${quoteFree(description)}'`,
  );
  return [`# fish completion of ${name}`, ...words, ...flags, ...shared, ""].join("\n");
}

/** The scripts put descriptions between single quotes. */
function quoteFree(text: string): string {
  return text.replaceAll("'", "’").replaceAll("\n", " ");
}
