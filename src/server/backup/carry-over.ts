// What a restored backup must not forget: rights that ended after it was made. Nodes, tokens, members and passwords are
// as the replaced database had them where that is less; what was gained since is lost with it.

import { blockAfterMs } from "../nodes/upkeep.ts";
import { insertRow } from "../store/copy.ts";
import { leaveAddresses } from "../store/address-pool.ts";
import { boundHolds } from "../store/holds.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  textsOf,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";

export type Carried = {
  revoked_nodes: number;
  lost_nodes: string[];
  /** Organizations whose CA was changed since: what was retired is trusted again. */
  authorities_lost: string[];
};

/** `old`: the replaced database. Versions of the configuration were raised before. `now` in ms. */
export async function carryOver(old: Reader, tx: Transaction, now: number): Promise<Carried> {
  const carried: Carried = { revoked_nodes: 0, lost_nodes: [], authorities_lost: [] };
  for (const org of await tx.all("SELECT id, slug, created_at, config_version FROM organizations")) {
    // Only of the same organization: an id alone may be another installation's.
    const same = await old.get(
      "SELECT deleted_at FROM organizations WHERE id = $1 AND slug = $2 AND created_at = $3",
      [numberOf(org, "id"), textOf(org, "slug"), numberOf(org, "created_at")],
    );
    if (same === undefined) continue;
    const id = numberOf(org, "id");
    await tx.run("UPDATE organizations SET deleted_at = coalesce(deleted_at, $2) WHERE id = $1", [
      id,
      numberOrNull(same, "deleted_at"),
    ]);
    await carryNodes(old, tx, { id, version: numberOf(org, "config_version") }, now, carried);
    await carryNodeTokens(old, tx, id);
    if (await lostAuthority(old, tx, id, now)) carried.authorities_lost.push(textOf(org, "slug"));
    await carryTokens(old, tx, id);
    await carryMembers(old, tx, id);
    await carryWebhooks(old, tx, id);
  }
  await carryPeople(old, tx);
  for (const row of await old.all("SELECT * FROM retired_tokens")) {
    await insertRow(tx, "retired_tokens", row, "ON CONFLICT DO NOTHING");
  }
  return carried;
}

type Org = { id: number; version: number };

async function carryNodes(old: Reader, tx: Transaction, org: Org, now: number, carried: Carried) {
  const nodes = await old.all("SELECT * FROM nodes WHERE org_id = $1 AND state <> 'pending' ORDER BY id", [
    org.id,
  ]);
  for (const node of nodes) {
    const id = numberOf(node, "id");
    const known = await tx.get("SELECT * FROM nodes WHERE id = $1", [id]);
    if (node["state"] === "revoked") {
      if (known?.["state"] !== "revoked") carried.revoked_nodes++;
      const columns = Object.keys(node).filter((each) => each !== "id");
      const set = columns.map((each) => `${each} = excluded.${each}`).join(", ");
      await insertRow(tx, "nodes", node, `ON CONFLICT (id) DO UPDATE SET ${set}`);
    } else if (known?.["state"] !== "active") {
      carried.lost_nodes.push(textOf(node, "name"));
      if (known === undefined) await bury(tx, node, now);
      // Revoked before the backup and restored since, it takes no order of before: another is signed when it asks.
      else await tx.run("UPDATE nodes SET order_jws = NULL WHERE id = $1", [id]);
    }
    await carryCertificates(old, tx, org, id, now);
    if (node["state"] === "active" && known?.["state"] === "active") await carryRights(tx, node, known, now);
    else await block(tx, org, id, now);
    await carryAddresses(old, tx, org, id);
    if (known?.["state"] !== "revoked") await carryName(old, tx, org, node);
  }
  await carryHeldNames(old, tx, org);
  // At its next check-in each gets the certificates that it lacks.
  await tx.run("UPDATE nodes SET renew_at = 0 WHERE org_id = $1 AND state = 'active'", [org.id]);
}

/** A node that registered after the backup. Its machine has to register again, with a token for its name. */
async function bury(tx: Transaction, node: Row, now: number): Promise<void> {
  await insertRow(tx, "nodes", {
    ...node,
    state: "revoked",
    revoked_at: now,
    revoked_by: "operator/",
    revoke_reason: "registered after the backup that was restored",
    host_public_key: null,
    csr: null,
    csr_key_sha256: null,
    token_hash: null,
  });
  const token = { token_hash: textOrNull(node, "token_hash"), retired_at: now };
  // Using it is no guess.
  if (token.token_hash !== null) await insertRow(tx, "retired_tokens", token, "ON CONFLICT DO NOTHING");
}

