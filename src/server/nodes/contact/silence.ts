// Ends ephemeral nodes that are silent for too long. Only the time while a server was up counts: nodes cannot check in
// otherwise. A server notes when it looked last; a longer pause between two notes is a gap that does not count, nor does a
// jump of the clock. away-nodes.ts counts the silence of other nodes alike.

import * as v from "valibot";
import { given } from "../../../base/given.ts";
import { clocksMayDifferMs } from "../../../protocol/finding-kinds.ts";
import { ourselves } from "../../audit/record.ts";
import { forAll, orgOf, orgOfEntry } from "../../for-all.ts";
import type { ServerOptions } from "../../options.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { readMeta, setMeta } from "../../store/meta.ts";
import { computed, integer, integerOrNull, queryAll, queryNumber } from "../../store/table.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { raiseConfigVersion } from "../../store/versions.ts";
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
export const gapMs = 10_000;
/**
 * A report may be noticed this much later: the clock of the server that has it may be 5 s behind, and it writes its reports
 * late while the database is away for less than a gap. A node that holds polls, of 55 s at most, is heard of once a poll.
 */
export const lateMs = 10_000;
/** A node may be silent for so long. It is longer than any poll: more is heard of a node that is well. */
export const quietMs = 100_000;
/** How long gaps are kept: longer than any silence. */
const keptMs = 8 * 86_400_000;
const maxGaps = 100;
/** Nodes that end in one transaction: few enough that check-ins do not wait for it. */
export const together = 20;

/** How long a node was silent since `last` while a server was up, ms. Pure. */
export function countedSilence(last: number, now: number, gaps: readonly Gap[]): number {
  const away = gaps.map(([from, to]) => Math.max(0, Math.min(to, now) - Math.max(from, last)));
  return now - last - away.reduce((sum, each) => sum + each, 0);
}

/** The watch at `now`: with a gap if nothing was noted for long. Pure. */
export function watchAt(before: Watch | undefined, now: number): Watch {
  if (before === undefined) return { seen: now, gaps: [] };
  const { seen, gaps } = before;
  const all: [number, number][] = now - seen > gapMs ? [...gaps, [seen, now]] : gaps;
  return {
    seen: now,
    // A gap cannot end in the future: the clock was set back in it, or after it.
    gaps: all
      .map(([from, to]): [number, number] => [from, Math.min(to, now)])
      .filter(([from, to]) => to > from && to > now - keptMs)
      .slice(-maxGaps),
    ...given({ setBackAt: seen - now > gapMs ? now : before.setBackAt }),
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
const anyWatched = "SELECT id FROM nodes WHERE state <> 'revoked' LIMIT 1";

/**
 * Times that come again after the clock was set back. Until then nodes that are away would seem to be heard, questions to
 * providers would wait, and so would the next lighthouse of a rollout.
 */
const comingAgain = [
  ["sightings", "last_checkin_at"],
  ["nodes", "away_since"],
  ["provider_grants", "next_at"],
  ["rollout_nodes", "at"],
  ["relay_traffic", "reported_at"],
] as const;

/** Retries keep their distance. What is held for less than a day until the quiet hours end keeps its time. */
const retried = `UPDATE deliveries SET next_at = CASE WHEN next_at - $2 > $1 THEN next_at - $2 ELSE $1 END
  WHERE next_at > $1 AND (attempts > 0 OR next_at > $1 + ${25 * 3_600_000})`;

const unblocked = `UPDATE certificates SET state = 'blocked', blocked_at = $1, blocked_at_version = $2
  WHERE org_id = $3 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $1
    AND node_id IN (SELECT id FROM nodes WHERE org_id = $3 AND state = 'revoked' AND ended_at IS NULL)`;

/**
 * By the clock that was ahead, certificates had ended that peers still accept: revocations did not block them, and the
 * configurations of that time do not list them.
 */
async function blockAgain(tx: Transaction, now: number): Promise<void> {
  for (const { id } of await organizations.all(tx, { deletedAt: null }))
    await tx.run(unblocked, [now, await raiseConfigVersion(tx, id), id]);
}

export type Services = Pick<ServerOptions, "db" | "system">;

/** Notes that a server looks now. Undefined while there is no node. */
export async function watchSilence({ db }: Services, now: number): Promise<Watch | undefined> {
  if ((await db.get(anyWatched)) === undefined) return undefined;
  const before = await readWatch(db);
  const watch = watchAt(before ?? (await formerWatch(db, now)), now);
  const note = (tx: Transaction) => setMeta(tx, watchKey, JSON.stringify(watch));
  if (before !== undefined && before.seen - now > gapMs)
    await db.write(async (tx) => {
      for (const [table, column] of comingAgain)
        await tx.run(`UPDATE ${table} SET ${column} = $1 WHERE ${column} > $1`, [now]);
      await tx.run(retried, [now, before.seen - now]);
      if (before.seen - now > clocksMayDifferMs) await blockAgain(tx, now);
      await note(tx);
    });
  else if (before === undefined || now - before.seen >= noteMs) await db.writeFor("rows", note);
  return watch;
}

/** When no server looked, without noting this look: only one loop does, since servers' clocks differ. */
export async function readGaps(db: Pick<Reader, "get">, now: number): Promise<readonly Gap[]> {
  return watchAt(await readWatch(db), now).gaps;
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
  await forAll(Map.groupBy(found, orgOf), orgOfEntry, async ([orgId, ended]) => {
    for (let at = 0; at < ended.length; at += together) {
      await db.writeFor({ org: orgId }, async (tx) => {
        for (const { id, last } of ended.slice(at, at + together))
          await endInside(tx, { id, orgId }, { actor: ourselves, reason: "silent", now, heardBy: last });
      });
    }
  });
}

/** A server of an earlier version noted nothing: it was last up when it heard of a node. */
async function formerWatch(db: Reader, now: number): Promise<Watch> {
  const heardAt = await queryNumber(db, "SELECT coalesce(max(last_checkin_at), 0) AS n FROM sightings");
  return { seen: heardAt === 0 || heardAt > now ? now : heardAt, gaps: [] };
}

async function readWatch(db: Pick<Reader, "get">): Promise<Watch | undefined> {
  const text = await readMeta(db, watchKey);
  return text === undefined ? undefined : v.parse(Watch, JSON.parse(text));
}
