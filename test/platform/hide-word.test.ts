import { expect, test } from "bun:test";
import { join } from "node:path";
import { runSync } from "../support/debian.ts";

const linux = process.platform === "linux";
const program = `
const { hideWord } = await import(${JSON.stringify(join(import.meta.dir, "../../src/platform/hide-word.ts"))});
const [word] = process.argv.slice(-1);
hideWord(word);
const { readFileSync } = await import("node:fs");
console.log(JSON.stringify([readFileSync("/proc/self/cmdline", "utf8"), word, process.argv.at(-1)]));
`;

test.skipIf(!linux)("a word leaves the process list, and stays in the program", () => {
  const word = `oaj1${"secret".repeat(40)}`;
  const printed: unknown = JSON.parse(runSync([process.execPath, "-e", program, "up", word]));
  const [line, kept, later] = Array.isArray(printed) ? printed : [];
  expect(line).not.toContain("secret");
  expect(line).toContain(`up\0${"x".repeat(word.length)}`);
  expect([kept, later]).toEqual([word, word]);
});

const flagged = `
const { Values } = await import(${JSON.stringify(join(import.meta.dir, "../../src/cli/values.ts"))});
const given = process.argv.at(-1).replace("--database-url=", "");
const values = new Values(new Map([["database-url", [given]]]), { readStdin: async () => "" });
const secret = await values.secret("database-url");
const { readFileSync } = await import("node:fs");
console.log(JSON.stringify([readFileSync("/proc/self/cmdline", "utf8"), secret, process.argv.at(-1)]));
`;

test.skipIf(!linux)("the value of a secret flag leaves the process list; other words stay", () => {
  const url = "postgres://me:pass-word@db/control";
  const words = ["--note", `${url}2`, `--database-url=${url}`];
  const printed: unknown = JSON.parse(runSync([process.execPath, "-e", flagged, ...words]));
  const [line, secret, later] = Array.isArray(printed) ? printed : [];
  expect(line).toEndWith(`\0--note\0${url}2\0--database-url=${"x".repeat(url.length)}\0`);
  expect([secret, later]).toEqual([url, `--database-url=${url}`]);
});
