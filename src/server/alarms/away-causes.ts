// Finds causes of alarms about nodes that are away. Nodes that became silent at the same time are one cause. Its heads, by which it
// is named, are those that others need most (lighthouses before relays, and so on); the others are its rest.

import { formatTime } from "../../base/quantities.ts";
import { onlineMs } from "../../api/values.ts";
import { lateMs } from "../nodes/contact/silence.ts";
import { reachedBy, type Silence, type SilentNode } from "../nodes/contact/away-nodes.ts";
import type { Reader } from "../store/database.ts";
import { computed, inParts, integer, places, queryAll, queryNumber, text } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import type { AlarmRow } from "../store/tables/webhooks.ts";
import type { Cause, Left } from "./open-alarms.ts";
import { awayAfterMs, roleOf, roles, ruleIsOff, type Role, type Ruled } from "./alarm-rules.ts";

/** Nodes whose silence began within this time count as one cause: a node checks in about once a minute. */
const togetherMs = 75_000;
/** Nodes that exceed their limit by more than this were away before the rule existed: they raise no alarm. */
const staleMs = 3_600_000;
/** After a restart of the server, nodes have so long to check in. */
const settleMs = onlineMs + lateMs;
export const maxNamed = 5;

export const isAwayKind = (kind: string): kind is Role => roles.some((role) => role === kind);
/**
 * Whether an alarm is about nodes that are away: then its heads are ids of nodes. Other alarms of these kinds have other heads
 * (hub-causes.ts).
 */
export const isAboutAway = ({ kind, heads }: Pick<AlarmRow, "kind" | "heads">): boolean =>
  isAwayKind(kind) && heads.every((key) => /^\d+$/.test(key));
export const isSettled = ({ now, upFrom }: Silence) => now - upFrom >= settleMs;

export type Away = {
  org: Ruled;
  silence: Silence;
  /** The silent nodes of the organization. */
  silent: readonly SilentNode[];
  /** How many peers reach a silent node, by its id; nodes that none reaches are left out. */
  reached: Map<number, number>;
};

export async function readAway(
  db: Reader,
  org: Ruled,
  silence: Silence,
  silent: readonly SilentNode[],
): Promise<Away> {
  return { org, silence, silent, reached: await reachedBy(db, org.id, silent, silence.now) };
}

/** What is left of an alarm. A node counts as back only if two peers reach it: one alone may be wrong. */
export function awayLeft({ org, silent, reached }: Away, { heads, rest }: AlarmRow): Left {
  const away = silent.filter(({ id }) => (reached.get(id) ?? 0) < 2);
  const stillAway = new Set(
    away.flatMap((node) => (awayAfterMs(org, node) === undefined ? [] : [String(node.id)])),
  );
  // `why` is for an alarm without a head that is left. If one of its heads is away all the same, its rule was switched off.
  const isRuleOff = away.some(({ id }) => heads.includes(String(id)));
  return {
    heads: heads.filter((key) => stillAway.has(key)),
    rest: rest.filter((key) => stillAway.has(key)),
    why: isRuleOff ? ruleIsOff : undefined,
  };
}

/** Causes that no open alarm is about. `covered`: the keys of nodes that open alarms are about. */
export async function awayCauses(db: Reader, away: Away, covered: ReadonlySet<string>): Promise<Cause[]> {
  const { org, silence, silent, reached } = away;
  // One peer that reaches a node is enough to raise no alarm about it.
  const uncovered = silent.filter(({ id }) => !covered.has(String(id)) && !reached.has(id));
  const candidates = uncovered.flatMap((node) => {
    const afterMs = awayAfterMs(org, node);
    // A report may be noticed `lateMs` late.
    return afterMs === undefined ? [] : [{ node, overMs: node.silentMs - afterMs - lateMs }];
  });
  const due = candidates.filter(({ overMs }) => overMs >= 0);
  if (due.length === 0) return [];
  const lostIds = await lostLately(
    db,
    org.id,
    due.map(({ node }) => node),
    silence.now,
  );
  const newlyAway = due.filter(({ node, overMs }) => overMs < staleMs || lostIds.has(node.id));
  const causes: Cause[] = [];
  /** The ids of nodes that belong to a cause. */
  const taken = new Set<number>();
  const byRole = (a: SilentNode, b: SilentNode) => roles.indexOf(roleOf(a)) - roles.indexOf(roleOf(b));
  for (const { node } of newlyAway.sort((a, b) => byRole(a.node, b.node) || a.node.id - b.node.id)) {
    if (taken.has(node.id)) continue;
    // Also nodes whose own time is not over yet: what fell silent together has one cause.
    const members = candidates
      .map((each) => each.node)
      .filter((each) => !taken.has(each.id) && Math.abs(each.silentFrom - node.silentFrom) <= togetherMs)
      .sort((a, b) => byRole(a, b) || a.id - b.id);
    for (const { id } of members) taken.add(id);
    causes.push(await causeOf(db, away, members));
  }
  return causes;
}

