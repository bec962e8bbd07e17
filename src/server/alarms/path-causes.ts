// Broken paths between nodes that are online, as causes: grouped by the node that most of them share.

import { formatTime } from "../../base/quantities.ts";
import type { Silence } from "../nodes/contact/away-nodes.ts";
import { gapMs, quietMs } from "../nodes/contact/silence.ts";
import type { Reader } from "../store/database.ts";
import { inParts, places, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";
import { namesOf } from "./away-causes.ts";
import type { Cause } from "./open-alarms.ts";

/** Bounds a turn: of more pairs, the rest comes when these are well. */
const maxPairs = 2000;

const reported = paths.pick("nodeId", "peer", "relays");
/** $2: seen since then; a time after $3 is of a clock that was set back. */
const onlineNodes = `FROM nodes n JOIN sightings t ON t.node_id = n.id
  WHERE n.org_id = $1 AND n.state = 'active' AND t.last_checkin_at > $2 AND t.last_checkin_at < $3`;
/**
 * What nodes that are online report of others that are online: with peers that are away, the reports of a site that is away
 * would leave no room for those between nodes that are there.
 */
const brokenPaths = `SELECT ${reported.select("x")} FROM paths x JOIN sightings s ON s.node_id = x.node_id
  WHERE x.org_id = $1 AND x.probe = 'broken' AND s.last_checkin_at > $2 AND s.last_checkin_at < $3
    AND x.peer IN (SELECT n.ip ${onlineNodes} UNION ALL SELECT n.ip6 ${onlineNodes} AND n.ip6 IS NOT NULL)
  ORDER BY x.node_id, x.peer LIMIT ${maxPairs}`;
const end = nodes.pick("id", "name", "ip", "ip6");
type End = ReturnType<typeof end.parse>;
export type BrokenPair = { a: number; aName: string; b: number; bName: string; since: number };

/** `isWhole`: false if there are more pairs, so that one that is not among these may be broken, too. */
export type Broken = { pairs: BrokenPair[]; isWhole: boolean };

/**
 * Since when pairs are broken while both ends are online: a report from before one of them came back does not count. In memory:
 * after a restart, the time begins again.
 */
export type BrokenSince = Map<string, number>;

/**
 * The pairs that are broken now: both ends are online, the other one does not say that it reaches the first, and no silent
 * relay explains it. `silent`: names and addresses.
 */
export async function readBroken(
  db: Reader,
  orgId: number,
  { now }: Silence,
  silent: ReadonlySet<string>,
  { before, after }: { before: BrokenSince; after: BrokenSince },
): Promise<Broken> {
  const seen = [now - quietMs, now + gapMs];
  const found = await queryAll(db, reported, brokenPaths, [orgId, ...seen]);
  const rows = found.filter(
    ({ relays }) => relays.length === 0 || !relays.every((relay) => silent.has(relay)),
  );
  const [reporters, peers] = [new Map<number, End>(), new Map<string, End>()];
  await inParts([...new Set(rows.map(({ nodeId }) => nodeId))], async (ids) => {
    const sql = `SELECT ${end.select()} FROM nodes WHERE id IN (${places(ids, 1)}) AND state = 'active'`;
    for (const node of await queryAll(db, end, sql, ids)) reporters.set(node.id, node);
  });
  await inParts([...new Set(rows.map(({ peer }) => peer))], async (of) => {
    const list = places(of, 4);
    const sql = `SELECT ${end.select("n")} ${onlineNodes} AND (n.ip IN (${list}) OR n.ip6 IN (${list}))`;
    for (const node of await queryAll(db, end, sql, [orgId, ...seen, ...of]))
      for (const address of [node.ip, node.ip6 ?? node.ip]) peers.set(address, node);
  });
  const pairs = rows.flatMap(({ nodeId, peer }) => {
    const [from, to] = [reporters.get(nodeId), peers.get(peer)];
    return from === undefined || to === undefined ? [] : [{ from, to }];
  });
  const answering = new Set<string>();
  await inParts(pairs, async (some) => {
    const back = some.flatMap(({ from, to }) => [
      [to.id, from.ip],
      ...(from.ip6 === null ? [] : [[to.id, from.ip6]]),
    ]);
    const values = back.map((_, at) => `(CAST($${2 * at + 1} AS bigint), $${2 * at + 2})`).join(", ");
    const sql = `SELECT node_id, peer, relays FROM paths WHERE (node_id, peer) IN (VALUES ${values}) AND probe = 'answers'`;
    for (const { nodeId, peer } of await queryAll(db, reported, sql, back.flat()))
      answering.add(`${nodeId} ${peer}`);
  });
  const broken = pairs.flatMap(({ from, to }) => {
    if ([from.ip, from.ip6].some((address) => answering.has(`${to.id} ${address}`))) return [];
    const key = `${from.id}/${to.id}`;
    const since = Math.min(before.get(key) ?? now, now);
    after.set(key, since);
    return [{ a: from.id, aName: from.name, b: to.id, bName: to.name, since }];
  });
  return { pairs: broken, isWhole: found.length < maxPairs };
}

/**
 * Which node each alarm is about: one of its two ends belongs to every broken pair. Nodes of open alarms (`first`) come
 * first, so that an alarm does not pass from one node to another.
 */
export function headsOf(pairs: readonly BrokenPair[], first: readonly number[]): Map<number, BrokenPair[]> {
  const left = new Map<number, Set<BrokenPair>>();
  for (const pair of pairs)
    for (const id of [pair.a, pair.b]) left.set(id, left.get(id)?.add(pair) ?? new Set([pair]));
  const byCount: number[][] = [];
  const note = (id: number, count: number) => (byCount[count] ??= []).push(id);
  for (const [id, own] of left) note(id, own.size);
  const heads = new Map<number, BrokenPair[]>();
  const take = (id: number) => {
    const own = [...(left.get(id) ?? [])];
    if (own.length > 0) heads.set(id, own);
    for (const pair of own) {
      const other = pair.a === id ? pair.b : pair.a;
      const others = left.get(other);
      others?.delete(pair);
      if (others !== undefined) note(other, others.size);
    }
    left.delete(id);
  };
  for (const id of first) take(id);
  // Counts only fall, so a node with as many pairs as this is known once those with more are taken.
  for (let count = byCount.length - 1; count > 0; count--)
    for (const id of (byCount[count] ?? []).sort((a, b) => a - b)) if (left.get(id)?.size === count) take(id);
  return heads;
}

/** Pairs that broke within this time of each other are one cause, such as a link between two sites. */
const togetherMs = 75_000;

/** Causes of the heads that no alarm is about, as soon as a pair is broken for that long. */
export function pathCauses(
  heads: ReadonlyMap<number, readonly BrokenPair[]>,
  { afterMs, now }: { afterMs: number; now: number },
): Cause[] {
  const from = (pairs: readonly BrokenPair[]) => Math.min(...pairs.map(({ since }) => since));
  let left = [...heads].sort(([idA, a], [idB, b]) => from(a) - from(b) || idA - idB);
  const causes: Cause[] = [];
  for (;;) {
    const [first] = left;
    const since = first === undefined ? now : from(first[1]);
    if (first === undefined || now - since < afterMs) return causes;
    const isOfIt = ([, pairs]: (typeof left)[number]) => from(pairs) <= since + togetherMs;
    causes.push(causeOf(left.filter(isOfIt), since));
    left = left.filter((each) => !isOfIt(each));
  }
}

export const pathsTitle = (names: readonly string[]) =>
  `${namesOf(names)} ${names.length === 1 ? "does" : "do"} not reach peers of theirs`;

function causeOf(heads: readonly (readonly [number, readonly BrokenPair[]])[], since: number): Cause {
  const lines = heads.map(([head, pairs]) => {
    const others = [...new Set(pairs.map(({ a, aName, bName }) => (a === head ? bName : aName)))].sort();
    const [{ a, aName, bName } = { a: head, aName: "", bName: "" }] = pairs;
    return { name: a === head ? aName : bName, others: namesOf(others) };
  });
  const reporters = [...new Set(heads.flatMap(([, pairs]) => pairs.map(({ aName }) => aName)))].sort();
  const sentences = lines.map(({ name, others }) => `${name} and ${others} do not reach each other`);
  return {
    kind: "path",
    heads: heads.map(([head]) => String(head)),
    rest: [],
    title: sentences.length === 1 ? (sentences[0] ?? "") : pathsTitle(lines.map(({ name }) => name)),
    text: [
      `Since ${formatTime(since)}. All are online. Reported by ${namesOf(reporters)}.`,
      ...(sentences.length === 1 ? [] : sentences.slice(0, 5)),
    ].join("\n"),
    isUrgent: false,
    since,
  };
}
