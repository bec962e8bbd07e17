// Ends ephemeral nodes that are silent for too long, and tells of others that are away (`notify_away_minutes`). Only the time
// while a server was up counts: nodes cannot check in otherwise. A server notes when it looked last; a longer pause between
// two notes is a gap that does not count, nor does a jump of the clock.

import * as v from "valibot";
import { onlineMs } from "../../../api/values.ts";
import { formatTime } from "../../../base/duration.ts";
import { ourselves, record } from "../../audit/record.ts";
import type { ServerOptions } from "../../options.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { readMeta, setMeta } from "../../store/meta.ts";
import { computed, integer, integerOrNull, later, queryAll, queryNumber, text } from "../../store/table.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { endInside } from "../lifecycle/ephemeral.ts";

type Gap = readonly [from: number, to: number];
const Watch = v.object({
  /** When a server last ran this loop, ms. */
  seen: v.number(),
  gaps: v.pipe(v.array(v.tuple([v.number(), v.number()])), v.maxLength(100)),
  /** When the clock was set back last, ms: check-ins that seem to be in the future were before that. */
  setBackAt: v.optional(v.number()),
});
type Watch = v.InferOutput<typeof Watch>;

const watchKey = "ephemeral_watch";
/** How often the time is noted. */
const noteMs = 5000;
/** A longer pause between two notes means that no server could work, or not with the database. */
const gapMs = 10_000;
/**
 * A report may be noticed this much later: the clock of the server that has it may be 5 s behind, and it writes its reports
 * late while the database is away for less than a gap. A node that holds polls, of 55 s at most, is heard of once a poll.
 */
const lateMs = 10_000;
/** How long gaps are kept: longer than any silence. */
const keptMs = 8 * 86_400_000;
const maxGaps = 100;
/** Nodes that end in one transaction: few enough that check-ins do not wait for it. */
const together = 20;

/** How long a node was silent since `last` while a server was up, ms. Pure. */
export function countedSilence(last: number, now: number, gaps: readonly Gap[]): number {
  const away = gaps.map(([from, to]) => Math.max(0, Math.min(to, now) - Math.max(from, last)));
  return now - last - away.reduce((sum, each) => sum + each, 0);
}

/** The watch at `now`: with a gap if nothing was noted for long. Pure. */
export function watchAt(before: Watch | undefined, now: number): Watch {
  if (before === undefined) return { seen: now, gaps: [] };
  const { seen, gaps, setBackAt = 0 } = before;
  const all: [number, number][] = now - seen > gapMs ? [...gaps, [seen, now]] : gaps;
  return {
    seen: now,
    // A gap cannot end in the future: the clock was set back in it, or after it.
    gaps: all
      .map(([from, to]): [number, number] => [from, Math.min(to, now)])
      .filter(([from, to]) => to > from && to > now - keptMs)
      .slice(-maxGaps),
    ...(seen - now > gapMs ? { setBackAt: now } : setBackAt === 0 ? {} : { setBackAt }),
  };
}

const silent = computed({
  id: integer(),
  orgId: integer(),
  silenceS: integer(),
  watchedFrom: integer(),
  lastCheckinAt: integerOrNull(),
});
/** Nodes whose silence may have ended them. An index holds the live ephemeral nodes. */
const candidates = `SELECT n.id, n.org_id, n.ephemeral_silence_s AS silence_s, n.watched_from, s.last_checkin_at
  FROM nodes n LEFT JOIN sightings s ON s.node_id = n.id
  WHERE n.ephemeral_silence_s IS NOT NULL AND n.state <> 'revoked'
    AND n.watched_from <= $1 - n.ephemeral_silence_s * 1000
    AND coalesce(s.last_checkin_at, 0) <= $1 - n.ephemeral_silence_s * 1000
  ORDER BY n.org_id, n.id LIMIT 1000`;
const anyWatched = `SELECT id FROM nodes WHERE ephemeral_silence_s IS NOT NULL AND state <> 'revoked'
  UNION ALL SELECT id FROM organizations WHERE notify_away_minutes IS NOT NULL AND deleted_at IS NULL LIMIT 1`;

type Services = Pick<ServerOptions, "db" | "system">;

/** Notes that a server looks now. Undefined while nothing is watched. */
async function watchSilence({ db }: Services, now: number): Promise<Watch | undefined> {
  if ((await db.get(anyWatched)) === undefined) return undefined;
  const before = await readWatch(db);
  const watch = watchAt(before, now);
  if (before === undefined || Math.abs(now - before.seen) >= noteMs)
    await db.writeFor("rows", (tx) => setMeta(tx, watchKey, JSON.stringify(watch)));
  return watch;
}