const brokenPeer = computed({ peer: text(), at: integer() });

/** Silent nodes that peers reached until lately: their absence is new, however old their last check-in is. */
async function lostLately(
  db: Reader,
  orgId: number,
  due: readonly SilentNode[],
  now: number,
): Promise<Set<number>> {
  /** The id of each node by its addresses. */
  const owners = new Map(due.flatMap(({ id, ip, ip6 }) => [[ip, id] as const, [ip6 ?? ip, id] as const]));
  const lost = new Set<number>();
  await inParts([...owners.keys()], async (some) => {
    const sql = `SELECT peer, max(at) AS at FROM paths
      WHERE org_id = $1 AND probe = 'broken' AND at > $2 AND peer IN (${places(some, 3)}) GROUP BY peer`;
    for (const { peer } of await queryAll(db, brokenPeer, sql, [orgId, now - staleMs, ...some]))
      lost.add(owners.get(peer) ?? 0);
  });
  return lost;
}

async function causeOf(db: Reader, away: Away, members: readonly SilentNode[]): Promise<Cause> {
  const { org, silence } = away;
  const [first] = members;
  const kind = first === undefined ? "node" : roleOf(first);
  const heads = members.filter((node) => roleOf(node) === kind);
  // The members are sorted by role, the most needed first: the heads stand before all others.
  const rest = members.slice(heads.length);
  const since = Math.min(...members.map(({ silentFrom }) => silentFrom));
  const lines = [
    `Since ${formatTime(since)}.`,
    ...(await notReachedLine(db, org.id, heads, silence.now)),
    ...(await cutLines(db, away, heads)),
    ...restLines(rest.map(({ name }) => name)),
  ];
  const keys = (of: readonly SilentNode[]) => of.map(({ id }) => String(id));
  return {
    kind,
    heads: keys(heads),
    rest: keys(rest),
    title: awayTitle(
      kind,
      heads.map(({ name }) => name),
      rest.length,
    ),
    text: lines.join("\n"),
    isUrgent: kind === "lighthouse" || kind === "relay" || kind === "router",
    since,
  };
}

export function awayTitle(kind: Role, names: readonly string[], others: number): string {
  const noun = kind === "desktop" ? "node" : kind;
  const who = names.length === 1 ? `The ${noun} ${names[0]} is` : `${names.length} ${noun}s are`;
  const which = names.length === 1 ? "" : `: ${namesOf(names)}`;
  const also =
    others === 0
      ? ""
      : `, and ${others} ${others === 1 ? "node" : "nodes"} with ${names.length === 1 ? "it" : "them"}`;
  return `${who} away${also}${which}`;
}

export function namesOf(names: readonly string[]): string {
  const more = names.length - maxNamed;
  return more > 0 ? `${names.slice(0, maxNamed).join(", ")} and ${more} more` : names.join(", ");
}

const beforeRest = "Silent since then, too: ";
const restLines = (names: readonly string[]) =>
  names.length === 0 ? [] : [`${beforeRest}${namesOf(names)}.`];

/** The text of an alarm with these nodes as its rest. */
export const withRest = (text: string, names: readonly string[]): string =>
  [...text.split("\n").filter((line) => !line.startsWith(beforeRest)), ...restLines(names)].join("\n");

const reporterPick = computed({ name: text() });

