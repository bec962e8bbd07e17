// Revokes service and registration tokens. Tokens belong to the organization, not to their creator; end-access.ts
// decides whether they end with the creator.

import { record, type Actor } from "../audit/record.ts";
import type { Transaction } from "../store/database.ts";
import { registrationTokens } from "../store/tables/joining.ts";
import { serviceTokens } from "../store/tables/sessions.ts";

/** The names in the audit log. The tables have the same names in the plural. */
export type TokenKind = "registration_token" | "service_token";

/** Revokes a token in the caller's transaction. False if there is no such token, or it is revoked already. */
export async function revokeTokenInside(
  tx: Transaction,
  { orgId, kind, id }: { orgId: number; kind: TokenKind; id: number },
  actor: Actor,
  now: number,
): Promise<boolean> {
  const table = kind === "service_token" ? serviceTokens : registrationTokens;
  const revoked = await table.update(tx, { id, orgId, revokedAt: null }, { revokedAt: now });
  if (revoked === 0) return false;
  await record(tx, { orgId, at: now, type: "token.revoked", actor, subject: `${kind}/${id}` });
  // Servers cache callers with service tokens. A registration token is read for each use.
  if (kind === "service_token") await tx.notify("auth", `service ${id}`);
  return true;
}
