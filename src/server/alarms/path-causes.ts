// Finds causes of alarms about broken paths between nodes that are online. Broken pairs are grouped by the node that most of them
// share: the head of an alarm.

import { formatTime } from "../../base/quantities.ts";
import type { Silence } from "../nodes/contact/away-nodes.ts";
import { gapMs, quietMs } from "../nodes/contact/silence.ts";
import type { Reader } from "../store/database.ts";
import { inParts, places, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";
import { namesOf } from "./away-causes.ts";
import type { Cause } from "./open-alarms.ts";

/** Broken paths that one turn reads. Further ones are found when some of these are well. */
const maxPairs = 2000;

const reported = paths.pick("nodeId", "peer", "relays");
/** Nodes that were seen after $2. A time after $3 is in the future: the clock was set back since. */
const onlineNodes = `FROM nodes n JOIN sightings t ON t.node_id = n.id
  WHERE n.org_id = $1 AND n.state = 'active' AND t.last_checkin_at > $2 AND t.last_checkin_at < $3`;
/**
 * Broken paths from online nodes to online nodes. With peers that are away, the many reports about one site that is away would
 * exceed the limit.
 */
const brokenPaths = `SELECT ${reported.select("x")} FROM paths x JOIN sightings s ON s.node_id = x.node_id
  WHERE x.org_id = $1 AND x.probe = 'broken' AND s.last_checkin_at > $2 AND s.last_checkin_at < $3
    AND x.peer IN (SELECT n.ip ${onlineNodes} UNION ALL SELECT n.ip6 ${onlineNodes} AND n.ip6 IS NOT NULL)
  ORDER BY x.node_id, x.peer LIMIT ${maxPairs}`;
const endPick = nodes.pick("id", "name", "ip", "ip6");
type End = ReturnType<typeof endPick.parse>;
/** A reported path: from the node that reports it. */
type Ends = { from: End; to: End };
/** `a`: the id of the node that reports the path; `b`: of its peer. `since`: ms. */
export type BrokenPair = { a: number; aName: string; b: number; bName: string; since: number };

/** `isWhole`: false if there are more pairs than `maxPairs`: then a pair that is not among these may be broken, too. */
export type Broken = { pairs: BrokenPair[]; isWhole: boolean };

/**
 * Since when pairs are broken with both ends online, ms: by id of the organization, then by `A/B` (ids of nodes). A report is not
 * enough: it may be from before one end came back. Only in memory: after a restart, the time begins again.
 */
export type BrokenSince = Map<number, ReadonlyMap<string, number>>;

/**
 * The pairs that are broken now: both ends are online, the peer does not report that it reaches the node, and the path does not go
 * over silent relays alone. `silent`: names and addresses of silent nodes. Fills `brokenAfter`, even if no pair is broken.
 */
export async function readBroken(
  db: Reader,
  orgId: number,
  { now }: Silence,
  silent: ReadonlySet<string>,
  { brokenBefore, brokenAfter }: { brokenBefore: BrokenSince; brokenAfter: BrokenSince },
): Promise<Broken> {
  const onlineTimes = [now - quietMs, now + gapMs];
  const found = await queryAll(db, reported, brokenPaths, [orgId, ...onlineTimes]);
  const rows = found.filter(
    ({ relays }) => relays.length === 0 || !relays.every((relay) => silent.has(relay)),
  );
  const pairs = await readEnds(db, orgId, rows, onlineTimes);
  const answering = await readAnswering(db, pairs);
  const broken = pairs.flatMap(({ from, to }) => {
    if ([from.ip, from.ip6].some((address) => answering.has(`${to.id} ${address}`))) return [];
    const since = Math.min(brokenBefore.get(orgId)?.get(keyOf(from.id, to.id)) ?? now, now);
    return [{ a: from.id, aName: from.name, b: to.id, bName: to.name, since }];
  });
  brokenAfter.set(orgId, new Map(broken.map(({ a, b, since }) => [keyOf(a, b), since])));
  return { pairs: broken, isWhole: found.length < maxPairs };
}

const keyOf = (a: number, b: number) => `${a}/${b}`;

/** The nodes at both ends of these paths, without paths whose peer is not online. */
async function readEnds(
  db: Reader,
  orgId: number,
  rows: readonly { nodeId: number; peer: string }[],
  onlineTimes: readonly number[],
): Promise<Ends[]> {
  const reporters = new Map<number, End>();
  const peersByAddress = new Map<string, End>();
  await inParts([...new Set(rows.map(({ nodeId }) => nodeId))], async (ids) => {
    const sql = `SELECT ${endPick.select()} FROM nodes WHERE id IN (${places(ids, 1)}) AND state = 'active'`;
    for (const node of await queryAll(db, endPick, sql, ids)) reporters.set(node.id, node);
  });
  await inParts([...new Set(rows.map(({ peer }) => peer))], async (addresses) => {
    const list = places(addresses, 4);
    const sql = `SELECT ${endPick.select("n")} ${onlineNodes} AND (n.ip IN (${list}) OR n.ip6 IN (${list}))`;
    for (const node of await queryAll(db, endPick, sql, [orgId, ...onlineTimes, ...addresses]))
      for (const address of [node.ip, node.ip6 ?? node.ip]) peersByAddress.set(address, node);
  });
  return rows.flatMap(({ nodeId, peer }) => {
    const [from, to] = [reporters.get(nodeId), peersByAddress.get(peer)];
    return from === undefined || to === undefined ? [] : [{ from, to }];
  });
}

/** Which ways back answer: `ID ADDRESS`, as the node with the id reports of an address at the other end. */
async function readAnswering(db: Reader, pairs: readonly Ends[]): Promise<Set<string>> {
  const answering = new Set<string>();
  await inParts(pairs, async (some) => {
    const back = some.flatMap(({ from, to }) => [
      [to.id, from.ip],
      ...(from.ip6 === null ? [] : [[to.id, from.ip6]]),
    ]);
    // PostgreSQL does not know the type of a parameter in VALUES.
    const values = back
      .map((_, index) => `(CAST($${2 * index + 1} AS bigint), $${2 * index + 2})`)
      .join(", ");
    const sql = `SELECT node_id, peer, relays FROM paths WHERE (node_id, peer) IN (VALUES ${values}) AND probe = 'answers'`;
    for (const { nodeId, peer } of await queryAll(db, reported, sql, back.flat()))
      answering.add(`${nodeId} ${peer}`);
  });
  return answering;
}

/**
 * Chooses heads so that each broken pair belongs to one of its two ends: the node with the most pairs first. Heads of open alarms
 * (`openHeads`) come before all, so that an alarm does not pass from one node to another. Returns the pairs of each head.
 */
export function headsOf(
  pairs: readonly BrokenPair[],
  openHeads: readonly number[],
): Map<number, BrokenPair[]> {
  /** The pairs of each node that belong to no head yet. */
  const left = new Map<number, Set<BrokenPair>>();
  for (const pair of pairs)
    for (const id of [pair.a, pair.b]) left.getOrInsertComputed(id, () => new Set()).add(pair);
  /** Nodes by their number of pairs. A node is noted again when the number falls; older entries are ignored. */
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
  for (const id of openHeads) take(id);
  // Counts only fall, so once all nodes with more pairs are taken, the list of this count is complete.
  for (let count = byCount.length - 1; count > 0; count--)
    for (const id of (byCount[count] ?? []).sort((a, b) => a - b)) if (left.get(id)?.size === count) take(id);
  return heads;
}

/**
 * Pairs that broke within this time of each other are one cause, such as a link between two sites. Reports come with check-ins, so up to
 * a minute apart.
 */
const togetherMs = 75_000;

/** Causes of heads that no alarm is about. A cause is due once its first pair is broken for `afterMs`. */
export function pathCauses(
  heads: ReadonlyMap<number, readonly BrokenPair[]>,
  { afterMs, now }: { afterMs: number; now: number },
): Cause[] {
  const beginOf = (pairs: readonly BrokenPair[]) => Math.min(...pairs.map(({ since }) => since));
  let left = [...heads].sort(([idA, a], [idB, b]) => beginOf(a) - beginOf(b) || idA - idB);
  const causes: Cause[] = [];
  for (;;) {
    const [oldest] = left;
    const since = oldest === undefined ? now : beginOf(oldest[1]);
    if (oldest === undefined || now - since < afterMs) return causes;
    const beganTogether = ([, pairs]: (typeof left)[number]) => beginOf(pairs) <= since + togetherMs;
    causes.push(causeOf(left.filter(beganTogether), since));
    left = left.filter((each) => !beganTogether(each));
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