/** Which peers do not reach these nodes. */
async function notReachedLine(
  db: Reader,
  orgId: number,
  lost: readonly SilentNode[],
  now: number,
): Promise<string[]> {
  const addresses = lost.slice(0, 100).flatMap(({ ip, ip6 }) => [ip, ip6 ?? ip]);
  const rows = await queryAll(
    db,
    reporterPick,
    `SELECT DISTINCT n.name FROM paths x JOIN nodes n ON n.id = x.node_id JOIN sightings s ON s.node_id = x.node_id
     WHERE x.org_id = $1 AND x.peer IN (${places(addresses, 3)}) AND x.probe = 'broken' AND s.last_checkin_at > $2
     ORDER BY n.name LIMIT 1000`,
    [orgId, now - onlineMs, ...addresses],
  );
  if (rows.length === 0)
    return [
      lost.length === 1
        ? "No peer reports that it is reached, and it does not check in."
        : "No peer reports that one of them is reached, and they do not check in.",
    ];
  return [`Not reached by ${namesOf(rows.map(({ name }) => name))}, and no check-in.`];
}

const hub = nodes.pick("id", "name", "isLighthouse", "isRelay", "subnets", "exitGroups");
const alias = computed({ name: text() });

/** One line for each consequence: for lighthouses, relays, networks, exits and names of these nodes. */
async function cutLines(db: Reader, { org, silent }: Away, heads: readonly SilentNode[]): Promise<string[]> {
  const ids = heads.slice(0, 100).map(({ id }) => id);
  const hubs = await queryAll(
    db,
    hub,
    `SELECT ${hub.select()} FROM nodes WHERE org_id = $1 AND state = 'active'
       AND (is_lighthouse = 1 OR is_relay = 1 OR subnets <> '[]')`,
    [org.id],
  );
  const gone = new Set(silent.map(({ id }) => id));
  const online = hubs.filter(({ id }) => !gone.has(id));
  const stillThere = (of: readonly { name: string }[], none: string) =>
    of.length === 0 ? none : `Still there: ${namesOf(of.map(({ name }) => name))}.`;
  const lines: string[] = [];
  if (heads.some(({ isLighthouse }) => isLighthouse))
    lines.push(
      stillThere(
        online.filter(({ isLighthouse }) => isLighthouse),
        "There is no other lighthouse: nodes that have no tunnel yet do not find each other.",
      ),
    );
  const relays = online.filter(({ isRelay }) => isRelay);
  for (const relay of heads.filter(({ isRelay }) => isRelay)) {
    const count = await countPathsThrough(db, org.id, relay);
    const paths = `${count} ${count === 1 ? "path" : "paths"} went through ${relay.name}.`;
    if (count > 0) lines.push(`${paths} ${stillThere(relays, "There is no other relay.")}`);
  }
  for (const network of new Set(heads.flatMap(({ subnets }) => subnets))) {
    const by = online.filter(({ subnets }) => subnets.includes(network));
    lines.push(
      by.length === 0
        ? `Cut off: ${network}.`
        : `${network} goes through ${namesOf(by.map(({ name }) => name))}.`,
    );
  }
  const exits = heads.filter(({ exitGroups }) => exitGroups.length > 0);
  if (exits.length > 0)
    lines.push(
      heads.length === 1
        ? "It is an exit to the internet."
        : `Exits to the internet: ${namesOf(exits.map(({ name }) => name))}.`,
    );
  const aliases = await queryAll(
    db,
    alias,
    `SELECT name FROM name_aliases WHERE node_id IN (${places(ids, 1)}) AND deleted_at IS NULL ORDER BY name LIMIT 100`,
    ids,
  );
  if (aliases.length > 0)
    lines.push(
      `These names lead to ${heads.length === 1 ? "it" : "them"}: ${namesOf(aliases.map(({ name }) => name))}.`,
    );
  return lines;
}

/** At most 10,000. Nodes report their relays by name or by address. */
function countPathsThrough(db: Reader, orgId: number, { name, ip }: SilentNode): Promise<number> {
  const sql = `SELECT count(*) AS n FROM (SELECT 1 AS one FROM paths WHERE org_id = $1 AND path = 'relayed'
    AND (relays LIKE $2 OR relays LIKE $3) LIMIT 10000) x`;
  return queryNumber(db, sql, [orgId, `%"${name}"%`, `%"${ip}"%`]);
}
