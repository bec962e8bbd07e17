// How long nodes are silent, and the end of ephemeral nodes that are silent for too long. Only the time while a server was up
// counts: nodes cannot check in otherwise. A server notes in `meta` when it looked last; a longer pause between two notes is a gap
// that does not count, nor does a jump of the clock. away-nodes.ts counts the silence of other nodes in the same way.

import * as v from "valibot";
import { given } from "../../../base/given.ts";
import { ourselves } from "../../audit/record.ts";
import { forAll, orgOf, orgOfEntry } from "../../for-all.ts";
import type { Store } from "../../options.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { readMeta, setMeta } from "../../store/meta.ts";
import { computed, integer, integerOrNull, queryAll, queryNumber } from "../../store/table.ts";
import { applyClockSetBack } from "./clock-set-back.ts";
import { endInside } from "../lifecycle/ephemeral.ts";
import { listOf } from "../../../protocol/values.ts";

/** No server was up in this time, ms. */
type Gap = readonly [from: number, to: number];
const maxGaps = 100;
/** The note in `meta`. */
const Watch = v.object({
  /** When a server last ran this loop, ms. */
  seen: v.number(),
  /** In the order of time. */
  gaps: listOf(v.tuple([v.number(), v.number()]), maxGaps),
  /** When the clock was set back last, ms: check-ins that seem to be in the future were before that. */
  setBackAt: v.optional(v.number()),
});
type Watch = v.InferOutput<typeof Watch>;

/** In `meta`. */
const watchKey = "ephemeral_watch";
/** How often the time is noted. */
const noteMs = 5000;
/** A longer pause between two notes means that no server could work, or not with the database. */
export const gapMs = 10_000;
/**
 * A report may be noticed this much later: the clock of the server that has it may be 5 s behind, and it writes its reports
 * late while the database is away for less than a gap. Both at once are rare: then a node counts as silent for 5 s too early.
 */
export const lateMs = 10_000;
/** A node that is well is never silent for so long: it is heard of once a poll, of 55 s at most, and then there is `lateMs`. */
export const quietMs = 100_000;
/** How long gaps are kept: longer than any silence. */
const keptMs = 8 * 86_400_000;
/** Nodes that are changed in one transaction: few enough that check-ins do not wait for it. */
export const changedTogether = 20;
/** Nodes that are ended in one turn: few enough that the next look is noted before its pause counts as a gap. */
const mostEnded = 1000;

/** For how long a node was silent since `lastHeardAt` while a server was up, ms. Pure. */
export function countedSilence(lastHeardAt: number, now: number, gaps: readonly Gap[]): number {
  const notCounted = gaps.map(([from, to]) => Math.max(0, Math.min(to, now) - Math.max(from, lastHeardAt)));
  return now - lastHeardAt - notCounted.reduce((sum, ms) => sum + ms, 0);
}

/** The note of a server that looks at `now`: with one more gap if nothing was noted for long. Pure. */
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

const ephemeralPick = computed({
  id: integer(),
  orgId: integer(),
  silenceS: integer(),
  watchedFrom: integer(),
  lastCheckinAt: integerOrNull(),
});
/** Nodes whose silence may have ended them. $1: now less `lateMs`, ms. An index holds the live ephemeral nodes. */
const candidates = `SELECT n.id, n.org_id, n.ephemeral_silence_s AS silence_s, n.watched_from, s.last_checkin_at
  FROM nodes n LEFT JOIN sightings s ON s.node_id = n.id
  WHERE n.ephemeral_silence_s IS NOT NULL AND n.state <> 'revoked'
    AND n.watched_from <= $1 - n.ephemeral_silence_s * 1000
    AND coalesce(s.last_checkin_at, 0) <= $1 - n.ephemeral_silence_s * 1000
  ORDER BY n.org_id, n.id`;
const anyWatched = "SELECT id FROM nodes WHERE state <> 'revoked' LIMIT 1";

/**
 * Notes that a server looks now, and returns the note. After the clock was set back, it also changes what was stored by the clock
 * that was ahead. Undefined while there is no node.
 */
export async function watchSilence({ db }: Store, now: number): Promise<Watch | undefined> {
  if ((await db.get(anyWatched)) === undefined) return undefined;
  const before = await readWatch(db);
  const watch = watchAt(before ?? (await formerWatch(db, now)), now);
  const note = (tx: Transaction) => setMeta(tx, watchKey, JSON.stringify(watch));
  const aheadMs = before === undefined ? 0 : before.seen - now;
  if (aheadMs > gapMs)
    await db.write(async (tx) => {
      await applyClockSetBack(tx, now, aheadMs);
      await note(tx);
    });
  else if (before === undefined || now - before.seen >= noteMs) await db.writeFor("rows", note);
  return watch;
}

/** When no server looked, without noting this look: only one loop does, since servers' clocks differ. */
export async function readGaps(db: Reader, now: number): Promise<readonly Gap[]> {
  return watchAt(await readWatch(db), now).gaps;
}

/** Ends the ephemeral nodes whose silence is longer than their token allowed. */
export async function endSilentNodes(services: Store): Promise<void> {
  const { db, system } = services;
  const now = system.now();
  const watch = await watchSilence(services, now);
  if (watch === undefined) return;
  const found = (await queryAll(db, ephemeralPick, candidates, [now - lateMs])).flatMap((node) => {
    const lastHeardAt = Math.max(node.watchedFrom, node.lastCheckinAt ?? 0);
    const isOver = countedSilence(lastHeardAt, now, watch.gaps) >= node.silenceS * 1000 + lateMs;
    return isOver ? [{ ...node, lastHeardAt }] : [];
  });
  // Candidates do not count here: gaps may keep more of them than this for as long as their silence.
  await forAll(Map.groupBy(found.slice(0, mostEnded), orgOf), orgOfEntry, async ([orgId, ended]) => {
    for (let at = 0; at < ended.length; at += changedTogether) {
      await db.writeFor({ org: orgId }, async (tx) => {
        for (const { id, lastHeardAt } of ended.slice(at, at + changedTogether))
          await endInside(tx, { id, orgId }, { actor: ourselves, reason: "silent", now, lastHeardAt });
      });
    }
  });
}

/** A server of an earlier version noted nothing: it was last up when it heard of a node. */
async function formerWatch(db: Reader, now: number): Promise<Watch> {
  const heardAt = await queryNumber(db, "SELECT coalesce(max(last_checkin_at), 0) AS n FROM sightings");
  return { seen: heardAt === 0 || heardAt > now ? now : heardAt, gaps: [] };
}

async function readWatch(db: Reader): Promise<Watch | undefined> {
  const text = await readMeta(db, watchKey);
  return text === undefined ? undefined : v.parse(Watch, JSON.parse(text));
}
