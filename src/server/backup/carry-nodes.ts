// Carries what nodes lost since the backup into the restored database: revocations, rights, tokens, addresses and names. `old`
// is the replaced database and `tx` the restored one; of a node, `replaced` and `restored` are its rows in them.

import { blockAfterMs } from "../nodes/lifecycle/upkeep.ts";
import { leaveAddresses } from "../allocation/address-pool.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { boundHolds } from "../allocation/holds.ts";
import { certifiedText } from "../nodes/node-differences.ts";
import { computed, integerOrNull, queryAll, queryNumber, queryOne, textOrNull } from "../store/table.ts";
import { authorities, certificates } from "../store/tables/certificates.ts";
import { addresses, heldNames, nodes, type NodeRow } from "../store/tables/nodes.ts";
import { users } from "../store/tables/users.ts";
import type { Carried } from "./carried.ts";

/** `version`: the configuration version that nodes fetch next. */
type Org = { id: number; slug: string; version: number };

type Overrides = Pick<NodeRow, "configOverrides">;

export const doOverridesDiffer = (one: Overrides, other: Overrides) =>
  JSON.stringify(one.configOverrides) !== JSON.stringify(other.configOverrides);

const replaceNode = `ON CONFLICT (id) DO UPDATE SET ${nodes.columnNames
  .filter((name) => name !== "id")
  .map((name) => `${name} = excluded.${name}`)
  .join(", ")}`;

/** `carried`: what the operator is told, such as the nodes whose overrides are those of the backup again. */
export async function carryNodes(old: Reader, tx: Transaction, org: Org, now: number, carried: Carried) {
  for (const replaced of await nodes.all(old, { orgId: org.id })) {
    const restored = await nodes.find(tx, { id: replaced.id });
    if (restored !== undefined && replaced.state !== "revoked" && doOverridesDiffer(restored, replaced))
      carried.overrides_back.push(`${org.slug}/${replaced.name}`);
    if (restored?.state === "pending" && replaced.state !== "revoked")
      await narrowRights(tx, replaced, restored);
    if (replaced.state !== "pending") await carryNode(old, tx, org, { replaced, restored }, now, carried);
  }
  await carryHeldNames(old, tx, org);
  // At its next check-in each node gets the certificates that it lacks.
  await nodes.update(tx, { orgId: org.id, state: "active" }, { renewAt: 0 });
}

/** `restored`: undefined: the backup lacks the node. */
type Node = { replaced: NodeRow; restored: NodeRow | undefined };

/** Carries a node that was active or revoked. */
async function carryNode(
  old: Reader,
  tx: Transaction,
  org: Org,
  node: Node,
  now: number,
  carried: Carried,
): Promise<void> {
  const { replaced, restored } = node;
  const { id } = replaced;
  await carryState(tx, org, node, now, carried);
  await carryCertificates(old, tx, org, id, now);
  if (replaced.state === "active" && restored?.state === "active")
    await carryRights(tx, replaced, restored, now);
  // An ephemeral node that ended has no blocked certificates.
  else if (replaced.endedAt === null) await block(tx, org, id, now);
  await carryAddresses(old, tx, org, id);
  if (restored?.state !== "revoked") await carryName(old, tx, org, replaced);
}

/** Revokes the node if it was revoked. Reports it as lost if its machine has to register again. */
async function carryState(
  tx: Transaction,
  org: Org,
  { replaced, restored }: Node,
  now: number,
  carried: Carried,
): Promise<void> {
  if (replaced.state === "revoked") {
    if (restored?.state !== "revoked") carried.revoked_nodes++;
    // Not an owner that the backup lacks: such a user has no row any more.
    await nodes.upsert(tx, { ...replaced, ownerId: restored?.ownerId ?? null }, replaceNode);
  } else if (restored?.state !== "active") {
    addLost(carried, org, replaced);
    if (restored === undefined) await insertTombstone(tx, replaced, now);
    // If the node was revoked before the backup and restored after it, it accepts no older order. The server signs a new one
    // when the node asks.
    else await nodes.update(tx, { id: replaced.id }, { orderJws: null });
  } else if (replaced.tokenHash !== null && hasLostRegistration(replaced, restored)) {
    addLost(carried, org, replaced);
  }
}

