// Known damage of a PostgreSQL database: found by statements, and by the checksums of its pages.

import { AppError, messageOf } from "../../../base/errors.ts";
import type { Reader } from "../database.ts";
import { computed, integer, queryOne } from "../table.ts";
import { sqlStateOf } from "./refusals.ts";

/** How long damage is reported after it was last seen: nothing shows that it was repaired. */
const reportedMs = 3_600_000;

/** Checksums failed for any process, also for a backup. PostgreSQL counts them until its statistics are reset. */
const checksumsSql = `SELECT checksum_failures AS failures,
    CAST(extract(epoch FROM now() - checksum_last_failure) * 1000 AS bigint) AS ago_ms
  FROM pg_stat_database WHERE datname = current_database() AND checksum_failures > 0`;
const checksums = computed({ failures: integer(), agoMs: integer() });

/**
 * Remembers the damage that was seen last. `noting` wraps each query, `examine` runs at intervals (background.ts), `damage` says what it
 * is, for a sentence; undefined: none was seen lately.
 */
export function watchPages() {
  /** Times of `performance.now()`. */
  let last: { what: string; at: number } | undefined;
  return {
    /** The answer. If it is an error that shows damage, notes that. */
    async noting<T>(answer: Promise<T>): Promise<T> {
      try {
        return await answer;
      } catch (error) {
        const cause = error instanceof AppError ? error.details.cause : undefined;
        if (cause instanceof Error && isDamage(sqlStateOf(cause)))
          last = { what: messageOf(cause), at: performance.now() };
        throw error;
      }
    },
    async examine(reader: Reader): Promise<void> {
      const found = await queryOne(reader, checksums, checksumsSql);
      if (found === undefined) return;
      const at = performance.now() - found.agoMs;
      const what = `the checksums of pages failed ${found.failures} times`;
      if (at > (last?.at ?? Number.NEGATIVE_INFINITY)) last = { what, at };
    },
    damage: () => (last !== undefined && performance.now() - last.at < reportedMs ? last.what : undefined),
  };
}

/** PostgreSQL's codes for a damaged page of a table (XX001) or an index (XX002). */
export const isDamage = (state: string): boolean => /^XX00[12]/.test(state);
