import { expect, test } from "bun:test";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileLog, lastLines } from "../../../src/node/engine/engine-log.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("a line above 256 KiB that comes in parts is skipped as a whole, and the next line is complete", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, "");
  const tail = fileLog(path)();
  for (let part = 0; part < 4; part++) {
    appendFileSync(path, "x".repeat(1024 * 1024));
    expect(tail.read()).toEqual([]);
  }
  appendFileSync(path, "\nwhole\n");
  expect(tail.read()).toEqual(["whole"]);
  // The part before a limit and the part after it are no line.
  for (const before of ["", "first\n"]) {
    appendFileSync(path, `${before}${"x".repeat(300 * 1024)}`);
    expect(tail.read()).toEqual(before === "" ? [] : ["first"]);
    appendFileSync(path, "SECOND-HALF\nwhole\n");
    expect(tail.read()).toEqual(["whole"]);
  }
});

test("a burst above 4 MiB gives no line that is made of halves", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, "");
  const tail = fileLog(path)();
  appendFileSync(path, "beginning of an old line ");
  expect(tail.read()).toEqual([]);
  appendFileSync(path, `${"x".repeat(5 * 1024 * 1024)}\nwhole\n`);
  expect(tail.read()).toEqual(["whole"]);
  appendFileSync(path, "x".repeat(5 * 1024 * 1024));
  expect(tail.read()).toEqual([]);
  appendFileSync(path, "end of the line\nnext\n");
  expect(tail.read()).toEqual(["next"]);
});

test("a character that two reads divide stays whole", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, "");
  const tail = fileLog(path)();
  const bytes = Buffer.from("é\n");
  appendFileSync(path, bytes.subarray(0, 1));
  expect(tail.read()).toEqual([]);
  appendFileSync(path, bytes.subarray(1));
  expect(tail.read()).toEqual(["é"]);
});

test("a log that was truncated, and grew past the position, is read from its beginning", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, "one\n");
  const tail = fileLog(path)();
  writeFileSync(path, "two\nthree\n");
  expect(tail.read()).toEqual(["two", "three"]);
  writeFileSync(path, "four\nfive\nsix\n");
  expect(tail.read()).toEqual(["four", "five", "six"]);
  appendFileSync(path, "seven\n");
  expect(tail.read()).toEqual(["seven"]);
});

test("the last lines of a log begin with a complete line: redaction would miss half a secret", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "engine.log");
  writeFileSync(path, `${"secret".repeat(1024 * 1024)}\nlast\n`);
  expect(lastLines(path, 500)).toEqual(["last"]);
  writeFileSync(path, "first\nlast\n");
  expect(lastLines(path, 500)).toEqual(["first", "last"]);
});