function addLost({ lost_nodes, register_again }: Carried, { slug }: Org, { name }: NodeRow): void {
  lost_nodes.push(name);
  register_again.push(`${slug}/${name}`);
}

/** Whether the machine of a node that was imported registered after the backup, which lacks its key and its token. */
function hasLostRegistration(replaced: NodeRow, restored: NodeRow): boolean {
  return restored.tokenHash === null || restored.hostPublicKey !== replaced.hostPublicKey;
}

/** A node that registered after the backup. It has to register again, with a token for its name. */
async function insertTombstone(tx: Transaction, node: NodeRow, now: number): Promise<void> {
  await nodes.insert(tx, {
    ...node,
    state: "revoked",
    revokedAt: now,
    revokedBy: "operator/",
    revokeReason: "registered after the backup that was restored",
    hostPublicKey: null,
    csr: null,
    csrKeySha256: null,
    tokenHash: null,
  });
}

/** Stores every overlay certificate that has not expired, so that it can be blocked. Blocked ones stay blocked. */
async function carryCertificates(
  old: Reader,
  tx: Transaction,
  org: Org,
  nodeId: number,
  now: number,
): Promise<void> {
  const rows = await queryAll(
    old,
    certificates,
    `SELECT ${certificates.select()} FROM certificates
     WHERE node_id = $1 AND kind = 'overlay' AND not_after > $2 ORDER BY id`,
    [nodeId, now],
  );
  if (rows.some(({ state }) => state === "current")) {
    await certificates.update(tx, { nodeId, kind: "overlay", state: "current" }, { state: "former" });
  }
  for (const { id: _, ...row } of rows) {
    // Nothing trusts a CA that the backup does not have.
    if ((await authorities.find(tx, { id: row.authorityId })) === undefined) continue;
    await certificates.upsert(
      tx,
      row.state === "blocked" ? { ...row, blockedAtVersion: org.version } : row,
      `ON CONFLICT (fingerprint) DO UPDATE SET state = excluded.state, block_after = excluded.block_after,
         block_version = excluded.block_version, blocked_at = excluded.blocked_at,
         blocked_at_version = excluded.blocked_at_version
       WHERE certificates.state <> 'blocked'`,
    );
  }
}

/** Blocks all certificates of a node that is gone, with the version that all nodes fetch next. */
async function block(tx: Transaction, org: Org, nodeId: number, now: number): Promise<void> {
  await tx.run(
    `UPDATE certificates SET state = 'blocked', block_after = NULL, blocked_at = $2, blocked_at_version = $3
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $2`,
    [nodeId, now, org.version],
  );
}

/**
 * Removes groups and subnets that the node had lost, and groups that had lost it as their exit. Its certificates that may grant
 * more than that end soon.
 */
async function carryRights(
  tx: Transaction,
  replaced: NodeRow,
  restored: NodeRow,
  now: number,
): Promise<void> {
  await narrowRights(tx, replaced, restored);
  if (certifiedText(restored) === certifiedText(replaced) && restored.ip6 === replaced.ip6) return;
  await tx.run(
    `UPDATE certificates SET state = 'former', block_after = coalesce(block_after, $2)
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $3`,
    [replaced.id, now + blockAfterMs, now],
  );
}

/** Leaves the node the rights that it has in both databases. */
async function narrowRights(tx: Transaction, replaced: NodeRow, restored: NodeRow): Promise<void> {
  const inBoth = (field: "groups" | "subnets" | "exitGroups") =>
    restored[field].filter((each) => replaced[field].includes(each));
  const [groups, subnets, exitGroups] = [inBoth("groups"), inBoth("subnets"), inBoth("exitGroups")];
  // A former owner gets nothing back. A user that the backup lacks has no row any more, so cannot be an owner.
  const { ownerId: lastOwner } = replaced;
  const isKnown = lastOwner !== null && (await users.find(tx, { id: lastOwner })) !== undefined;
  const ownerId = isKnown ? lastOwner : null;
  // A name server gets the names of all nodes.
  const isNameServer = restored.isNameServer && replaced.isNameServer;
  await nodes.update(tx, { id: replaced.id }, { groups, subnets, exitGroups, ownerId, isNameServer });
}

