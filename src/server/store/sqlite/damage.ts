// Known damage of a SQLite file: found by statements, and by examinations.

import { statSync } from "node:fs";
import { AppError, messageOf } from "../../../base/errors.ts";
import { systemErrorCode } from "../../../base/system-errors.ts";
import { isWhole } from "./files.ts";

/** A larger file is not read again while requests wait, but by the next examination. */
const maxReadAgainBytes = 64 * 1024 * 1024;
const readAgainMs = 10_000;

/**
 * Looks again whether the damage is there: SQLite also reports a page as damaged that its disk cannot read at this
 * moment.
 */
export function watchFile(path: string) {
  /** `at`: when it was met last. `lookedAt`: when the file was read again last. Times of `performance.now()`. */
  let known: { what: string; at: number; lookedAt: number } | undefined;
  const learn = (what: string) => {
    const at = performance.now();
    known = { what: known?.what ?? what, at, lookedAt: known?.lookedAt ?? at };
  };
  return {
    /** `begun`: when the examination began. What a statement found since then may be new. */
    examined(found: string | undefined, begun: number): void {
      if (found !== undefined) learn(found);
      else if (known !== undefined && known.at < begun) known = undefined;
    },
    /** Looks whether the error of a statement shows damage. */
    noteError(error: unknown): void {
      const cause = error instanceof AppError ? error.details.cause : undefined;
      if (/^SQLITE_(CORRUPT|NOTADB)/.test(systemErrorCode(cause) ?? "")) learn(messageOf(cause));
    },
    /** What is damaged; undefined: nothing is known. Reads the file again every ten seconds while something is. */
    damage(): string | undefined {
      if (known === undefined || performance.now() - known.lookedAt < readAgainMs) return known?.what;
      known.lookedAt = performance.now();
      const { size = Number.POSITIVE_INFINITY } = statSync(path, { throwIfNoEntry: false }) ?? {};
      if (size <= maxReadAgainBytes && isWhole(path)) known = undefined;
      return known?.what;
    },
  };
}
