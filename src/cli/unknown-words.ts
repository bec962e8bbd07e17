// The errors for commands and flags that do not exist, with what was probably meant.

import { brand } from "../brand.ts";
import { AppError, hasCode } from "../base/errors.ts";
import { quoteWord } from "../base/quote.ts";
import { findMeaning, nearest } from "./suggest.ts";
import type { Flags } from "./values.ts";

/** `prefix`: the known words, separated by spaces. `rest`: the words from the unknown one on. `names`: all commands. */
export function unknownCommand(prefix: string, rest: readonly string[], names: readonly string[]): AppError {
  const knownWords = prefix === "" ? [] : prefix.split(" ");
  const words = [...knownWords, ...rest].filter((word) => word !== "");
  const given = [...knownWords, ...rest.slice(0, 1)].join(" ");
  const meaning = findMeaning(words, names);
  if (meaning !== undefined)
    return new AppError("usage", `Unknown command "${given}"`, { hint: didYouMeanLine(meaning) });
  const candidates = [
    ...new Set(
      names
        .filter((each) => prefix === "" || each.startsWith(`${prefix} `))
        .map((each) =>
          each
            .split(" ")
            .slice(0, knownWords.length + 1)
            .join(" "),
        ),
    ),
  ];
  return new AppError("usage", `Unknown command "${given}"`, {
    hint: `${didYouMean(given, candidates)}See \`${brand.executable}${prefix === "" ? "" : ` ${prefix}`} --help\`.`,
  });
}

/** Adds the command that refused words may mean: `peers add`. */
export function withMeaning(error: unknown, words: readonly string[], names: readonly string[]): unknown {
  if (!hasCode(error, "usage", "not_registered")) return error;
  const meaning = findMeaning(words, names);
  if (meaning === undefined || !names.includes(meaning[0])) return error;
  return new AppError(error.code, error.message, { ...error.details, hint: didYouMeanLine(meaning) });
}

/** The tuple: a command with its words, then the words that follow it (suggest.ts). */
const didYouMeanLine = ([command, ...more]: readonly string[]) =>
  `Did you mean \`${[brand.executable, command, ...more.map(quoteWord)].join(" ")}\`?`;

/** Flags of other commands and tools that mean one of ours. */
const ourFlags: Record<string, string> = {
  machines: "uses",
  limit: "lines",
  last: "lines",
  tail: "lines",
  port: "ports",
  tag: "group",
  tags: "group",
};

export function unknownFlag(label: string, flags: Flags): AppError {
  const names = Object.keys(flags);
  const word = label.replace(/^-+/, "");
  const translated = names.find((name) => name === ourFlags[word]);
  // `--group` of a command that has --add-group and --remove-group.
  const longer = names.find((name) => word.length > 1 && name.split("-").includes(word));
  const meantFlag = translated ?? longer ?? nearest(word, names);
  const hint = meantFlag === undefined ? "" : `Did you mean "--${meantFlag}"? `;
  return new AppError("usage", `Unknown flag ${label}`, { hint: `${hint}See --help.` });
}

/** Suggests commands whose last word is similar: `delete` is not a typing error for `create`. */
function didYouMean(given: string, candidates: readonly string[]): string {
  const lastOf = (words: string) => words.split(" ").at(-1) ?? "";
  const word = lastOf(given);
  const candidate = nearest(word, candidates.map(lastOf), Math.max(1, Math.floor(word.length / 3)));
  const found = candidates.find((each) => candidate !== undefined && lastOf(each) === candidate);
  return found === undefined ? "" : `Did you mean "${found}"? `;
}
