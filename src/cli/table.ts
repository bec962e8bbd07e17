// Text output of lists and single things: a header, columns of equal width, at most as wide as the terminal. Text
// from servers and nodes loses its control characters here, before the colors are added.

import { cutTo, fitColumns, columnGap, minColumnWidth } from "../base/columns.ts";
import { oneLine } from "../base/unprintable.ts";

/**
 * The emphasis of a cell: `good` is as it should be, `bad` needs work, `wait` needs a next step, `faint` does not
 * matter now.
 */
export type Mark = "good" | "bad" | "wait" | "faint";
export type Cell = string | number | null | { text: string; mark: Mark };

export type Table = {
  columns: readonly string[];
  rows: readonly (readonly Cell[])[];
  /** The sentence for an empty list. */
  none: string;
};

const escapes: Record<Mark, string> = { good: "32", bad: "31", wait: "33", faint: "2" };

/** `width`: of the terminal; undefined: as wide as the text. */
type TextStyle = { width: number | undefined; color: boolean };

/** Facts of one thing: a name and a value on each line. */
export type Facts = readonly (readonly [name: string, value: Cell])[];

/** Values begin in one column, and stay there where they need more lines. */
export function renderFacts(facts: Facts, { width, color }: TextStyle): string {
  const indent = Math.max(0, ...facts.map(([name]) => name.length)) + columnGap.length;
  const room = width === undefined ? Infinity : Math.max(minColumnWidth, width - indent);
  return facts
    .flatMap(([name, value]) =>
      wrap(textOf(value), room).map((line, at) => {
        const label = at === 0 ? oneLine(name) : "";
        return `${label.padEnd(indent)}${colored(line, value, color)}\n`;
      }),
    )
    .join("");
}

/** Lines of at most `room` columns, split between words. A longer word, such as a fingerprint, stays whole. */
function wrap(text: string, room: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && Bun.stringWidth(longer) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

export function renderTable({ columns, rows }: Table, { width, color }: TextStyle): string {
  const lines = [columns, ...rows].map((row) => columns.map((_, at): Cell => row[at] ?? "-"));
  const natural = columns.map((_, at) =>
    Math.max(...lines.map((cells) => Bun.stringWidth(textOf(cells[at] ?? null)))),
  );
  const widths = fitColumns(natural, width);
  const shown = lines.map((cells) => {
    const texts = cells.map((cell, at) => {
      const cut = cutTo(textOf(cell), widths[at] ?? 0);
      const padding = at === cells.length - 1 ? "" : " ".repeat((widths[at] ?? 0) - Bun.stringWidth(cut));
      return colored(cut, cell, color) + padding;
    });
    return texts.join(columnGap).trimEnd();
  });
  return shown.map((line) => `${line}\n`).join("");
}

function textOf(cell: Cell): string {
  const text = oneLine(typeof cell === "object" && cell !== null ? cell.text : String(cell ?? "-")).trim();
  return text === "" ? "-" : text;
}

function colored(text: string, cell: Cell, color: boolean): string {
  if (!color || typeof cell !== "object" || cell === null) return text;
  return `\u001b[${escapes[cell.mark]}m${text}\u001b[0m`;
}