/** Every overlay certificate that lives on is known, so that it can be blocked; what was blocked is blocked. */
async function carryCertificates(
  old: Reader,
  tx: Transaction,
  org: Org,
  nodeId: number,
  now: number,
): Promise<void> {
  const rows = await old.all(
    "SELECT * FROM certificates WHERE node_id = $1 AND kind = 'overlay' AND not_after > $2 ORDER BY id",
    [nodeId, now],
  );
  if (rows.some((row) => row["state"] === "current")) {
    await tx.run(
      "UPDATE certificates SET state = 'former' WHERE node_id = $1 AND kind = 'overlay' AND state = 'current'",
      [nodeId],
    );
  }
  for (const { id: _, ...row } of rows) {
    // Of a CA that the backup does not know: nothing will trust it.
    if (!(await isThere(tx, "authorities", row["authority_id"]))) continue;
    const isBlocked = row["state"] === "blocked";
    await insertRow(
      tx,
      "certificates",
      isBlocked ? { ...row, blocked_at_version: org.version } : row,
      `ON CONFLICT (fingerprint) DO UPDATE SET state = excluded.state, block_after = excluded.block_after,
         block_version = excluded.block_version, blocked_at = excluded.blocked_at,
         blocked_at_version = excluded.blocked_at_version
       WHERE certificates.state <> 'blocked'`,
    );
  }
}

/** All of a node that is gone, under the version that all nodes fetch next. */
async function block(tx: Transaction, org: Org, nodeId: number, now: number): Promise<void> {
  await tx.run(
    `UPDATE certificates SET state = 'blocked', block_after = NULL, blocked_at = $2, blocked_at_version = $3
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $2`,
    [nodeId, now, org.version],
  );
}

/** The node has no group and no subnet that was taken from it; certificates that may say more than it has end soon. */
async function carryRights(tx: Transaction, node: Row, known: Row, now: number): Promise<void> {
  const id = numberOf(node, "id");
  const both = (column: string) =>
    JSON.stringify(textsOf(known, column).filter((each) => textsOf(node, column).includes(each)));
  await tx.run("UPDATE nodes SET groups = $2, subnets = $3 WHERE id = $1", [
    id,
    both("groups"),
    both("subnets"),
  ]);
  const said = ({ name, ip, ip6, groups, subnets }: Row) => JSON.stringify([name, ip, ip6, groups, subnets]);
  if (said(known) === said(node)) return;
  await tx.run(
    `UPDATE certificates SET state = 'former', block_after = coalesce(block_after, $2)
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $3`,
    [id, now + blockAfterMs, now],
  );
}

/** The token that a machine was given last opens its two endpoints, and none before it. */
async function carryNodeTokens(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const present =
    "SELECT id, host_public_key, token_hash FROM nodes WHERE org_id = $1 AND state = 'active' AND token_hash IS NOT NULL";
  for (const row of await old.all(present, [orgId])) {
    await tx.run(
      `UPDATE nodes SET token_hash = $3
       WHERE id = $1 AND host_public_key = $2 AND state = 'active' AND token_hash <> $3`,
      [numberOf(row, "id"), textOrNull(row, "host_public_key"), textOf(row, "token_hash")],
    );
  }
}

/** Nobody gets an address that a certificate of the node still names. */
async function carryAddresses(old: Reader, tx: Transaction, org: Org, nodeId: number): Promise<void> {
  const row = await tx.get(
    `SELECT max(c.not_after) AS until, max(n.state) AS state FROM nodes n
     LEFT JOIN certificates c ON c.node_id = n.id AND c.kind = 'overlay' WHERE n.id = $1`,
    [nodeId],
  );
  const until = numberOrNull(row ?? {}, "until") ?? 0;
  for (const address of await old.all("SELECT * FROM addresses WHERE org_id = $1 AND node_id = $2", [
    org.id,
    nodeId,
  ])) {
    await insertRow(
      tx,
      "addresses",
      { ...address, held_until: numberOrNull(address, "held_until") ?? until, free_at: null },
      `ON CONFLICT (org_id, host) DO UPDATE SET node_id = excluded.node_id, held_version = excluded.held_version,
         held_until = excluded.held_until, free_at = NULL WHERE addresses.node_id IS NULL`,
    );
  }
  if (row?.["state"] === "revoked") {
    await leaveAddresses(tx, org.id, nodeId, { version: org.version, until });
    await boundHolds(tx, nodeId, org.version);
  }
}

/** The name that the node had last, where the restored database gives it another or has revoked it. */
async function carryName(old: Reader, tx: Transaction, org: Org, node: Row): Promise<void> {
  const [id, name] = [numberOf(node, "id"), textOf(node, "name")];
  const own = await tx.get("SELECT id FROM nodes WHERE id = $1 AND name = $2 AND state <> 'revoked'", [
    id,
    name,
  ]);
  if (own !== undefined) return;
  const row = await old.get(
    "SELECT coalesce(max(not_after), 0) AS until FROM certificates WHERE node_id = $1 AND kind = 'x509'",
    [id],
  );
  await hold(tx, org, { org_id: org.id, name, node_id: id, held_until: numberOf(row ?? {}, "until") });
}

