// A list of changes to this machine, to show as a plan or to apply in order. Must not know what the changes are for.

import { existsSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { AppError, fromSystemError } from "../base/errors.ts";
import { hasMode, readTextIfThere, writeFileAtomic } from "../base/files.ts";
import { appendText } from "../base/open-file.ts";
import { planFile, planRemoved } from "../base/plan/plan-file.ts";
import type { Step } from "../base/plan/plan.ts";
import { quoteWord } from "../base/quote.ts";
import type { System } from "../base/system.ts";
import { makeOwnDirectory } from "./own-directory.ts";

export type Change =
  | { change: "file"; path: string; content: string; mode: number }
  | { change: "remove"; path: string }
  /** A setting of the kernel below /proc, which is written in place. */
  | { change: "setting"; path: string; content: string }
  | {
      change: "run";
      argv: readonly string[];
      /** Continue with the next change if this one fails. */
      mayFail?: true;
    };

/** The steps of --dry-run. Unchanged files have the change "same". */
export function planChanges(changes: readonly Change[]): Step[] {
  return changes.flatMap((change): Step | Step[] => {
    switch (change.change) {
      case "file":
        return planFile(change.path, change.content, change.mode);
      case "setting":
        return planFile(change.path, change.content, 0o644);
      case "remove":
        return planRemoved(change.path);
      case "run":
        return { step: "run", argv: change.argv };
    }
  });
}

/** Applies the changes in order and stops at the first failure. */
export async function applyChanges(changes: readonly Change[], system: Pick<System, "run">): Promise<void> {
  for (const change of changes) {
    switch (change.change) {
      case "file":
        writeIfDifferent(change.path, change.content, change.mode);
        break;
      case "remove":
        remove(change.path);
        break;
      case "setting":
        // A file of /proc cannot be replaced by a rename: a write to it sets the value, wherever it is opened.
        appendText(change.path, change.content, 0o644);
        break;
      case "run":
        await run(change.argv, change.mayFail === true, system);
    }
  }
}

function writeIfDifferent(path: string, content: string, mode: number): void {
  if (readTextIfThere(path) === content && hasMode(path, mode)) return;
  makeOwnDirectory(dirname(path), 0o755);
  writeFileAtomic(path, content, mode);
}

function remove(path: string): void {
  if (!existsSync(path)) return;
  try {
    rmSync(path);
  } catch (error) {
    throw fromSystemError(`remove ${path}`, error);
  }
}

async function run(argv: readonly string[], mayFail: boolean, system: Pick<System, "run">): Promise<void> {
  const { status, stderr, stdout, timedOut } = await system.run(argv, { timeoutMs: 90_000 });
  if (status === 0 || mayFail) return;
  const text = argv.map(quoteWord).join(" ");
  const reason = timedOut
    ? "it did not end within 90 s"
    : (stderr.trim() || stdout.trim()).split("\n").at(-1) || `exit ${status}`;
  throw new AppError("failed", `\`${text}\` failed: ${reason}`);
}
