// Checks the caller's role again, inside the transaction that writes. A request that was admitted before the caller was
// removed, disabled or demoted must not complete afterwards.

import { AppError } from "../base/errors.ts";
import type { Actor } from "./audit/record.ts";
import type { Database, Reader, Transaction } from "./store/database.ts";

/**
 * Throws permission_denied if the actor no longer has the role or a higher one. The server itself needs none: it obeys
 * settings. No service token is an owner. A user with `bound_org_id` was made by the provider of that organization, and is valid
 * there alone.
 */
export async function requireRole(
  reader: Reader,
  orgId: number,
  { kind, id }: Pick<Actor, "kind" | "id">,
  role: "admin" | "owner" = "admin",
): Promise<void> {
  if (kind === "operator" || kind === "server") return;
  const row = await reader.get(
    `SELECT m.id FROM memberships m JOIN users u ON u.id = m.user_id AND u.is_active = 1
         AND coalesce(u.bound_org_id, m.org_id) = m.org_id
       WHERE $1 = 'person' AND m.org_id = $2 AND m.user_id = $3 AND m.role IN ('owner', $4)
     UNION ALL SELECT s.id FROM service_tokens s
       WHERE $1 = 'service' AND s.org_id = $2 AND s.id = $3 AND s.role = $4 AND s.revoked_at IS NULL`,
    [kind, orgId, id, role],
  );
  if (row === undefined) {
    throw new AppError("permission_denied", "You do not have permission to perform this action.");
  }
}

/** Runs the work as `writeFor` of the organization does, if the actor is still an administrator. Throws as requireRole does. */
export function writeAsAdmin<T>(
  db: Database,
  orgId: number,
  actor: Actor,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return db.writeFor({ org: orgId }, async (tx) => {
    await requireRole(tx, orgId, actor);
    return work(tx);
  });
}

/** requireRole for what only staff may do. */
export async function requireStaff(reader: Reader, { kind, id }: Pick<Actor, "kind" | "id">): Promise<void> {
  if (kind === "operator") return;
  const sql =
    "SELECT id FROM users WHERE $1 = 'person' AND id = $2 AND is_staff = 1 AND is_active = 1 AND bound_org_id IS NULL";
  if ((await reader.get(sql, [kind, id])) !== undefined) return;
  throw new AppError("permission_denied", "You do not have permission to perform this action.");
}
