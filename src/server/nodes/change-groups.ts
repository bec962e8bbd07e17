// Changes the groups of many nodes in one transaction. It signs nothing, because ten thousand signatures would make all other
// requests wait for half a minute: a node gets its certificate when it comes for its new configuration, as at a renewal.

import { limitCertificatesOfAll } from "../certificates/blocklist.ts";
import { publishNames } from "../names/publish.ts";
import type { Transaction, Value } from "../store/database.ts";
import { places, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { notifyNodes, raiseNamesVersion, takeVersion } from "../store/versions.ts";
import { hasGroupBeyond } from "./node-differences.ts";
import { blockAfterMs } from "./lifecycle/upkeep.ts";

export const groupedNode = nodes.pick("id", "name", "state", "groups", "ownerId", "ownerGroups");
type GroupedNode = ReturnType<typeof groupedNode.parse>;
export type Regrouped = { before: GroupedNode; after: GroupedNode };

/** Nodes of one statement: 5 ms on SQLite. */
const chunkSize = 250;

// Statements for `inChunks`: `ids` are the places of the nodes' ids, after the other parameters. A check-in reads `renew_at`
// of the node to learn that a renewal is due; the renewal then issues what `renew_at` of the certificates says. For a node that
// loses a group, `makeDueSql` is not needed: it has no current certificate any more.

/**
 * Makes the certificates former ones. $1: the time of their block, ms. $2: the version. $3: now, ms. One that is to be blocked already
 * keeps its time and the lower version.
 */
const retireSql = (ids: string) => `UPDATE certificates SET state = 'former',
    block_after = coalesce(block_after, $1), block_version = CASE WHEN block_version < $2 THEN block_version ELSE $2 END
  WHERE node_id IN (${ids}) AND kind = 'overlay' AND state <> 'blocked' AND not_after > $3`;
/** Makes the current certificates due for renewal. Signers renew those of an offline CA. No parameters. */
const makeDueSql = (ids: string) => `UPDATE certificates SET renew_at = 0
  WHERE node_id IN (${ids}) AND kind = 'overlay' AND state = 'current'
    AND authority_id NOT IN (SELECT id FROM authorities WHERE offline = 1)`;
/** $1: groups, $2: groups of the owner, both as JSON. */
const setGroupsSql = (ids: string) => `UPDATE nodes SET groups = $1, owner_groups = $2 WHERE id IN (${ids})`;
/** Sets the groups of nodes whose certificates change. $1 and $2: as for `setGroupsSql`. $3: the version, $4: that of the names. */
const setCertifiedGroupsSql = (
  ids: string,
) => `UPDATE nodes SET groups = $1, owner_groups = $2, own_version = $3, names_version = $4,
  renew_at = 0 WHERE id IN (${ids})`;

/**
 * Changes the groups. Certificates of nodes that lose a group are former from now on, and blocked in time whether their nodes come
 * or not. A node that only gains groups keeps its present certificate until it comes. Throws too_many_certificates if such a node
 * may get no more of them, unless `isBounded` is false: in a rollback (policy-files/), nodes get back what they had.
 */
export async function changeGroups(
  tx: Transaction,
  orgId: number,
  changes: readonly Regrouped[],
  now: number,
  { isBounded }: { isBounded: boolean },
): Promise<void> {
  if (changes.length === 0) return;
  const active = changes.filter(({ before }) => before.state === "active");
  const losing = active.filter(({ before, after }) => hasGroupBeyond(before, after));
  const gaining = active.filter(({ before, after }) => hasGroupBeyond(after, before));
  /** Nodes whose certificates change. */
  const certified = new Set([...losing, ...gaining]);
  // Taking rights away is a revocation, which is never refused.
  if (isBounded) await limitGaining(tx, orgId, gaining, now);
  const version = await takeVersion(tx, orgId);
  // The names that nodes see depend on groups.
  const namesVersion = await raiseNamesVersion(tx, orgId);
  const others = changes.filter((change) => !certified.has(change));
  for (const { alike, stored } of alikeIn(others)) await inChunks(tx, alike, stored, setGroupsSql);
  for (const { alike, stored } of alikeIn([...certified]))
    await inChunks(tx, alike, [...stored, version, namesVersion], setCertifiedGroupsSql);
  await inChunks(tx, losing, [now + blockAfterMs, version, now], retireSql);
  await inChunks(tx, gaining, [], makeDueSql);
  // A change of the owner's groups alone keeps the array `groups`: what is published of the node has only these.
  const republished = changes.filter(({ before, after }) => before.groups !== after.groups);
  await publishNames(tx, orgId, republished.map(idOf));
  await notifyNodes(tx, orgId, [...certified].map(idOf));
}

/** Nodes that get the same groups, with what is stored of these: the node's own and those of its owner, as JSON. */
function alikeIn(changes: readonly Regrouped[]): { alike: Regrouped[]; stored: string[] }[] {
  const keyOf = ({ after }: Regrouped) =>
    `${JSON.stringify(after.groups)} ${JSON.stringify(after.ownerGroups)}`;
  return [...Map.groupBy(changes, keyOf).values()].map((alike) => {
    const [first] = alike;
    return { alike, stored: [JSON.stringify(first?.after.groups), JSON.stringify(first?.after.ownerGroups)] };
  });
}

/** Throws too_many_certificates. */
async function limitGaining(
  tx: Transaction,
  orgId: number,
  gaining: readonly Regrouped[],
  now: number,
): Promise<void> {
  for (const some of chunksOf(gaining)) {
    await limitCertificatesOfAll(tx, orgId, now, some.map(idOf));
    await tx.pause();
  }
}

/** Runs the statement for so many nodes at a time that other writers get their turns in between. */
async function inChunks(
  tx: Transaction,
  changes: readonly Regrouped[],
  params: readonly Value[],
  sql: (ids: string) => string,
): Promise<void> {
  for (const some of chunksOf(changes)) {
    await tx.run(sql(places(some, params.length + 1)), [...params, ...some.map(idOf)]);
    await tx.pause();
  }
}

/** The nodes with these ids that are not revoked. */
export async function readGrouped(
  tx: Transaction,
  orgId: number,
  ids: readonly number[],
): Promise<GroupedNode[]> {
  const found: GroupedNode[] = [];
  for (const some of chunksOf(ids)) {
    const sql = `SELECT ${groupedNode.select()} FROM nodes
      WHERE org_id = $1 AND state <> 'revoked' AND id IN (${places(some, 2)})`;
    found.push(...(await queryAll(tx, groupedNode, sql, [orgId, ...some])));
    await tx.pause();
  }
  return found;
}

const idOf = ({ before }: Regrouped) => before.id;

const chunksOf = <T>(list: readonly T[]): T[][] =>
  Array.from({ length: Math.ceil(list.length / chunkSize) }, (_, at) =>
    list.slice(at * chunkSize, (at + 1) * chunkSize),
  );
