// How many nodes of each organization were online, and how they reached each other: counted every five minutes, kept for 30 days.

import { maxOnlinePoints, type OnlineHistory } from "../../api/history/online-history.ts";
import { formatTime } from "../../base/quantities.ts";
import type { GroupPathSums } from "../paths/group-paths.ts";
import { forAll, inTurn } from "../for-all.ts";
import type { ServerOptions } from "../options.ts";
import type { Database, Reader } from "../store/database.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";
import { onlineCounts } from "../store/tables/online-counts.ts";

const intervalMs = 300_000;
const keptDays = 30;
const dayMs = 86_400_000;
type Deps = Pick<ServerOptions, "system"> & { db: Database; groupPaths: GroupPathSums };

const countedPick = organizations.pick("id", "pathReports");
/** Counts once in each interval, for all organizations. An interval in which no server runs stays empty. */
export async function countOnline({ db, system, groupPaths }: Deps): Promise<void> {
  const now = system.now();
  const at = now - (now % intervalMs);
  // Ignores times in the future: they come from a clock that was ahead.
  const newest = "SELECT coalesce(max(at), 0) AS n FROM online_counts WHERE at <= $1";
  if ((await queryNumber(db, newest, [now])) === at) return;
  const sql = `SELECT ${countedPick.select()} FROM organizations WHERE deleted_at IS NULL`;
  const count = async (org: ReturnType<typeof countedPick.parse>) => {
    const { totals } = (await groupPaths.of(org.id, undefined)).answer;
    const { nodes: active, online, current: applied, direct, relayed, broken } = totals;
    if (active === 0) return;
    const trips = { rttMedian: microseconds(totals.rtt_ms_median), rtt95: microseconds(totals.rtt_ms_95) };
    const paths = org.pathReports ? { direct, relayed, broken, ...trips } : {};
    const row = { orgId: org.id, at, online, active, applied, ...paths };
    await db.writeFor("rows", (tx) => onlineCounts.upsert(tx, row, "ON CONFLICT (org_id, at) DO NOTHING"));
  };
  await inTurn(
    async () => forAll(await queryAll(db, countedPick, sql), ({ id }) => id, count),
    () =>
      db.writeFor("rows", (tx) => tx.run("DELETE FROM online_counts WHERE at < $1", [at - keptDays * dayMs])),
  );
}

const microseconds = (ms: number | null) => (ms === null ? null : Math.round(ms * 1000));

const point = onlineCounts.pick(
  "at",
  "online",
  "active",
  "applied",
  "direct",
  "relayed",
  "broken",
  "rttMedian",
  "rtt95",
);
const averages = ["online", "active", "applied", "direct", "relayed", "broken", "rtt_median", "rtt95"]
  .map((column) => `CAST(round(avg(${column})) AS bigint) AS ${column}`)
  .join(", ");

/** The last days; each point is the average of its interval. `isMember`: sees the paths of their own nodes, so not these. */
export async function onlineHistory(
  reader: Reader,
  orgId: number,
  { days, now, isMember }: { days: number; now: number; isMember: boolean },
): Promise<OnlineHistory> {
  const step = Math.ceil((days * dayMs) / maxOnlinePoints / intervalMs) * intervalMs;
  const since = now - days * dayMs;
  const firstBy = async (order: string) => {
    const sql = `SELECT ${point.select()} FROM online_counts WHERE org_id = $1 AND at >= $2 ORDER BY ${order} LIMIT 1`;
    const [found] = await queryAll(reader, point, sql, [orgId, since]);
    return found === undefined ? null : showPoint(found, isMember);
  };
  const [least, most, last] = await Promise.all([
    firstBy("online, at DESC"),
    firstBy("online DESC, at DESC"),
    firstBy("at DESC"),
  ]);
  const rows = await queryAll(
    reader,
    point,
    `SELECT at - at % $2 AS at, ${averages}
     FROM online_counts WHERE org_id = $1 AND at >= $3 GROUP BY at - at % $2 ORDER BY at - at % $2`,
    [orgId, step, since],
  );
  const onlineOf = (found: typeof last) => found && { at: found.at, online: found.online };
  return {
    every_s: step / 1000,
    points: rows.map((row) => showPoint(row, isMember)),
    least: onlineOf(least),
    most: onlineOf(most),
    last,
  };
}

function showPoint(row: ReturnType<typeof point.parse>, isMember: boolean): OnlineHistory["points"][number] {
  const { at, online, active, applied: current } = row;
  const pathFigure = (value: number | null) => (isMember ? null : value);
  const roundTripMs = (us: number | null) => (us === null ? null : pathFigure(us / 1000));
  return {
    at: formatTime(at),
    online,
    active,
    current,
    direct: pathFigure(row.direct),
    relayed: pathFigure(row.relayed),
    broken: pathFigure(row.broken),
    rtt_ms_median: roundTripMs(row.rttMedian),
    rtt_ms_95: roundTripMs(row.rtt95),
  };
}
