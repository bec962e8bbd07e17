// The block in a hosts file: whatever the file holds, everything outside the block stays byte for byte.

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { namesIn, splitHosts, withBlock } from "../../../src/node/names/hosts-block.ts";

const lines = ["10.77.0.3 beta.acme.internal", "fd00:77::3 beta.acme.internal"];
const usual = "127.0.0.1\tlocalhost\n# mine\n::1 localhost\n";

describe("the block", () => {
  test("is put at the end, replaced, and taken out without a trace", () => {
    const first = withBlock(usual, lines);
    expect(first.startsWith(`${usual}# BEGIN overlay-agent names`)).toBe(true);
    expect(splitHosts(first)).toEqual({ rest: usual, block: lines });
    expect(withBlock(first, lines)).toBe(first);
    expect(splitHosts(withBlock(first, ["10.0.0.1 x"])).block).toEqual(["10.0.0.1 x"]);
    expect(withBlock(first, [])).toBe(usual);
  });

  test("leaves each byte of any file, also without a final line feed and after foreign additions", () => {
    const text = fc
      .array(fc.constantFrom("a", "\n", "\r\n", "\r", "#", " ", "\xe9", "\0", "127.0.0.1 x\n"))
      .map((parts) => parts.join(""));
    fc.assert(
      fc.property(text, text, (before, added) => {
        const once = withBlock(before, lines);
        expect(withBlock(once, lines)).toBe(once);
        expect(withBlock(once, [])).toBe(before);
        const kept = withBlock(once + added, []);
        // A line feed that was needed stays if another program has appended lines behind the block.
        const feed = before !== "" && !before.endsWith("\n") && added !== "" ? "\n" : "";
        expect(kept).toBe(before + feed + added);
        expect(withBlock(withBlock(once + added, lines), [])).toBe(kept);
      }),
    );
  });

  const [begin = "", , , end = ""] = withBlock("", lines).split("\n");
  test.each([
    ["the end is missing", `${usual}${begin}\n10.77.0.3 beta\n192.168.1.1 mine\n`],
    ["the beginning is missing", `${usual}10.77.0.3 beta\n${end}\n`],
    ["the beginning stands twice", `${begin}\n${begin}\n${end}\n`],
  ])("is not guessed if %s", (_, text) => {
    expect(() => withBlock(text, lines)).toThrow("marks");
    expect(() => withBlock(text, [])).toThrow("marks");
  });

  test("that was copied whole is one block again", () => {
    const once = withBlock(usual, lines);
    expect(withBlock(once + once.slice(usual.length), [])).toBe(usual);
  });
});

test("names of a hosts file are all words after the address, without comments", () => {
  expect([
    ...namesIn("127.0.0.1 localhost Beta.Acme.internal # not\n#10.0.0.1 no\n\n 10.0.0.2\tdb\n"),
  ]).toEqual(["localhost", "beta.acme.internal", "db"]);
});
