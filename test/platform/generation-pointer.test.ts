// Both ways to swap a set of files, links and copies. Both run on every system.

import { describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readTextIfThere } from "../../src/base/files.ts";
import { copyPointer, linkPointer } from "../../src/platform/generation-pointer.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const names = ["config.yml", "host.crt", "node.crt"];

function makeGeneration(directory: string, name: string, files: Record<string, string>): void {
  mkdirSync(join(directory, "generations", name), { recursive: true });
  for (const [file, text] of Object.entries(files))
    writeFileSync(join(directory, "generations", name, file), text);
}

const read = (directory: string) => names.map((name) => readTextIfThere(join(directory, name)));

for (const [kind, pointer] of [
  ["links", linkPointer],
  ["copies", copyPointer],
] as const) {
  describe(kind, () => {
    test("the files follow the active generation; a file that it lacks is deleted", () => {
      using directory = temporaryDirectory();
      const at = directory.path;
      expect(pointer.activeName(at)).toBeUndefined();
      makeGeneration(at, "1", { "config.yml": "one", "host.crt": "a", "node.crt": "n" });
      makeGeneration(at, "2", { "config.yml": "two", "host.crt": "b" });
      for (const [name, wanted] of [
        ["1", ["one", "a", "n"]],
        ["2", ["two", "b", undefined]],
        ["1", ["one", "a", "n"]],
      ] as const) {
        pointer.set(at, name);
        pointer.follow(at, names);
        expect(pointer.activeName(at)).toBe(name);
        expect(read(at)).toEqual([...wanted]);
        expect(readFileSync(join(pointer.activeDirectory(at), "config.yml"), "utf8")).toBe(wanted[0]);
      }
    });

    test("follow() completes a swap that a kill interrupted", () => {
      using directory = temporaryDirectory();
      const at = directory.path;
      makeGeneration(at, "1", { "config.yml": "one", "host.crt": "a" });
      makeGeneration(at, "2", { "config.yml": "two", "host.crt": "b" });
      pointer.set(at, "1");
      pointer.follow(at, names);
      pointer.set(at, "2");
      rmSync(join(at, "host.crt"));
      pointer.follow(at, names);
      expect(read(at)).toEqual(["two", "b", undefined]);
    });
  });
}
