// Lists as CSV files.

import { expect, test } from "bun:test";
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
