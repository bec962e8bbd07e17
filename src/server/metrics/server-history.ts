// Figures of the servers over the last day: each writes one row a minute. Rows outlive restarts, and are deleted
// after a day by whichever server writes next.

import type { ServerHistory } from "../../api/servers.ts";
import { formatTime } from "../../base/quantities.ts";
import type { HeldPolls } from "../config/held-polls.ts";
import type { Meters, Totals } from "../http/meters.ts";
import type { ServerOptions } from "../options.ts";
import type { Database, Reader } from "../store/database.ts";
import { computed, integer, integerOrNull, queryAll, text } from "../store/table.ts";

export const sampleMs = 60_000;
const keptMs = 86_400_000;
/** Length of a point: a day has 288. */
const stepMs = 300_000;

type Deps = Pick<ServerOptions, "system"> & { db: Database; meters: Meters; changes: HeldPolls };

/** Returns what writes a row about the time since the row before. `id`: of this process. */
export function makeSampler(
  { db, system, meters, changes }: Deps,
  self: { id: string; host: string },
): () => Promise<void> {
  /** The totals when the last row was written. */
  let last: Totals | undefined;
  return async () => {
    const now = system.now();
    const totals = meters.totals();
    const since = (key: "requests" | "errors" | "checkins") => totals[key] - (last?.[key] ?? 0);
    const counts = totals.counts.map(({ upToMs, count }, at) => ({
      upToMs,
      count: count - (last?.counts[at]?.count ?? 0),
    }));
    const row = [self.id, now, self.host, since("requests"), since("errors"), since("checkins")];
    await db.writeFor("rows", async (tx) => {
      await tx.run(
        `INSERT INTO server_samples (server_id, at, host, requests, errors, checkins, p99_ms, waiting, memory_bytes)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (server_id, at) DO NOTHING`,
        [...row, percentile(counts, 0.99), changes.waiting(), process.memoryUsage.rss()],
      );
      await tx.run("DELETE FROM server_samples WHERE at < $1", [now - keptMs]);
    });
    // After a failed write, the next row covers this time, too.
    last = totals;
  };
}

/** The bound in ms below which this share of the requests lies; null without requests. */
export function percentile(counts: Totals["counts"], share: number): number | null {
  const all = counts.reduce((sum, { count }) => sum + count, 0);
  if (all === 0) return null;
  let below = 0;
  for (const { upToMs, count } of counts) {
    below += count;
    if (below >= share * all) return Math.ceil(upToMs);
  }
  return null;
}

const point = computed({
  host: text(),
  from: integer(),
  requests: integer(),
  errors: integer(),
  checkins: integer(),
  p99: integerOrNull(),
  waiting: integer(),
  memory: integer(),
});

const beginOf = (at: number): number => at - (at % stepMs);

/** The last day, by host. The first and the last interval are left out: they are incomplete. */
export async function serverHistory(reader: Reader, now: number): Promise<ServerHistory> {
  const sum = (column: string) => `CAST(sum(${column}) AS bigint) AS ${column}`;
  const rows = await queryAll(
    reader,
    point,
    `SELECT host, at - at % $1 AS "from", ${sum("requests")}, ${sum("errors")}, ${sum("checkins")}, max(p99_ms) AS p99,
       max(waiting) AS waiting, max(memory_bytes) AS memory
     FROM server_samples WHERE at >= $2 AND at < $3 GROUP BY host, at - at % $1 ORDER BY host, at - at % $1`,
    [stepMs, beginOf(now - keptMs + stepMs - 1), beginOf(now)],
  );
  const hosts = Map.groupBy(rows, ({ host }) => host);
  return {
    every_s: stepMs / 1000,
    hosts: [...hosts].map(([host, points]) => ({
      host,
      points: points.map(({ from, p99, memory, requests, errors, checkins, waiting }) => ({
        at: formatTime(from),
        requests,
        errors,
        checkins,
        p99_ms: p99,
        waiting,
        memory_bytes: memory,
      })),
    })),
  };
}
