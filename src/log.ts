// Levelled log lines on stderr or into a file. Words for people, one line each; control characters of foreign
// text are replaced, and what looks like a token or a private key never passes.

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

export function makeLog(options: LogOptions): Log {
  // Made at once: a file that cannot be written is said before anything is done, not in the middle of it.
  if (options.file !== undefined) appendLine(options.file, "");
  const emit = (level: Level, message: string, fields: Fields = {}) => {
    if (level === "debug" && !options.verbose) return;
    const line = `${prefix(options, level)}${redact(oneLine(message + fieldText(fields)))}\n`;
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
    .map(
      ([key, value]) =>
        ` ${key}=${/^[\w.:/@+-]+$/.test(String(value)) ? String(value) : JSON.stringify(String(value))}`,
    )
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

/** Bearer values, JWTs, PEM private keys and 43-character tokens are replaced by their kind. */
export function redact(text: string): string {
  return text
    .replace(
      /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)/gs,
      "[private key]",
    )
    .replace(/\beyJ[\w-]+\.[\w-]+\.[\w-]+/g, "[token]")
    .replace(/\b(Bearer\s+)[\w.~+/=-]+/gi, "$1[token]")
    .replace(/(?<![\w-])[A-Za-z0-9_-]{43}(?![\w-])/g, "[token]");
}
