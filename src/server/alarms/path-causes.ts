// Broken paths between nodes that are online, as causes: grouped by the node that most of them share.

import { formatTime } from "../../base/quantities.ts";
import type { Silence } from "../nodes/contact/away.ts";
import { gapMs } from "../nodes/contact/silence.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, joined, queryAll, text } from "../store/table.ts";
import { paths } from "../store/tables/paths.ts";
import { namesOf } from "./away-causes.ts";
import type { Cause } from "./open-alarms.ts";

/** Longer than any poll. */
const quietMs = 100_000;
/** Bounds a turn: of more pairs, the rest comes when these are well. */
const maxPairs = 2000;

const pair = joined(
  "x",
  paths.pick("relays"),
  "y",
  computed({ a: integer(), aName: text(), b: integer(), bName: text() }),
);
/** Both ends are online (seen since $2; a time after $3 is of a clock that was set back), and the other one does not say that it reaches the first. */
const brokenPairs = `SELECT x.relays, n.id AS a, n.name AS a_name, p.id AS b, p.name AS b_name
  FROM paths x JOIN nodes n ON n.id = x.node_id JOIN sightings s ON s.node_id = n.id
  JOIN nodes p ON p.org_id = x.org_id AND p.state = 'active' AND (p.ip = x.peer OR p.ip6 = x.peer)
  JOIN sightings q ON q.node_id = p.id
  WHERE x.org_id = $1 AND x.probe = 'broken' AND n.state = 'active'
    AND s.last_checkin_at > $2 AND s.last_checkin_at < $3 AND q.last_checkin_at > $2 AND q.last_checkin_at < $3
    AND NOT EXISTS (SELECT 1 FROM paths r WHERE r.node_id = p.id AND r.probe = 'answers'
      AND (r.peer = n.ip OR r.peer = n.ip6))
  ORDER BY x.node_id, x.peer LIMIT ${maxPairs}`;

export type BrokenPair = ReturnType<(typeof pair)["parse"]> & { since: number };

/**
 * Since when pairs are broken while both ends are online: a report from before one of them came back says nothing. In memory:
 * a server that starts counts anew.
 */
export type BrokenSince = Map<string, number>;

/** The pairs that are broken now, without those that a silent relay explains. `silent`: names and addresses. */
export async function readBroken(
  db: Reader,
  orgId: number,
  { now }: Silence,
  silent: ReadonlySet<string>,
  { before, after }: { before: BrokenSince; after: BrokenSince },
): Promise<BrokenPair[]> {
  const rows = await queryAll(db, pair, brokenPairs, [orgId, now - quietMs, now + gapMs]);
  return rows.flatMap((row) => {
    if (row.relays.length > 0 && row.relays.every((relay) => silent.has(relay))) return [];
    const key = `${row.a}/${row.b}`;
    const since = Math.min(before.get(key) ?? now, now);
    after.set(key, since);
    return [{ ...row, since }];
  });
}

/**
 * Which node each alarm is about: one of its two ends belongs to every broken pair. Nodes of open alarms (`first`) come
 * first, so that an alarm does not pass from one node to another.
 */
export function headsOf(pairs: readonly BrokenPair[], first: readonly number[]): Map<number, BrokenPair[]> {
  const heads = new Map<number, BrokenPair[]>();
  let left = [...pairs];
  const take = (id: number) => {
    const own = left.filter(({ a, b }) => a === id || b === id);
    if (own.length > 0) heads.set(id, own);
    left = left.filter(({ a, b }) => a !== id && b !== id);
  };
  for (const id of first) take(id);
  while (left.length > 0) {
    const counts = new Map<number, number>();
    for (const { a, b } of left) for (const id of [a, b]) counts.set(id, (counts.get(id) ?? 0) + 1);
    const [most] = [...counts].sort(([idA, a], [idB, b]) => b - a || idA - idB);
    if (most === undefined) break;
    take(most[0]);
  }
  return heads;
}

/** Undefined while no pair is broken for that long. */
export function pathCause(
  head: number,
  pairs: readonly BrokenPair[],
  { afterMs, now }: { afterMs: number; now: number },
): Cause | undefined {
  const due = pairs.filter(({ since }) => now - since >= afterMs);
  if (due.length === 0) return undefined;
  const since = Math.min(...due.map((each) => each.since));
  const others = [...new Set(due.map(({ a, aName, bName }) => (a === head ? bName : aName)))].sort();
  const name =
    due.flatMap(({ a, b, aName, bName }) => (a === head ? [aName] : b === head ? [bName] : []))[0] ?? "";
  const reporters = [...new Set(due.map(({ aName }) => aName))].sort();
  return {
    kind: "path",
    heads: [String(head)],
    rest: [],
    title: `${name} and ${namesOf(others)} do not reach each other`,
    text: `Since ${formatTime(since)}. All are online. Reported by ${namesOf(reporters)}.`,
    isUrgent: false,
    since,
  };
}
