import { expect, test } from "bun:test";
import { join } from "node:path";
import { runSync } from "../support/debian.ts";

const program = `
const { hideWord } = await import(${JSON.stringify(join(import.meta.dir, "../../src/platform/hide-word.ts"))});
const [word] = process.argv.slice(-1);
hideWord(word);
const { readFileSync } = await import("node:fs");
console.log(JSON.stringify([readFileSync("/proc/self/cmdline", "utf8"), word, process.argv.at(-1)]));
`;

test.skipIf(process.platform !== "linux")("a word leaves the process list, and stays in the program", () => {
  const word = `oaj1${"secret".repeat(40)}`;
  const printed: unknown = JSON.parse(runSync([process.execPath, "-e", program, "up", word]));
  const [line, kept, later] = Array.isArray(printed) ? printed : [];
  expect(line).not.toContain("secret");
  expect(line).toContain(`up\0${"x".repeat(word.length)}`);
  expect([kept, later]).toEqual([word, word]);
});
