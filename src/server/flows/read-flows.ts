// Reads reported flows in slices, and merges what sender and receiver report of the same flows. Also reads the nodes that they
// name.

import { AppError } from "../../base/errors.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import { nextRound } from "../http/heavy-work.ts";
import type { Reader } from "../store/database.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import {
  computed,
  integer,
  integerOrNull,
  joined,
  places,
  queryAll,
  queryOne,
  text,
} from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { flowBlockOf, flowSides } from "../store/tables/paths.ts";

/** Throws bad_request if `at` is in the future; both in ms. */
export function requirePast(at: number, now: number): void {
  if (at > now) throw new AppError("bad_request", "This moment has not come yet.");
}

type Counts = { flows: number; answered: number };
/** Flows from one node or address to another, of one protocol and port. */
export type Observed = {
  /** The ids of sender and receiver. 0: no node had the address for the whole interval. */
  from: number;
  to: number;
  /** The address of the peer, as the node saw it. */
  address: string;
  protocol: string;
  /** 0: the protocol has none. */
  port: number;
  /** As the sender and the receiver reported it; undefined: it reported nothing of it. */
  sent: Counts | undefined;
  received: Counts | undefined;
  /** Times of the first and the last interval with such flows, ms. */
  firstAt: number;
  lastAt: number;
};

/**
 * Of which time a node reported: from `firstAt` to `lastAt`, ms, without `unseenS` seconds in which it could not see its flows.
 * `uncounted`: flows that it saw and did not list.
 */
export type Coverage = { firstAt: number; lastAt: number; unseenS: number; uncounted: number };
export type ReadFlows = {
  /** Whether the organization wants flows. If not, none are read: earlier ones are being deleted. */
  isWanted: boolean;
  observed: Observed[];
  /** By the id of the node that reported. */
  coverage: Map<number, Coverage>;
  /** How many kinds of flows were left out, because more than `maxKinds` would not fit into memory. */
  leftOut: number;
};

const dayMs = 86_400_000;
/** Nodes of one query: few enough that check-ins do not wait for it. */
const nodesAtOnce = 10;
/** A kind: one sender, receiver, protocol and port. */
const maxKinds = 200_000;

const flowPick = computed({
  nodeId: integer(),
  side: integer(),
  peer: integer(),
  address: text(),
  protocol: text(),
  port: integer(),
  flows: integer(),
  answered: integer(),
  unseenS: integer(),
  firstAt: integer(),
  lastAt: integer(),
});
type Row = ReturnType<typeof flowPick.parse>;
const wantedPick = organizations.pick("flows");
const readWanted = `SELECT ${wantedPick.select()} FROM organizations WHERE id = $1`;

const kindColumns = "node_id, side, peer, address, protocol, port";
/** CAST: PostgreSQL sums up a BIGINT as NUMERIC, which is read as a text. */
const sumOf = (column: string) => `CAST(sum(${column}) AS BIGINT) AS ${column}`;
const sumsIn = (from: string, by: string) =>
  `SELECT ${kindColumns}, ${sumOf("flows")}, ${sumOf("answered")}, ${sumOf("unseen_s")}, min(first_at) AS first_at, max(last_at) AS last_at
   FROM ${from} GROUP BY ${by}`;

/**
 * Sums by block and kind first, in the order of the table, then by kind: so the database sorts few rows. $1: the block of the day $3.
 * $2: a side. $4: ms. $5 on: `ids`.
 */
function sumsOf(ids: readonly number[]): string {
  const wanted = `node_id IN (${places(ids, 5)}) AND block >= $1 AND side >= $2 AND day >= $3 AND last_at >= $4`;
  return sumsIn(`(${sumsIn(`flows WHERE ${wanted}`, `block, ${kindColumns}`)}) AS sums`, kindColumns);
}

/**
 * What these nodes reported since the time `since`, ms. `sides.from`: only rows whose `side` is at least this: `out` reads all,
 * `summary` the coverage alone.
 */
export async function readFlows(
  reader: Reader,
  orgId: number,
  nodeIds: readonly number[],
  since: number,
  sides: { from: number } = { from: flowSides.out },
): Promise<ReadFlows> {
  const kinds = new Map<string, Observed>();
  const coverage = new Map<number, Coverage>();
  const isWanted = (await queryOne(reader, wantedPick, readWanted, [orgId]))?.flows === true;
  const asked = isWanted ? nodeIds : [];
  const day = Math.floor(since / dayMs);
  let leftOut = 0;
  for (let first = 0; first < asked.length; first += nodesAtOnce) {
    const some = asked.slice(first, first + nodesAtOnce);
    const params = [flowBlockOf(day), sides.from, day, since, ...some];
    const rows = await queryAll(reader, flowPick, sumsOf(some), params);
    for (const each of rows) {
      // In a summary, `flows` counts those that are in no row.
      if (each.side === flowSides.summary) coverage.set(each.nodeId, { ...each, uncounted: each.flows });
      else if (!addKind(kinds, each)) leftOut++;
    }
    await nextRound();
  }
  return { isWanted, observed: [...kinds.values()], coverage, leftOut };
}

/** Adds a row to its kind. False if there are too many kinds. */
function addKind(kinds: Map<string, Observed>, row: Row): boolean {
  const { nodeId, peer, address, protocol, port, firstAt, lastAt } = row;
  const isIn = row.side === flowSides.in;
  const from = isIn ? peer : nodeId;
  const to = isIn ? nodeId : peer;
  // A node may have two addresses: both are the same peer.
  const key = `${from} ${to} ${peer === 0 ? address : ""} ${protocol} ${port}`;
  let kind = kinds.get(key);
  if (kind === undefined) {
    if (kinds.size >= maxKinds) return false;
    kind = { from, to, address, protocol, port, sent: undefined, received: undefined, firstAt, lastAt };
    kinds.set(key, kind);
  }
  const side = isIn ? "received" : "sent";
  const counted = kind[side] ?? { flows: 0, answered: 0 };
  kind[side] = { flows: counted.flows + row.flows, answered: counted.answered + row.answered };
  kind.firstAt = Math.min(kind.firstAt, firstAt);
  kind.lastAt = Math.max(kind.lastAt, lastAt);
  return true;
}

const nodePick = nodes.pick(
  "id",
  "name",
  "ip",
  "ip6",
  "state",
  "ownerId",
  "groups",
  "ownerGroups",
  "subnets",
  "phone",
  "createdAt",
  "registeredAt",
);
const reportersAtOnce = 500;
const reporterPick = joined("n", nodePick, "s", computed({ lastCheckinAt: integerOrNull() }));
const reporterSlice = `SELECT ${nodePick.select()}, last_checkin_at FROM ${nodesWithSightings}
  WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT ${reportersAtOnce}`;

/** A node as rules see it: `groups` are those of its certificate. */
export type Reporter = ReturnType<typeof reporterPick.parse> & { isRouter: boolean };

/** All nodes, also revoked ones, by id. */
export async function readReporters(reader: Reader, orgId: number): Promise<Map<number, Reporter>> {
  const found = new Map<number, Reporter>();
  for (let last = 0; ;) {
    const rows = await queryAll(reader, reporterPick, reporterSlice, [orgId, last]);
    for (const each of rows)
      found.set(each.id, { ...each, groups: certifiedGroups(each), isRouter: each.subnets.length > 0 });
    last = rows.at(-1)?.id ?? last;
    if (rows.length < reportersAtOnce) return found;
    await nextRound();
  }
}
