// Deletes rows that nothing needs any more, in batches of one short transaction each. What a restore of a backup must
// still know to be revoked is kept: deleted webhooks, and service tokens without an end.

import { keptVersions } from "../allocation/held-names.ts";
import type { ServerOptions } from "../options.ts";
import type { Params } from "../store/database.ts";
import { computed, integerOrNull, queryNumber, queryOne } from "../store/table.ts";
import { idleMs } from "../store/tables/sessions.ts";
import { wrongCodesKeptMs } from "../store/tables/users.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "accessLifetimeS">;

const day = 86_400_000;
/** Retention of the log of deliveries. */
const deliveriesMs = 30 * day;
/** Expired certificates stay a day longer, because nodes' clocks may be behind. */
const certificatesMs = day;
const batchSize = 500;

/** `keptMs`: how long ended tokens are kept. `isEnding`: the server stops. */
export async function deleteEnded(deps: Deps, keptMs: number, isEnding: () => boolean): Promise<void> {
  const now = deps.system.now();
  // Tokens of a session that was ended stay known as long as its access token could live.
  const over = "expires_at < $1 AND (revoked_at IS NULL OR revoked_at < $2)";
  const accessMs = deps.accessLifetimeS * 1000;
  await deleteWhere(deps, "refresh_tokens", "jti_hash", over, [now, now - accessMs], isEnding);
  const unproven = "NOT EXISTS (SELECT 1 FROM refresh_tokens t WHERE t.family = session_nodes.family)";
  await deleteWhere(deps, "session_nodes", "family", unproven, [], isEnding);
  const idle = "ends_at <= $1 OR (family IS NULL AND last_used_at <= $2)";
  await deleteWhere(deps, "browser_sessions", "id", idle, [now, now - idleMs], isEnding);
  await deleteWhere(deps, "wrong_codes", "id", "at < $1", [now - wrongCodesKeptMs], isEnding);
  await deleteWhere(deps, "used_challenges", "challenge_hash", "expires_at <= $1", [now], isEnding);
  await deleteWhere(deps, "device_requests", "id", "expires_at <= $1", [now], isEnding);
  await deleteWhere(deps, "enrollments", "id", "expires_at <= $1", [now], isEnding);
  await deleteWhere(deps, "password_resets", "secret_hash", "expires_at <= $1", [now], isEnding);
  const settled = "next_at IS NULL AND created_at < $1";
  await deleteWhere(deps, "deliveries", "id", settled, [now - deliveriesMs], isEnding);
  await deleteWhere(deps, "retired_tokens", "token_hash", "retired_at < $1", [now - keptMs], isEnding);
  await deleteWhere(deps, "registration_tokens", "id", spentToken, [now - keptMs], isEnding);
  await deleteSentConfigs(deps, now - day, isEnding);
  await deleteCertificates(deps, now - certificatesMs, isEnding);
  await deleteEphemeral(deps, now - certificatesMs, isEnding);
}

/**
 * Ephemeral nodes that ended, whose name and address are free again. One whose name peers knew stays until a peer that
 * missed its end gets all names again.
 */
const goneNodes = `SELECT n.id FROM nodes n WHERE n.ended_at < $1
  AND (n.is_named = 0 OR n.names_version <
    (SELECT o.names_version - ${keptVersions} FROM organizations o WHERE o.id = n.org_id))
  AND NOT EXISTS (SELECT 1 FROM addresses a WHERE a.node_id = n.id)
  AND NOT EXISTS (SELECT 1 FROM held_names h WHERE h.node_id = n.id)
  AND NOT EXISTS (SELECT 1 FROM certificates c WHERE c.node_id = n.id AND (c.state = 'blocked' OR c.not_after >= $1))
  AND NOT EXISTS (SELECT 1 FROM name_aliases m WHERE m.node_id = n.id)
  AND NOT EXISTS (SELECT 1 FROM registration_tokens t WHERE t.node_id = n.id)
  ORDER BY n.id LIMIT`;
/** Everything that refers to a node. */
const ofNodes = [
  "certificates",
  "registrants",
  "paths",
  "sightings",
  "sent_files",
  "relay_traffic",
  "owner_proofs",
  "session_nodes",
];

