// Computes figures of the paths of all organizations, for the metrics.

import type { Path } from "../../api/paths/paths.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, text } from "../store/table.ts";
import { paths } from "../store/tables/paths.ts";

const wordPick = paths.pick("path");

/** Upper bounds of round trips, microseconds. */
const boundsUs = [1000, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000];

export type PathFigures = {
  slug: string;
  counts: Record<Path["path"], number>;
  /** Pairs of nodes whose probes are no longer answered, counted once for both sides. */
  broken: number;
  /** A histogram as Prometheus has it: how many paths have a round trip up to each bound; the sum of all, in seconds. */
  roundTrips: { bounds: readonly { seconds: number; count: number }[]; count: number; sum: number };
};

const perBucket = computed({
  orgId: integer(),
  slug: text(),
  n: integer(),
  sum: integer(),
  bucket: integer(),
});
const pairs = computed({ orgId: integer(), n: integer() });

/** The index of the first bound that the round trip does not exceed; the number of bounds above all, -1 without a round trip. */
const bucketOf = `CASE WHEN rtt_us IS NULL THEN -1 ${boundsUs
  .map((bound, index) => `WHEN rtt_us <= ${bound} THEN ${index}`)
  .join(" ")} ELSE ${boundsUs.length} END`;

/** Figures of all organizations with reports. Reads every row: path-reports.ts keeps the result. */
export async function pathFigures(reader: Reader): Promise<PathFigures[]> {
  // CAST: PostgreSQL sums up a BIGINT as NUMERIC, which is read as a text.
  const rows = await reader.all(
    `SELECT x.org_id, o.slug, x.path, x.bucket, x.n, x.sum FROM
       (SELECT org_id, path, ${bucketOf} AS bucket, count(*) AS n, CAST(coalesce(sum(rtt_us), 0) AS bigint) AS sum
        FROM paths GROUP BY org_id, path, ${bucketOf}) x
     JOIN organizations o ON o.id = x.org_id WHERE o.deleted_at IS NULL ORDER BY o.slug, x.path, x.bucket`,
  );
  const broken = await queryAll(
    reader,
    pairs,
    // By the nodes' ids: one side may name the other by its IPv6 address, and that one this one by its IPv4 address.
    `WITH ends AS (SELECT id, org_id, ip AS address FROM nodes WHERE state = 'active'
       UNION ALL SELECT id, org_id, ip6 FROM nodes WHERE state = 'active' AND ip6 IS NOT NULL)
     SELECT org_id, count(*) AS n FROM
       (SELECT DISTINCT x.org_id, CASE WHEN n.id < p.id THEN n.id ELSE p.id END AS one,
          CASE WHEN n.id < p.id THEN p.id ELSE n.id END AS other
        FROM paths x JOIN nodes n ON n.id = x.node_id JOIN ends p ON p.org_id = x.org_id AND p.address = x.peer
        WHERE x.probe = 'broken' AND n.state = 'active') pairs
     GROUP BY org_id`,
  );
  const figures = new Map<number, PathFigures>();
  for (const row of rows) {
    const { orgId, slug, n, sum, bucket } = perBucket.parse(row);
    const found = figures.getOrInsertComputed(orgId, () =>
      noFigures(slug, broken.find((each) => each.orgId === orgId)?.n ?? 0),
    );
    found.counts[wordPick.parse(row).path] += n;
    if (bucket < 0) continue;
    const { roundTrips } = found;
    roundTrips.count += n;
    roundTrips.sum += sum / 1e6;
    for (const each of roundTrips.bounds.slice(bucket)) each.count += n;
  }
  return [...figures.values()];
}

function noFigures(slug: string, broken: number): PathFigures {
  return {
    slug,
    counts: { direct: 0, relayed: 0, none: 0, unknown: 0 },
    broken,
    roundTrips: { bounds: boundsUs.map((each) => ({ seconds: each / 1e6, count: 0 })), count: 0, sum: 0 },
  };
}
