import { expect, test } from "bun:test";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileLog, lastLines } from "../../../src/node/engine/engine-log.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("an unfinished line is cut at 256 KiB, and the next line is complete", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, "");
  const tail = fileLog(path)();
  for (let part = 0; part < 4; part++) {
    appendFileSync(path, "x".repeat(1024 * 1024));
    expect(tail.read()).toEqual([]);
  }
  appendFileSync(path, "\nwhole\n");
  expect(tail.read().map((line) => line.length)).toEqual([256 * 1024, 5]);
});

test("the last lines of a log begin with a complete line: redaction would miss half a secret", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, `${"secret".repeat(1024 * 1024)}\nlast\n`);
  expect(lastLines(path, 500)).toEqual(["last"]);
  writeFileSync(path, "first\nlast\n");
  expect(lastLines(path, 500)).toEqual(["first", "last"]);
});
