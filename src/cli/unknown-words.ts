// The errors for commands and flags that do not exist, with what was probably meant.

import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { quoteWord } from "../base/quote.ts";
import { findMeaning, nearest } from "./suggest.ts";
import type { Flags } from "./values.ts";

/** `rest`: the words from the unknown one on. */
export function unknownCommand(
  given: string,
  prefix: string,
  names: readonly string[],
  rest: readonly string[],
): AppError {
  const words = [...prefix.split(" "), ...rest].filter((word) => word !== "");
  const known = findMeaning(words, names);
  if (known !== undefined) {
    const [command = "", ...more] = known;
    const line = [brand.executable, command, ...more.map(quoteWord)].join(" ");
    return new AppError("usage", `Unknown command "${given}"`, { hint: `Did you mean \`${line}\`?` });
  }
  const depth = prefix === "" ? 0 : prefix.split(" ").length;
  const candidates = [
    ...new Set(
      names
        .filter((each) => prefix === "" || each.startsWith(`${prefix} `))
        .map((each) =>
          each
            .split(" ")
            .slice(0, depth + 1)
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
  const isWord = error instanceof AppError && ["usage", "not_registered"].includes(error.code);
  const [command = "", ...more] = isWord ? (findMeaning(words, names) ?? []) : [];
  if (!isWord || !names.includes(command)) return error;
  const line = [brand.executable, command, ...more.map(quoteWord)].join(" ");
  return new AppError(error.code, error.message, { ...error.details, hint: `Did you mean \`${line}\`?` });
}

/** Flags of other commands and tools that mean one of ours. */
const sameFlags: Record<string, string> = {
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
  // `--group` of a command that has --add-group and --remove-group.
  const longer = names.find((name) => word.length > 1 && name.split("-").includes(word));
  const meantFlag =
    [sameFlags[word] ?? ""].find((name) => names.includes(name)) ?? longer ?? nearest(word, names);
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
