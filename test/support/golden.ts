// Golden files: texts that people and scripts rely on, kept below test/golden/. A wanted change is written into them by
// running the test with GOLDEN=write, and is read in the diff like any other.

import { expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const directory = join(import.meta.dir, "../golden");

/** Compares with the file of that name; another text fails with the difference. */
export function expectGolden(name: string, text: string): void {
  const path = join(directory, name);
  if (process.env["GOLDEN"] === "write") writeFileSync(path, text);
  expect(text).toBe(readFileSync(path, "utf8"));
}
