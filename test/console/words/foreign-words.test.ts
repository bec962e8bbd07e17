// Texts of others in pages.

import { expect, test } from "bun:test";
import { commandsIn, unturned } from "../../../src/console/words/foreign-words.ts";

test("what stands between two backticks is a command; a single backtick is a text", () => {
  expect(commandsIn("Run `agent admin org list` again: `a`b")).toEqual([
    "Run ",
    "agent admin org list",
    " again: ",
    "a",
    "b",
  ]);
  expect(commandsIn("The name ` is refused.")).toEqual(["The name ` is refused."]);
});

test("a name turns nothing around in a text without markup", () => {
  expect(unturned("\u202egnihton\u2069\u2066 is revoked.")).toBe("gnihton is revoked.");
  expect(unturned("é ع 🙂")).toBe("é ع 🙂");
});
