// Titles of a node's problems, which begin with a capital letter also where the words do not begin with "it" or "its".

import { expect, test } from "bun:test";
import { capitalized } from "../../../src/console/words/capitalized.ts";
import { findingWords } from "../../../src/protocol/finding-kinds.ts";

test("each kind of what a node found wrong is a title with a capital letter", () => {
  for (const words of Object.values(findingWords)) expect(capitalized(words)).toMatch(/^[A-Z]/);
  expect(capitalized("tunnels stay dead")).toBe("Tunnels stay dead");
  expect(capitalized("")).toBe("");
});
