// Levelled log lines on stderr or into a file, and what makes foreign text fit for a log, an error or a terminal: it is
// cut, control characters are replaced, tokens and private keys are redacted. All of it takes linear time.

import { fromSystemError } from "./errors.ts";

export type Level = "debug" | "info" | "warn" | "error";
export type Fields = Record<string, string | number | boolean | null | undefined>;

export type Log = {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
};

export type LogOptions = {
  verbose: boolean;
  /** Lines go here instead of to `write`. */
  file?: string;
  write(text: string): void;
  now(): number;
  /** With times and level words (daemon, server, file); without, bare sentences (command line). */
  stamped: boolean;
};

/** Longest foreign text in a log line, an error, an answer: longer ones are cut before anything else looks at them. */
export const maxTextLength = 4096;
const maxLineLength = 16_384;

export function makeLog(options: LogOptions): Log {
  // Made at once: a file that cannot be written is said before anything is done, not in the middle of it.
  if (options.file !== undefined) appendLine(options.file, "");
  const emit = (level: Level, message: string, fields: Fields = {}) => {
    if (level === "debug" && !options.verbose) return;
    const text = oneLine(cut(redact(cut(message, maxTextLength)) + fieldText(fields), maxLineLength));
    const line = `${prefix(options, level)}${text}\n`;
    if (options.file === undefined) options.write(line);
    else appendLine(options.file, line);
  };
  return {
    debug: (message, fields) => emit("debug", message, fields),
    info: (message, fields) => emit("info", message, fields),
    warn: (message, fields) => emit("warn", message, fields),
    error: (message, fields) => emit("error", message, fields),
  };
}

/** Joins what one turn of the event loop writes: a server under load logs more lines than it should make system calls. */
export function writeOnceATurn(write: (text: string) => void): (text: string) => void {
  let waiting = "";
  return (text) => {
    if (waiting === "") {
      setImmediate(() => {
        const lines = waiting;
        waiting = "";
        write(lines);
      });
    }
    waiting += text;
  };
}

function appendLine(path: string, line: string): void {
  try {
    // node:fs costs a third of an empty start, and most commands write no file.
    process.getBuiltinModule("node:fs").appendFileSync(path, line, { mode: 0o640 });
  } catch (error) {
    throw fromSystemError(`write the log file ${path}`, error);
  }
}

function prefix(options: LogOptions, level: Level): string {
  if (!options.stamped && options.file === undefined) return level === "warn" ? "warning: " : "";
  return `${new Date(options.now()).toISOString()} ${level} `;
}

function fieldText(fields: Fields): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => {
      const text = redact(cut(String(value), maxTextLength));
      return ` ${key}=${/^[\w.:/@+-]+$/.test(text) ? text : JSON.stringify(text)}`;
    })
    .join("");
}

/** Control characters (line breaks of an attacker among them) become spaces. */
export function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ");
}

/** Text of several lines for a terminal: what nodes and servers say of themselves must not steer it. */
export function printable(text: string): string {
  return text.split("\n").map(withTabs).join("\n");
}

function withTabs(line: string): string {
  return line.split("\t").map(oneLine).join("\t");
}

/**
 * At most `max` characters and "…". A word that the cut would split is left out as a whole: half a token is a secret too,
 * and no longer looks like one.
 */
export function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  let end = max;
  if (isWordAt(text, end)) while (end > 0 && isWordAt(text, end - 1)) end -= 1;
  // Never half of a surrogate pair.
  if (/[\ud800-\udbff]/.test(text.charAt(end - 1))) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** What tokens consist of: base64, base64url, JWTs, percent-encoded. */
function isWordAt(text: string, index: number): boolean {
  return /[\w.~+/=%-]/.test(text.charAt(index));
}

/** Foreign text as one line of an error, an answer or a report. */
export function clean(text: string, max: number = maxTextLength): string {
  return redact(oneLine(cut(text, max)));
}

const maxFields = 100;
const maxFieldLength = 200;

/** The sentences on the fields of a request that was refused. */
export function cleanErrors(errors: Readonly<Record<string, string[]>>): Record<string, string[]> {
  const fields = Object.entries(errors).slice(0, maxFields);
  return Object.fromEntries(
    fields.map(([field, texts]) => [
      clean(field, maxFieldLength),
      texts.slice(0, maxFields).map((text) => clean(text)),
    ]),
  );
}

/**
 * Bearer values, JWTs, PEM private keys and 43-character tokens are replaced by their kind. Takes linear time: no
 * expression here looks at one character from more than a bounded number of beginnings.
 */
export function redact(text: string): string {
  return withoutKeys(text)
    .replace(/\b(Bearer\s+)[\w.~+/=-]+/gi, "$1[token]")
    .replace(/[\w.-]+/g, withoutTokens);
}

const keyLabel = "[A-Z0-9 ]{0,64}PRIVATE KEY-----";
/** The end of the text ends a key, too: a cut one is a secret. */
const privateKey = new RegExp(`-----BEGIN ${keyLabel}.*?(?:-----END ${keyLabel}|$)`, "gs");
const keyEnd = new RegExp(`-----END ${keyLabel}`);

function withoutKeys(text: string): string {
  const [last = "", ...before] = text.replace(privateKey, "[private key]").split(keyEnd).reverse();
  // Where the beginning of a key is missing, as in the last lines of a log, its end gives it away.
  return [...before.reverse().map((part) => `${withoutBase64Tail(part)}[private key]`), last].join("");
}

function withoutBase64Tail(text: string): string {
  let end = text.length;
  while (end > 0 && /[\w+/=\s\\]/.test(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** `word`: as long a run of word characters, dots and hyphens as there is. */
function withoutTokens(word: string): string {
  const jwt = word.search(/(?<!\w)eyJ/);
  const isJwt = jwt >= 0 && word.slice(jwt).split(".").length > 2;
  return (isJwt ? word.slice(0, jwt) : word)
    .split(".")
    .map((part) => (part.length === 43 ? "[token]" : part))
    .join(".")
    .concat(isJwt ? "[token]" : "");
}
