// Log lines on stderr or in a file, and the functions that make foreign text safe for a log, an error or a terminal, in
// linear time: they cut it, replace control characters, and redact it (redact.ts).

import { fromSystemError, messageOf } from "./errors.ts";
import { appendText } from "./open-file.ts";
import { redact } from "./redact.ts";
import { oneLine } from "./unprintable.ts";

export type Fields = Record<string, string | number | boolean | null | undefined>;
type Write = (message: string, fields?: Fields) => void;
export type Log = { debug: Write; info: Write; warn: Write; error: Write };

export type LogOptions = {
  verbose: boolean;
  /** Lines go to this file instead of to `write`. */
  file?: string;
  format?: "text" | "json";
  write(text: string): void;
  now(): number;
  /** Text lines begin with time and level (server, daemon). Lines in a file always do. */
  stamped: boolean;
};

/** Maximum of a foreign text in a log line, an error or an answer, in characters. Texts are cut before anything else is done. */
export const maxTextLength = 4096;
const maxLineLength = 16_384;

/** A log that cleans and cuts what it writes. Throws where its file cannot be opened. */
export function makeLog(options: LogOptions): Log {
  const { file, format = "text", stamped, verbose } = options;
  const write = file === undefined ? options.write : writeToFile(file, options.write);
  const textOf = stamped || file !== undefined ? stampedLine : terminalLine;
  const render = format === "json" ? jsonLine : textOf;
  const writer =
    (level: keyof Log): Write =>
    (message, fields = {}) => {
      const known = Object.entries<Fields[string]>(fields).filter(([, value]) => value !== undefined);
      const line = {
        time: new Date(options.now()).toISOString(),
        level,
        message: clean(message),
        fields: known.map(([key, value]) => [key, typeof value === "string" ? clean(value) : value] as const),
      };
      write(`${render(line)}\n`);
    };
  return {
    debug: verbose ? writer("debug") : () => {},
    info: writer("info"),
    warn: writer("warn"),
    error: writer("error"),
  };
}

type Line = {
  time: string;
  level: string;
  message: string;
  fields: (readonly [string, Fields[string]])[];
};

function terminalLine({ level, message, fields }: Line): string {
  return textLine(level === "warn" ? "warning: " : "", message, fields);
}

function stampedLine({ time, level, message, fields }: Line): string {
  return textLine(`${time} ${level} `, message, fields);
}

function textLine(prefix: string, message: string, fields: Line["fields"]): string {
  const words = fields.map(([key, value]) => {
    const text = String(value);
    return ` ${key}=${/^[\w.:/@+-]+$/.test(text) ? text : JSON.stringify(text)}`;
  });
  return prefix + cut(message + words.join(""), maxLineLength);
}

/** A line over the maximum loses its fields: half an object would not parse. */
function jsonLine({ time, level, message, fields }: Line): string {
  const head = { time, level, message };
  // The head twice: first for the order of the keys, then so that no field replaces one of them.
  const line = JSON.stringify({ ...head, ...Object.fromEntries(fields), ...head });
  return line.length <= maxLineLength ? line : JSON.stringify({ ...head, truncated: true });
}

/** Joins the lines of one turn of the event loop into one write: a busy server logs more lines than it should make system calls. */
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

/**
 * A function that appends lines to a log file. Throws here if the file cannot be opened, before the command changes anything. A
 * later failure, such as a full disk, must not end the command half way: lines go to `instead` until the file takes them again.
 */
function writeToFile(path: string, instead: (text: string) => void): (line: string) => void {
  const append = (text: string) => {
    try {
      appendText(path, text, 0o640);
    } catch (error) {
      throw fromSystemError(`write the log file ${path}`, error);
    }
  };
  append("");
  let isLost = false;
  return (line) => {
    try {
      append(line);
      isLost = false;
    } catch (error) {
      if (!isLost) instead(`warning: ${messageOf(error)}; its lines follow here\n`);
      isLost = true;
      instead(line);
    }
  };
}

/** A line of a table for people: cells between tabs. Foreign text in a cell cannot begin another line or cell. */
export function tableLine(cells: readonly (string | number)[]): string {
  return `${cells.map((cell) => oneLine(String(cell))).join("\t")}\n`;
}

/** Text of several lines for a terminal, without the control characters that could steer it. */
export function printable(text: string): string {
  return text.split("\n").map(withTabs).join("\n");
}

function withTabs(line: string): string {
  return line.split("\t").map(oneLine).join("\t");
}

/**
 * At most `max` characters and "…". Drops a word that the cut would split: half a token is still a secret, but redact()
 * would not recognize it.
 */
export function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  let end = max;
  if (isWordAt(text, end)) while (end > 0 && isWordAt(text, end - 1)) end -= 1;
  // Never half of a surrogate pair.
  if (/[\ud800-\udbff]/.test(text.charAt(end - 1))) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** The characters of tokens: base64, base64url, JWT, percent-encoding. */
function isWordAt(text: string, index: number): boolean {
  return /[\w.~+/=%-]/.test(text.charAt(index));
}

/** Foreign text as one line for a log, an error, an answer or a report. */
export function clean(text: string, max: number = maxTextLength): string {
  return redact(oneLine(cut(text, max)));
}

const maxFields = 100;
const maxFieldLength = 200;

/** Sentences about the fields of a refused request, bounded and safe. */
export function cleanErrors(errors: Readonly<Record<string, string[]>>): Record<string, string[]> {
  const fields = Object.entries(errors).slice(0, maxFields);
  return Object.fromEntries(
    fields.map(([field, texts]) => [
      clean(field, maxFieldLength),
      texts.slice(0, maxFields).map((text) => clean(text)),
    ]),
  );
}
