// A tree of plain files, written whole or not at all. Knows nothing of what is in them.

import { mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { AppError, fromSystemError, systemErrorCode } from "../../errors.ts";
import { syncDirectory, writeNewFile } from "../../files.ts";
import { planFile } from "../../plan-file.ts";
import type { Step } from "../../plan.ts";

/** `path` is relative to the directory that the tree is written to. */
export type PlainFile = { path: string; content: string; mode: number };

/** Into a directory that is not there yet, or is empty. 0700, for keys are among the files. */
export function writeTree(directory: string, files: readonly PlainFile[]): void {
  const target = resolve(directory);
  refuseUsed(target);
  const beside = `${target}.${process.pid}.tmp`;
  try {
    rmSync(beside, { recursive: true, force: true });
    mkdirSync(beside, { mode: 0o700 });
    for (const { path, content, mode } of files) {
      mkdirSync(dirname(join(beside, path)), { recursive: true, mode: 0o700 });
      writeNewFile(join(beside, path), content, mode);
    }
    renameSync(beside, target);
    syncDirectory(dirname(target));
  } catch (error) {
    rmSync(beside, { recursive: true, force: true });
    throw fromSystemError(`write ${directory}`, error);
  }
}

export function planTree(directory: string, files: readonly PlainFile[]): Step[] {
  refuseUsed(resolve(directory));
  return files.map(({ path, content, mode }) =>
    planFile(join(directory, path), content, mode, { secret: mode === 0o600 }),
  );
}

function refuseUsed(directory: string): void {
  try {
    if (readdirSync(directory).length === 0) return;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return;
    throw fromSystemError(`read ${directory}`, error);
  }
  throw new AppError("conflict", `${directory} holds files already`, { hint: "Name a new directory." });
}