async function deleteEphemeral({ db }: Deps, before: number, isEnding: () => boolean): Promise<void> {
  while (!isEnding() && (await db.get(`${goneNodes} 1`, [before])) !== undefined) {
    await db.write(async (tx) => {
      const gone = `(${goneNodes} ${batchSize})`;
      await tx.run(
        `INSERT INTO retired_tokens (token_hash, retired_at) SELECT token_hash, ended_at FROM nodes
         WHERE token_hash IS NOT NULL AND id IN ${gone} ON CONFLICT (token_hash) DO NOTHING`,
        [before],
      );
      const ids = (await tx.all(gone.slice(1, -1), [before])).map((row) => Number(row["id"]));
      const list = ids.join(", ");
      for (const table of ofNodes) await tx.run(`DELETE FROM ${table} WHERE node_id IN (${list})`);
      await tx.run(`DELETE FROM nodes WHERE id IN (${list})`);
      await tx.notify("auth", "ephemeral nodes");
    });
  }
}

/** Without nodes: when a token is revoked or its creator leaves, the nodes that registered with it must be found. */
const spentToken = `expires_at < $1
  AND NOT EXISTS (SELECT 1 FROM registration_requests q WHERE q.token_id = registration_tokens.id)
  AND id NOT IN (SELECT registered_with FROM nodes WHERE registered_with IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM registrants r WHERE r.principal = 'registration_token/' || registration_tokens.id)`;

/** Configurations that no node has any more. The age keeps one whose node is being noted now. */
async function deleteSentConfigs({ db }: Deps, before: number, isEnding: () => boolean): Promise<void> {
  const unused = `sent_at < $1 AND NOT EXISTS (SELECT 1 FROM sent_files f WHERE f.org_id = sent_configs.org_id
    AND (f.config_digest = sent_configs.digest OR f.former_digest = sent_configs.digest))`;
  const first = `SELECT org_id, digest FROM sent_configs WHERE ${unused} LIMIT`;
  while (!isEnding() && (await db.get(`${first} 1`, [before])) !== undefined) {
    await db.write((tx) =>
      tx.run(`DELETE FROM sent_configs WHERE (org_id, digest) IN (${first} ${batchSize})`, [before]),
    );
  }
}

async function deleteWhere(
  { db }: Deps,
  table: string,
  key: string,
  where: string,
  params: Params,
  isEnding: () => boolean,
): Promise<void> {
  const ended = `SELECT ${key} FROM ${table} WHERE ${where} LIMIT`;
  while (!isEnding() && (await db.get(`${ended} 1`, params)) !== undefined) {
    await db.write((tx) => tx.run(`DELETE FROM ${table} WHERE ${key} IN (${ended} ${batchSize})`, params));
  }
}

/**
 * Expired certificates that are not current. The newest one of a node and kind stays: when its name and address become
 * free, and which version revoked it, are read from there.
 */
const ended = `FROM certificates WHERE id > $1 AND id <= $2 AND state <> 'current' AND not_after < $3
  AND EXISTS (SELECT 1 FROM certificates n WHERE n.node_id = certificates.node_id AND n.kind = certificates.kind
    AND (n.not_after > certificates.not_after OR (n.not_after = certificates.not_after AND n.id > certificates.id)))`;
const stretch = computed({ last: integerOrNull() });

/** Walks over all certificates by id: an index would hold all that stay. */
async function deleteCertificates({ db }: Deps, before: number, isEnding: () => boolean): Promise<void> {
  const next = `SELECT max(id) AS last FROM (SELECT id FROM certificates WHERE id > $1 ORDER BY id LIMIT ${batchSize}) s`;
  for (let from = 0; !isEnding();) {
    const last = (await queryOne(db, stretch, next, [from]))?.last ?? null;
    if (last === null) return;
    const params = [from, last, before];
    if ((await queryNumber(db, `SELECT count(*) AS n ${ended}`, params)) > 0) {
      await db.write((tx) => tx.run(`DELETE ${ended}`, params));
    }
    from = last;
  }
}
