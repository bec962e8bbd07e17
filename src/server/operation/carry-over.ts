// What a restored backup must not forget: rights that ended after it was made. Nodes, tokens, members and passwords are
// as the replaced database had them where that is less; what was gained since is lost with it.

import { insertRow } from "../store/copy.ts";
import { leaveAddresses } from "../store/addresses.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";

export type Carried = { revoked_nodes: number; lost_nodes: string[] };

/** `old`: the replaced database. Versions of the configuration were raised before. `now` in ms. */
export async function carryOver(old: Reader, tx: Transaction, now: number): Promise<Carried> {
  const carried: Carried = { revoked_nodes: 0, lost_nodes: [] };
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
    carried.revoked_nodes += await carryNodes(old, tx, { id, version: numberOf(org, "config_version") }, now);
    await carryNodeTokens(old, tx, id);
    carried.lost_nodes.push(...(await lostNodes(old, tx, id)));
    await carryTokens(old, tx, id);
    await carryMembers(old, tx, id);
  }
  await carryPeople(old, tx);
  for (const row of await old.all("SELECT * FROM retired_tokens")) {
    await insertRow(tx, "retired_tokens", row, "ON CONFLICT DO NOTHING");
  }
  return carried;
}

type Org = { id: number; version: number };

async function carryNodes(old: Reader, tx: Transaction, org: Org, now: number): Promise<number> {
  let count = 0;
  for (const node of await old.all("SELECT * FROM nodes WHERE org_id = $1 AND state = 'revoked'", [org.id])) {
    const id = numberOf(node, "id");
    const known = await tx.get("SELECT state FROM nodes WHERE id = $1", [id]);
    if (known?.["state"] !== "revoked") count++;
    const columns = Object.keys(node).filter((each) => each !== "id");
    const set = columns.map((each) => `${each} = excluded.${each}`).join(", ");
    await insertRow(tx, "nodes", node, `ON CONFLICT (id) DO UPDATE SET ${set}`);
    await carryAddresses(old, tx, org, id);
  }
  await carryBlocked(old, tx, org, now);
  return count;
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
  const rows = await old.all("SELECT * FROM addresses WHERE org_id = $1 AND node_id = $2", [org.id, nodeId]);
  for (const row of rows) await insertRow(tx, "addresses", row, "ON CONFLICT DO NOTHING");
  const until = Math.max(0, ...rows.map((row) => numberOrNull(row, "held_until") ?? 0));
  if (until > 0) await leaveAddresses(tx, org.id, nodeId, { version: org.version, until });
}

/** Every certificate that was on the blocklist is on it again, under the version that all nodes fetch next. */
async function carryBlocked(old: Reader, tx: Transaction, org: Org, now: number): Promise<void> {
  const rows = await old.all(
    "SELECT * FROM certificates WHERE org_id = $1 AND state = 'blocked' AND not_after > $2",
    [org.id, now],
  );
  for (const row of rows) {
    if (
      !(await isThere(tx, "authorities", row["authority_id"])) ||
      !(await isThere(tx, "nodes", row["node_id"]))
    ) {
      // Of a CA that the backup does not know: nothing will trust it. Of a node that is lost: it is told of below.
      continue;
    }
    const blocked = { ...row, blocked_at_version: org.version };
    await insertRow(
      tx,
      "certificates",
      blocked,
      `ON CONFLICT (id) DO UPDATE SET state = 'blocked', block_after = NULL, blocked_at = excluded.blocked_at,
         blocked_at_version = excluded.blocked_at_version`,
    );
  }
}

async function isThere(tx: Transaction, table: string, id: Row[string] | undefined): Promise<boolean> {
  return (await tx.get(`SELECT id FROM ${table} WHERE id = $1`, [id ?? null])) !== undefined;
}

/** Nodes that registered after the backup: their machines have to register anew. */
async function lostNodes(old: Reader, tx: Transaction, orgId: number): Promise<string[]> {
  const lost: string[] = [];
  for (const row of await old.all("SELECT id, name FROM nodes WHERE org_id = $1 AND state = 'active'", [
    orgId,
  ])) {
    const known = await tx.get("SELECT state FROM nodes WHERE id = $1", [numberOf(row, "id")]);
    if (known?.["state"] !== "active") lost.push(textOf(row, "name"));
  }
  return lost;
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

async function carryMembers(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const row of await tx.all("SELECT id, email FROM memberships WHERE org_id = $1", [orgId])) {
    const kept = await old.get("SELECT role FROM memberships WHERE org_id = $1 AND email = $2", [
      orgId,
      textOf(row, "email"),
    ]);
    if (kept === undefined) await tx.run("DELETE FROM memberships WHERE id = $1", [numberOf(row, "id")]);
    else {
      await tx.run("UPDATE memberships SET role = $2 WHERE id = $1", [
        numberOf(row, "id"),
        textOf(kept, "role"),
      ]);
    }
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