export async function endSilentNodes(services: Services): Promise<void> {
  const { db, system } = services;
  const now = system.now();
  const watch = await watchSilence(services, now);
  if (watch === undefined) return;
  const found = (await queryAll(db, silent, candidates, [now - lateMs])).flatMap((node) => {
    const last = Math.max(node.watchedFrom, node.lastCheckinAt ?? 0);
    const isOver = countedSilence(last, now, watch.gaps) >= node.silenceS * 1000 + lateMs;
    return isOver ? [{ ...node, last }] : [];
  });
  for (const [orgId, ended] of Map.groupBy(found, (each) => each.orgId)) {
    for (let at = 0; at < ended.length; at += together) {
      await db.writeFor({ org: orgId }, async (tx) => {
        for (const { id, last } of ended.slice(at, at + together))
          await endInside(tx, { id, orgId }, { actor: ourselves, reason: "silent", now, heardBy: last });
      });
    }
  }
}

async function readWatch(db: Pick<Reader, "get">): Promise<Watch | undefined> {
  const text = await readMeta(db, watchKey);
  return text === undefined ? undefined : v.parse(Watch, JSON.parse(text));
}

const watching = organizations.pick("id", "notifyAwayMinutes", "notifyAwayFrom");
const organizationsWatching = `SELECT ${watching.select()} FROM organizations
  WHERE notify_away_minutes IS NOT NULL AND deleted_at IS NULL`;
/** Nodes of one query: few enough that check-ins do not wait for it. */
const sliceSize = 2000;
const endOfSlice = `SELECT coalesce(max(id), 0) AS n FROM
  (SELECT id FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND id > $2 ORDER BY id LIMIT ${sliceSize}) x`;
const changed = computed({
  id: integer(),
  name: text(),
  awaySince: integerOrNull(),
  lastCheckinAt: integer(),
  countedFrom: integer(),
});
/** Nodes that may have become away ($4: silent since then), and those that were told and are online ($5) again. */
const changedInSlice = `SELECT n.id, n.name, n.away_since, s.last_checkin_at,
    ${later("coalesce(n.watched_from, 0)", "s.last_checkin_at")} AS counted_from
  FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.org_id = $1 AND n.id > $2 AND n.id <= $3
    AND n.state = 'active' AND n.phone IS NULL AND n.ephemeral_silence_s IS NULL
    AND ((n.away_since IS NULL AND (s.last_checkin_at <= $4 OR s.last_checkin_at > $6))
      OR (n.away_since <> s.last_checkin_at AND s.last_checkin_at > $5 AND s.last_checkin_at <= $6))
  ORDER BY n.id`;
type Changed = ReturnType<(typeof changed)["parse"]>;

/** Records when nodes are away for longer than their organization allows, once for each absence, and when they are back. */
export async function tellAway(services: Services): Promise<void> {
  const { db, system } = services;
  const now = system.now();
  const watch = await watchSilence(services, now);
  if (watch === undefined) return;
  for (const org of await queryAll(db, watching, organizationsWatching)) {
    const allowedMs = (org.notifyAwayMinutes ?? 0) * 60_000 + lateMs;
    const isTold = ({ awaySince, lastCheckinAt, countedFrom }: Changed) => {
      if (awaySince !== null) return true;
      const last = lastCheckinAt > now + gapMs ? (watch.setBackAt ?? now) : countedFrom;
      return countedSilence(Math.max(last, org.notifyAwayFrom), now, watch.gaps) >= allowedMs;
    };
    for (let after = 0, end; (end = await queryNumber(db, endOfSlice, [org.id, after])) > 0; after = end) {
      const params = [org.id, after, end, now - allowedMs, now - onlineMs, now + gapMs];
      const found = (await queryAll(db, changed, changedInSlice, params)).filter(isTold);
      for (let at = 0; at < found.length; at += together)
        await db.writeFor({ org: org.id }, async (tx) => {
          for (const node of found.slice(at, at + together)) await tell(tx, org.id, node, now);
        });
    }
  }
}

/** In one statement each: a check-in may have come since, the node may be revoked, the setting off. */
const markAway = `UPDATE nodes SET away_since = $2 WHERE id = $1 AND state = 'active' AND away_since IS NULL
  AND EXISTS (SELECT 1 FROM sightings s WHERE s.node_id = nodes.id AND s.last_checkin_at = $2)
  AND EXISTS (SELECT 1 FROM organizations o WHERE o.id = nodes.org_id AND o.notify_away_minutes IS NOT NULL)`;
const markBack = "UPDATE nodes SET away_since = NULL WHERE id = $1 AND state = 'active' AND away_since = $2";

async function tell(tx: Transaction, orgId: number, node: Changed, at: number): Promise<void> {
  const { id, name, awaySince, lastCheckinAt } = node;
  const since = awaySince ?? lastCheckinAt;
  if ((await tx.run(awaySince === null ? markAway : markBack, [id, since])) === 0) return;
  const type = awaySince === null ? "node.away" : "node.online";
  const event = { orgId, at, actor: ourselves, subject: `node/${id}` };
  await record(tx, { ...event, type, after: { name, away_since: formatTime(Math.min(since, at)) } });
}
