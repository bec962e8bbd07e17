import { expect, test } from "bun:test";
import { quoteWord } from "../../src/base/quote.ts";

test("quoteWord() leaves plain words and quotes the rest for a POSIX shell", () => {
  const run = (word: string) =>
    Bun.spawnSync(["/bin/sh", "-c", `printf %s ${quoteWord(word)}`]).stdout.toString();
  expect(quoteWord("/usr/bin/x=1")).toBe("/usr/bin/x=1");
  for (const word of ["a b", "it's", "$(id)", "`id`", '"', "\\", "*", "é"]) expect(run(word)).toBe(word);
});
