// Writes a tree of files completely or not at all. Knows nothing about their content.

import { mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fromSystemError } from "../../base/errors.ts";
import { requireFreePlace, syncDirectory, writeNewFile } from "../../base/files.ts";
import { planDirectories, planFile } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";

/** `path` is relative to the directory of the tree. */
export type PlainFile = { path: string; content: string; mode: number };

/** Creates the directory, or fills an empty one. Mode 0700, because some files are keys. */
export function writeTree(directory: string, files: readonly PlainFile[]): void {
  const target = resolve(directory);
  requireFreePlace(target, "empty directory");
  const temporary = `${target}.${process.pid}.tmp`;
  try {
    rmSync(temporary, { recursive: true, force: true });
    mkdirSync(temporary, { mode: 0o700 });
    for (const { path, content, mode } of files) {
      mkdirSync(dirname(join(temporary, path)), { recursive: true, mode: 0o700 });
      writeNewFile(join(temporary, path), content, mode);
    }
    // Before the rename, so that a power cut cannot leave a tree without some of its files.
    const entries = readdirSync(temporary, { recursive: true, withFileTypes: true });
    for (const each of new Set(entries.map(({ parentPath }) => parentPath))) syncDirectory(each);
    // Also replaces an empty directory.
    renameSync(temporary, target);
    syncDirectory(dirname(target));
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    throw fromSystemError(`write ${directory}`, error);
  }
}

export function planTree(directory: string, files: readonly PlainFile[]): Step[] {
  const target = resolve(directory);
  requireFreePlace(target, "empty directory");
  const directories = [target, ...files.map(({ path }) => dirname(join(target, path)))];
  return [
    ...planDirectories(directories),
    ...files.map(({ path, content, mode }) =>
      planFile(join(target, path), content, mode, { secret: mode === 0o600 }),
    ),
  ];
}