async function carryHeldNames(old: Reader, tx: Transaction, org: Org): Promise<void> {
  for (const row of await old.all("SELECT * FROM held_names WHERE org_id = $1", [org.id])) {
    if (await isThere(tx, "nodes", row["node_id"])) await hold(tx, org, row);
  }
}

/** Until all nodes have confirmed the version that they fetch next. */
async function hold(tx: Transaction, org: Org, name: Row): Promise<void> {
  await insertRow(
    tx,
    "held_names",
    { ...name, held_version: org.version, free_at: null },
    `ON CONFLICT (org_id, name, node_id) DO UPDATE
       SET held_version = excluded.held_version, held_until = excluded.held_until, free_at = NULL`,
  );
}

async function isThere(tx: Transaction, table: string, id: Row[string] | undefined): Promise<boolean> {
  return (await tx.get(`SELECT id FROM ${table} WHERE id = $1`, [id ?? null])) !== undefined;
}

/** Whether a CA came since, or one that the backup trusts was retired. */
async function lostAuthority(old: Reader, tx: Transaction, orgId: number, now: number): Promise<boolean> {
  const rows = await old.all("SELECT id, retired_at FROM authorities WHERE org_id = $1 AND not_after > $2", [
    orgId,
    now,
  ]);
  for (const row of rows) {
    const known = await tx.get("SELECT retired_at FROM authorities WHERE id = $1", [numberOf(row, "id")]);
    const isLost = row["retired_at"] === null ? known === undefined : known?.["retired_at"] === null;
    if (isLost) return true;
  }
  return false;
}

async function carryTokens(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const columns = "token_hash, used, revoked_at";
  for (const row of await old.all(`SELECT ${columns} FROM registration_tokens WHERE org_id = $1`, [orgId])) {
    const used = [textOf(row, "token_hash"), numberOf(row, "used"), numberOrNull(row, "revoked_at")];
    await tx.run(
      `UPDATE registration_tokens SET used = CASE WHEN used < $2 THEN $2 ELSE used END,
         revoked_at = coalesce(revoked_at, $3) WHERE token_hash = $1`,
      used,
    );
  }
  const ended =
    "SELECT token_hash, revoked_at FROM service_tokens WHERE org_id = $1 AND revoked_at IS NOT NULL";
  for (const row of await old.all(ended, [orgId])) {
    await tx.run("UPDATE service_tokens SET revoked_at = $2 WHERE token_hash = $1 AND revoked_at IS NULL", [
      textOf(row, "token_hash"),
      numberOf(row, "revoked_at"),
    ]);
  }
}

/** An invitation is the same only with the same link; who was a member is none while only invited. */
async function carryMembers(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const row of await tx.all("SELECT id, email, secret_hash FROM memberships WHERE org_id = $1", [
    orgId,
  ])) {
    const kept = await old.get("SELECT role, secret_hash FROM memberships WHERE org_id = $1 AND email = $2", [
      orgId,
      textOf(row, "email"),
    ]);
    if (kept === undefined || kept["secret_hash"] !== row["secret_hash"]) {
      await tx.run("DELETE FROM memberships WHERE id = $1", [numberOf(row, "id")]);
    } else {
      await tx.run("UPDATE memberships SET role = $2 WHERE id = $1", [
        numberOf(row, "id"),
        textOf(kept, "role"),
      ]);
    }
  }
}

/** What waited for a webhook that was deleted or changed since is not sent. */
async function carryWebhooks(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const columns = "id, url, events, deleted_at";
  for (const row of await old.all(`SELECT ${columns} FROM webhooks WHERE org_id = $1`, [orgId])) {
    const [id, url, events] = [numberOf(row, "id"), textOf(row, "url"), textOf(row, "events")];
    const changed = await tx.run(
      `UPDATE webhooks SET url = $3, events = $4, deleted_at = coalesce(deleted_at, $5)
       WHERE id = $1 AND org_id = $2 AND (url <> $3 OR events <> $4 OR (deleted_at IS NULL AND $5 IS NOT NULL))`,
      [id, orgId, url, events, numberOrNull(row, "deleted_at")],
    );
    if (changed > 0) await tx.run("UPDATE deliveries SET next_at = NULL WHERE webhook_id = $1", [id]);
  }
}

async function carryPeople(old: Reader, tx: Transaction): Promise<void> {
  for (const row of await old.all(
    "SELECT email, created_at, is_active, is_staff, password_hash FROM users",
  )) {
    await tx.run(
      "UPDATE users SET is_active = $3, is_staff = $4, password_hash = $5 WHERE email = $1 AND created_at = $2",
      [
        textOf(row, "email"),
        numberOf(row, "created_at"),
        numberOf(row, "is_active"),
        numberOf(row, "is_staff"),
        textOf(row, "password_hash"),
      ],
    );
  }
}
