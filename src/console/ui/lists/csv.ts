// A list as a file of comma-separated values. Pure.

export type CsvColumn<T> = { title: string; text(item: T): string };

/** A spreadsheet takes such a cell for a formula: a quote before it makes it a text. The wide signs are those of East Asia. */
const formula = /^[=+\-@＝＋－＠\t\r\n]/;

/** RFC 4180. */
export function toCsv<T>(items: readonly T[], columns: readonly CsvColumn<T>[]): string {
  const cell = (text: string) => `"${(formula.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const lines = [
    columns.map(({ title }) => title),
    ...items.map((item) => columns.map(({ text }) => text(item))),
  ];
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}