const nodeToken = nodes.pick("id", "hostPublicKey", "tokenHash");

/** Only the last token that a node was given stays valid. */
export async function carryNodeTokens(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const sql = `SELECT ${nodeToken.select()} FROM nodes
    WHERE org_id = $1 AND state = 'active' AND token_hash IS NOT NULL`;
  for (const { id, hostPublicKey, tokenHash } of await queryAll(old, nodeToken, sql, [orgId])) {
    await tx.run(
      `UPDATE nodes SET token_hash = $3
       WHERE id = $1 AND host_public_key = $2 AND state = 'active' AND token_hash <> $3`,
      [id, hostPublicKey, tokenHash],
    );
  }
}

/** The latest end of a node's overlay certificates, and the node's state, which is the same in all rows that are joined. */
const lastCertificate = computed({ until: integerOrNull(), state: textOrNull() });

/** Keeps an address from other nodes while a certificate of this node names it. */
async function carryAddresses(old: Reader, tx: Transaction, org: Org, nodeId: number): Promise<void> {
  const found = await queryOne(
    tx,
    lastCertificate,
    `SELECT max(c.not_after) AS until, max(n.state) AS state FROM nodes n
     LEFT JOIN certificates c ON c.node_id = n.id AND c.kind = 'overlay' WHERE n.id = $1`,
    [nodeId],
  );
  const until = found?.until ?? 0;
  for (const address of await addresses.all(old, { orgId: org.id, nodeId })) {
    await addresses.upsert(
      tx,
      { ...address, heldUntil: address.heldUntil ?? until, freeAt: null, recheckVersion: null },
      `ON CONFLICT (org_id, host) DO UPDATE SET node_id = excluded.node_id, held_version = excluded.held_version,
         held_until = excluded.held_until, free_at = NULL, recheck_version = NULL WHERE addresses.node_id IS NULL`,
    );
  }
  if (found?.state === "revoked") {
    await leaveAddresses(tx, org.id, nodeId, { version: org.version, until });
    // All its certificates are blocked now, so the hold can end with the confirmation of that version.
    await boundHolds(tx, nodeId, org.version);
  }
}

/**
 * Holds the node's last name if the restored database has another name for it, or has revoked it. `heldUntil`: the end of the last
 * node.crt (X.509), which services trust by the name in it.
 */
async function carryName(old: Reader, tx: Transaction, org: Org, { id, name }: NodeRow): Promise<void> {
  const present = await nodes.find(tx, { id, name });
  if (present !== undefined && present.state !== "revoked") return;
  const heldUntil = await queryNumber(
    old,
    "SELECT coalesce(max(not_after), 0) AS n FROM certificates WHERE node_id = $1 AND kind = 'x509'",
    [id],
  );
  await holdName(tx, org, { orgId: org.id, name, nodeId: id, heldUntil });
}

async function carryHeldNames(old: Reader, tx: Transaction, org: Org): Promise<void> {
  for (const row of await heldNames.all(old, { orgId: org.id })) {
    if ((await nodes.find(tx, { id: row.nodeId })) !== undefined) await holdName(tx, org, row);
  }
}

/** Holds a name until all nodes have confirmed the version that they fetch next. */
async function holdName(
  tx: Transaction,
  org: Org,
  name: Parameters<typeof heldNames.insert>[1],
): Promise<void> {
  await heldNames.upsert(
    tx,
    { ...name, heldVersion: org.version, freeAt: null },
    `ON CONFLICT (org_id, name, node_id) DO UPDATE
       SET held_version = excluded.held_version, held_until = excluded.held_until, free_at = NULL`,
  );
}
