// Known damage of a SQLite file: found by statements, and by examinations.

import { statSync } from "node:fs";
import { AppError } from "../../../base/errors.ts";
import { damageIn, damageRemedy } from "./errors.ts";
import { isWhole } from "./files.ts";

/** A larger file is not read again while requests wait, but by the next examination. */
const maxReadAgainBytes = 64 * 1024 * 1024;
const readAgainMs = 10_000;

/**
 * Runs work that opens the file, or starts on it. Throws bad_configuration with the path if the file is damaged, and still shows it at
 * a second look: no restart mends that.
 */
export async function namingDamage<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const damage = damageIn(error);
    if (damage === undefined || isWhole(path)) throw error;
    throw new AppError("bad_configuration", `The database ${path} is damaged: ${damage}`, {
      cause: error,
      hint: damageRemedy,
    });
  }
}

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
      const found = damageIn(error);
      if (found !== undefined) learn(found);
    },
    /** The known damage; undefined without any. As long as there is some, the file is read again every ten seconds. */
    damage(): string | undefined {
      if (known === undefined || performance.now() - known.lookedAt < readAgainMs) return known?.what;
      known.lookedAt = performance.now();
      const { size = Number.POSITIVE_INFINITY } = statSync(path, { throwIfNoEntry: false }) ?? {};
      if (size <= maxReadAgainBytes && isWhole(path)) known = undefined;
      return known?.what;
    },
  };
}
