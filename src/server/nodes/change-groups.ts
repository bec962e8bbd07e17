// Changes the groups of many nodes in one transaction. It signs nothing, because ten thousand signatures would make all other
// requests wait for half a minute: a node gets its certificate when it comes for its new configuration, as at a renewal.

import { limitCertificates, limitCertificatesOfAll } from "../certificates/blocklist.ts";
import { readIssuingOrg } from "../certificates/issue.ts";
import { publishNames } from "../names/publish.ts";
import type { Transaction, Value } from "../store/database.ts";
import { places, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { notifyNodes, raiseNamesVersion, takeVersion } from "../store/versions.ts";
import { gainsGroup } from "./node-differences.ts";
import { blockAfterMs } from "./lifecycle/upkeep.ts";

export const groupedNode = nodes.pick("id", "name", "state", "groups", "ownerId", "ownerGroups");
type GroupedNode = ReturnType<typeof groupedNode.parse>;
export type Regrouped = { before: GroupedNode; after: GroupedNode };

/** Nodes of one statement: 5 ms on SQLite. */
const together = 250;

// Statements for `inChunks`: `ids` are the places of the nodes' ids, after the other parameters. A check-in reads renew_at
// of the node to learn that a renewal is due; the renewal then issues what renew_at of the certificates says. A node that
// loses a group needs no `makeDue`: it has no current certificate any more.

/** $1: the time of the block, ms. $2: the version. $3: now, ms. */
const retire = (ids: string) => `UPDATE certificates SET state = 'former',
    block_after = coalesce(block_after, $1), block_version = CASE WHEN block_version < $2 THEN block_version ELSE $2 END
  WHERE node_id IN (${ids}) AND kind = 'overlay' AND state <> 'blocked' AND not_after > $3`;
/** No parameters. */
const makeDue = (ids: string) => `UPDATE certificates SET renew_at = 0
  WHERE node_id IN (${ids}) AND kind = 'overlay' AND state = 'current'
    AND authority_id NOT IN (SELECT id FROM authorities WHERE offline = 1)`;
/** $1: groups, $2: groups of the owner, both as JSON. */
const setGroups = (ids: string) => `UPDATE nodes SET groups = $1, owner_groups = $2 WHERE id IN (${ids})`;
/** $1 and $2: as for `setGroups`. $3: the version, $4: that of the names. */
const publish = (
  ids: string,
) => `UPDATE nodes SET groups = $1, owner_groups = $2, own_version = $3, names_version = $4,
  renew_at = 0 WHERE id IN (${ids})`;

/**
 * Certificates of nodes that lose a group are former from now on, and blocked in time whether their nodes come or not. A node
 * that only gains keeps the present one until it comes. Throws too_many_certificates if such a node may get no more of them.
 * `isBounded` false: a rollback (policy-files/), in which nodes get back what they had.
 */
export async function changeGroups(
  tx: Transaction,
  orgId: number,
  changes: readonly Regrouped[],
  now: number,
  { isBounded = true } = {},
): Promise<void> {
  if (changes.length === 0) return;
  const active = changes.filter(({ before }) => before.state === "active");
  const losing = active.filter(({ before, after }) => gainsGroup(after, before));
  const gaining = active.filter(({ before, after }) => gainsGroup(before, after));
  const concerned = new Set([...losing, ...gaining]);
  // Taking rights away is a revocation, which is never refused.
  if (isBounded) await limitGaining(tx, orgId, gaining, now);
  const version = await takeVersion(tx, orgId);
  // The names that nodes see depend on groups.
  const namesVersion = await raiseNamesVersion(tx, orgId);
  const others = changes.filter((each) => !concerned.has(each));
  for (const [alike, groups] of alikeIn(others)) await inChunks(tx, alike, groups, setGroups);
  for (const [alike, groups] of alikeIn([...concerned]))
    await inChunks(tx, alike, [...groups, version, namesVersion], publish);
  await inChunks(tx, losing, [now + blockAfterMs, version, now], retire);
  await inChunks(tx, gaining, [], makeDue);
  const renamed = changes.filter(({ before, after }) => before.groups !== after.groups);
  await publishNames(tx, orgId, renamed.map(idOf));
  await notifyNodes(tx, orgId, [...concerned].map(idOf));
}

/** Nodes that get the same groups, with the stored form of these. */
function alikeIn(changes: readonly Regrouped[]): [Regrouped[], string[]][] {
  const keyOf = ({ after }: Regrouped) =>
    `${JSON.stringify(after.groups)} ${JSON.stringify(after.ownerGroups)}`;
  return [...Map.groupBy(changes, keyOf).values()].map((alike) => {
    const [first] = alike;
    return [alike, [JSON.stringify(first?.after.groups), JSON.stringify(first?.after.ownerGroups)]];
  });
}

async function limitGaining(
  tx: Transaction,
  orgId: number,
  gaining: readonly Regrouped[],
  now: number,
): Promise<void> {
  const [first] = gaining;
  if (first === undefined) return;
  // The limit of the organization is the same for all nodes. That of each node follows.
  await limitCertificates(tx, await readIssuingOrg(tx, orgId), first.before, now);
  for (const some of chunksOf(gaining)) {
    await limitCertificatesOfAll(tx, orgId, now, some.map(idOf));
    await tx.pause();
  }
}

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
  Array.from({ length: Math.ceil(list.length / together) }, (_, at) =>
    list.slice(at * together, (at + 1) * together),
  );
