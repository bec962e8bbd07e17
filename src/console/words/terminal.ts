// The equivalents of a page for a terminal: lines for a shell, and calls of the API.

import type { Method } from "../../api/endpoint.ts";
import { quoteWord } from "../../base/quote.ts";

/**
 * A line of `agent admin`. It is made of words, so that any text of others, such as an e-mail address, stays one word
 * of it.
 */
export type Words = readonly (string | number)[];
/** `command`: one command, or several; with the list `each`, one for every word of it, in whose place is `item`. */
export type Terminal = {
  command: Words | readonly Words[];
  each?: Words | undefined;
  call?: readonly [method: Method, path: string, body?: unknown];
};

/** The word in a command that stands for each word of `each`: a variable of the shell. */
export const item = '"$each"';

const quoted = (word: string | number): string => (word === item ? item : quoteWord(`${word}`));
const lineOf = (words: Words): string => `agent admin ${words.map(quoted).join(" ")}`;
/** A line for root of a machine. */
export const machineLine = (...words: Words): string => `sudo agent ${words.map(quoted).join(" ")}`;
const isOne = (command: Terminal["command"]): command is Words => !Array.isArray(command[0]);

/** The lines of a command for a POSIX shell, every word quoted. */
export function commandText({ command, each }: Terminal): string {
  const text = (isOne(command) ? [command] : command).map(lineOf).join(" && ");
  return each === undefined ? text : `for each in ${each.map(quoted).join(" ")}; do ${text}; done`;
}

/** Fields of bodies that no page shows. */
const secrets = ["client_secret", "password"];
const withoutSecrets = (key: string, value: unknown) =>
  secrets.includes(key) && value !== undefined ? "…" : value;

/** The body is quoted, too, because users paste the call behind the name of a program. */
export const callText = ([method, path, body]: NonNullable<Terminal["call"]>): string =>
  [method, path, ...(body === undefined ? [] : [JSON.stringify(body, withoutSecrets)])].map(quoted).join(" ");
