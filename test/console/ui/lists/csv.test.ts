// Lists as CSV files.

import { expect, test } from "bun:test";
import { countColumns } from "../../../../src/console/pages/server-figures.ts";
import { toCsv } from "../../../../src/console/ui/lists/csv.ts";

const columns = [{ title: "Name", text: (text: string) => text }];
const cellOf = (text: string) => toCsv([text], columns).slice('"Name"\r\n'.length);

test.each(["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠a"])(
  "a spreadsheet takes %j for a text, not for a formula",
  (text) => {
    expect(cellOf(text)).toBe(`"'${text}"\r\n`);
  },
);

test("quotes are doubled, and other texts stay", () => {
  expect(cellOf('say "hi", a=1')).toBe('"say ""hi"", a=1"\r\n');
});

test("two requests within the five minutes of a point are two in the file, not a rate of 0", () => {
  const [point] = [{ at: "2026-11-29T00:00:00Z", requests: 2, checkins: 1 }];
  const rest = { errors: 0, waiting: 0, p99_ms: null, memory_bytes: 0 };
  expect(toCsv([{ ...rest, ...point }], countColumns).split("\r\n")[1]).toBe('"2","1"');
});
