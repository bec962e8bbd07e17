// Deletes rows that nothing needs any more, in batches of one short transaction each. What a restore of a backup must
// still know to be revoked is kept: deleted webhooks, and service tokens without an end.

import type { ServerOptions } from "../options.ts";
import type { Params } from "../store/database.ts";
import { computed, integerOrNull, queryNumber, queryOne } from "../store/table.ts";
import { idleMs } from "../store/tables/browser-sessions.ts";
import { wrongCodesKeptMs } from "../store/tables/second-factors.ts";

type Deps = Pick<ServerOptions, "db" | "system">;

const day = 86_400_000;
/** The log of deliveries goes back so far. */
const deliveriesMs = 30 * day;
/** Clocks of nodes may be late. */
const certificatesMs = day;
const batchSize = 500;

/** `keptMs`: how long the tokens that ended are known. `isEnding`: the server stops. */
export async function deleteEnded(deps: Deps, keptMs: number, isEnding: () => boolean): Promise<void> {
  const now = deps.system.now();
  await deleteWhere(deps, "refresh_tokens", "jti_hash", "expires_at < $1", [now], isEnding);
  const idle = "ends_at <= $1 OR last_used_at <= $2";
  await deleteWhere(deps, "browser_sessions", "id", idle, [now, now - idleMs], isEnding);
  await deleteWhere(deps, "wrong_codes", "id", "at < $1", [now - wrongCodesKeptMs], isEnding);
  const settled = "next_at IS NULL AND created_at < $1";
  await deleteWhere(deps, "deliveries", "id", settled, [now - deliveriesMs], isEnding);
  await deleteWhere(deps, "retired_tokens", "token_hash", "retired_at < $1", [now - keptMs], isEnding);
  await deleteWhere(deps, "registration_tokens", "id", spentToken, [now - keptMs], isEnding);
  await deleteCertificates(deps, now - certificatesMs, isEnding);
}

/** Without nodes: when a token is revoked or its creator leaves, the nodes that registered with it must be found. */
const spentToken = `expires_at < $1
  AND id NOT IN (SELECT registered_with FROM nodes WHERE registered_with IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM registrants r WHERE r.principal = 'registration_token/' || registration_tokens.id)`;

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
