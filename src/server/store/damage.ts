// Known damage of the database: found by statements, and by examinations.

import { statSync } from "node:fs";
import { AppError, messageOf, systemErrorCode } from "../../base/errors.ts";
import type { Reader } from "./database.ts";
import { sqlStateOf } from "./postgres/refusals.ts";
import { isWhole } from "./sqlite/files.ts";
import { computed, integer, queryOne } from "./table.ts";

/** A larger file is not read again while requests wait, but by the next examination. */
const maxReadAgainBytes = 64 * 1024 * 1024;
const readAgainMs = 10_000;

/**
 * Looks again whether the damage is there: SQLite also reports a page as damaged that its disk cannot read at this
 * moment.
 */
export function watchFile(path: string) {
  let met: { what: string; at: number; lookedAt: number } | undefined;
  const meet = (what: string) => {
    const at = performance.now();
    met = { what: met?.what ?? what, at, lookedAt: met?.lookedAt ?? at };
  };
  return {
    /** `begun`: when the examination began. What a statement met since then may be new. */
    examined(found: string | undefined, begun: number): void {
      if (found !== undefined) meet(found);
      else if (met !== undefined && met.at < begun) met = undefined;
    },
    note(error: unknown): void {
      const cause = causeOf(error);
      if (/^SQLITE_(CORRUPT|NOTADB)/.test(systemErrorCode(cause) ?? "")) meet(messageOf(cause));
    },
    damage(): string | undefined {
      if (met === undefined || performance.now() - met.lookedAt < readAgainMs) return met?.what;
      met.lookedAt = performance.now();
      const { size = Number.POSITIVE_INFINITY } = statSync(path, { throwIfNoEntry: false }) ?? {};
      if (size <= maxReadAgainBytes && isWhole(path)) met = undefined;
      return met?.what;
    },
  };
}

/** How long damage of PostgreSQL is reported after it was last seen: nothing shows that it was repaired. */
const damageToldMs = 3_600_000;

/** Checksums failed for any process, also for a backup. PostgreSQL counts them until its statistics are reset. */
const checksumsSql = `SELECT checksum_failures AS failures,
    CAST(extract(epoch FROM now() - checksum_last_failure) * 1000 AS bigint) AS ago_ms
  FROM pg_stat_database WHERE datname = current_database() AND checksum_failures > 0`;
const checksums = computed({ failures: integer(), agoMs: integer() });

export function watchPages() {
  let met: { what: string; at: number } | undefined;
  return {
    async noting<T>(answer: Promise<T>): Promise<T> {
      try {
        return await answer;
      } catch (error) {
        const cause = causeOf(error);
        if (cause instanceof Error && isDamage(sqlStateOf(cause)))
          met = { what: messageOf(cause), at: performance.now() };
        throw error;
      }
    },
    async examine(reader: Pick<Reader, "get">): Promise<void> {
      const found = await queryOne(reader, checksums, checksumsSql);
      if (found === undefined) return;
      const at = performance.now() - found.agoMs;
      const what = `the checksums of pages failed ${found.failures} times`;
      if (at > (met?.at ?? Number.NEGATIVE_INFINITY)) met = { what, at };
    },
    damage: () => (met !== undefined && performance.now() - met.at < damageToldMs ? met.what : undefined),
  };
}

/** PostgreSQL's codes for a damaged page of a table (XX001) or an index (XX002). */
export const isDamage = (state: string): boolean => /^XX00[12]/.test(state);

function causeOf(error: unknown): unknown {
  return error instanceof AppError ? error.details.cause : undefined;
}
