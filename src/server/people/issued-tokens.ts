// Tokens of both kinds once they are issued. They belong to the organization, not to their creator: whether they end with
// the creator is decided in left-access.ts.

import { record, type Actor } from "../audit/record.ts";
import type { Transaction } from "../store/database.ts";

/** As the audit log names them; the tables are called the same, in the plural. */
export type TokenKind = "registration_token" | "service_token";

/** False where there is no such token, or it is revoked already. */
export async function revokeTokenInside(
  tx: Transaction,
  { orgId, kind, id }: { orgId: number; kind: TokenKind; id: number },
  actor: Actor,
  now: number,
): Promise<boolean> {
  const revoked = await tx.run(
    `UPDATE ${kind}s SET revoked_at = $3 WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL`,
    [id, orgId, now],
  );
  if (revoked === 0) return false;
  await record(tx, { orgId, at: now, type: "token.revoked", actor, subject: `${kind}/${id}` });
  if (kind === "service_token") await tx.notify("auth", `service ${id}`);
  return true;
}
