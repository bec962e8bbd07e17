// How many nodes of each organization were online: counted every five minutes, kept for 30 days.

import { maxOnlinePoints, type OnlineHistory } from "../../api/nodes.ts";
import { formatTime } from "../../base/duration.ts";
import type { ServerOptions } from "../options.ts";
import type { Database, Reader } from "../store/database.ts";
import { onlineMs } from "../../api/values.ts";
import { computed, integer, integerOrNull, queryAll, queryNumber, queryOne } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";

const intervalMs = 300_000;
const keptDays = 30;
const dayMs = 86_400_000;
/** Nodes of one query: few enough that check-ins do not wait for it. */
const sliceSize = 2000;
type Deps = Pick<ServerOptions, "system"> & { db: Database };

const ids = organizations.pick("id");
const slice = computed({ n: integer(), online: integer(), last: integerOrNull() });
const countSlice = `SELECT count(*) AS n, max(id) AS last,
    CAST(coalesce(sum(CASE WHEN last_checkin_at > $3 THEN 1 ELSE 0 END), 0) AS bigint) AS online
  FROM (SELECT id FROM nodes WHERE org_id = $1 AND state = 'active' AND phone IS NULL AND id > $2
    ORDER BY id LIMIT ${sliceSize}) x
  LEFT JOIN sightings ON node_id = id`;

/** Counts once in each interval. An interval in which no server runs stays empty. */
export async function countOnline({ db, system }: Deps): Promise<void> {
  const now = system.now();
  const at = now - (now % intervalMs);
  const newest = "SELECT coalesce(max(at), 0) AS n FROM online_counts";
  // A time in the future comes from a clock that was ahead.
  if ((await queryNumber(db, `${newest} WHERE at <= $1`, [now])) === at) return;
  const all = await queryAll(db, ids, `SELECT ${ids.select()} FROM organizations WHERE deleted_at IS NULL`);
  for (const { id } of all) {
    const { online, active } = await countOf(db, id, now);
    if (active === 0) continue;
    await db.writeFor("rows", (tx) =>
      tx.run(
        `INSERT INTO online_counts (org_id, at, online, active) VALUES ($1, $2, $3, $4)
         ON CONFLICT (org_id, at) DO NOTHING`,
        [id, at, online, active],
      ),
    );
  }
  await db.writeFor("rows", (tx) =>
    tx.run("DELETE FROM online_counts WHERE at < $1", [at - keptDays * dayMs]),
  );
}

async function countOf(db: Reader, orgId: number, now: number): Promise<{ online: number; active: number }> {
  const sum = { online: 0, active: 0 };
  let last = 0;
  for (;;) {
    const found = await queryOne(db, slice, countSlice, [orgId, last, now - onlineMs]);
    sum.online += found?.online ?? 0;
    sum.active += found?.n ?? 0;
    if (found?.n !== sliceSize) return sum;
    last = found.last ?? 0;
  }
}

const point = computed({ at: integer(), online: integer(), active: integer() });

/** The last days; each point is the average of its interval. */
export async function onlineHistory(
  reader: Pick<Reader, "all">,
  orgId: number,
  days: number,
  now: number,
): Promise<OnlineHistory> {
  const step = Math.ceil((days * dayMs) / maxOnlinePoints / intervalMs) * intervalMs;
  const since = now - days * dayMs;
  const one = async (order: string) => {
    const sql = `SELECT at, online, active FROM online_counts WHERE org_id = $1 AND at >= $2 ORDER BY ${order} LIMIT 1`;
    const [found] = await queryAll(reader, point, sql, [orgId, since]);
    return found === undefined ? null : { at: formatTime(found.at), online: found.online };
  };
  const [least, most, last] = await Promise.all([
    one("online, at DESC"),
    one("online DESC, at DESC"),
    one("at DESC"),
  ]);
  const rows = await queryAll(
    reader,
    point,
    `SELECT at - at % $2 AS at, CAST(round(avg(online)) AS bigint) AS online, CAST(round(avg(active)) AS bigint) AS active
     FROM online_counts WHERE org_id = $1 AND at >= $3 GROUP BY at - at % $2 ORDER BY at - at % $2`,
    [orgId, step, since],
  );
  return {
    every_s: step / 1000,
    points: rows.map(({ at, online, active }) => ({ at: formatTime(at), online, active })),
    least,
    most,
    last,
  };
}
