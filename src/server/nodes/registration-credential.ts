// What the credential of a registration permits, and that it still does: a registration token is checked and used up in
// one statement, an administrator's rights are read again inside each transaction.

import { AppError } from "../../errors.ts";
import type { RegisterRequest } from "../../protocol.ts";
import { principal, type Actor } from "../audit/record.ts";
import { requireRole } from "../people/late-rights.ts";
import {
  numberOf,
  numberOrNull,
  textsOf,
  truthOf,
  type Reader,
  type Transaction,
} from "../store/database.ts";

/** What the credential of the request permits. `tokenId` null: an admin. */
export type Grant = {
  tokenId: number | null;
  groups: string[];
  mayBeHub: boolean;
  boundTo: number | null;
  hash: string | null;
};

/** `hash`: of the registration token, if one was sent. */
export type Credential = { hash: string | null; actor: Actor };

export type UnknownToken = "never issued" | "not of this organization" | "used up" | "expired";

export const adminGrant: Grant = { tokenId: null, groups: [], mayBeHub: true, boundTo: null, hash: null };

/** Before the node is active, so that a registration in flight is found too. */
export async function recordRegistrant(
  tx: Transaction,
  nodeId: number,
  tokenId: number | null,
  actor: Actor,
): Promise<void> {
  const by = tokenId === null ? principal(actor) : `registration_token/${tokenId}`;
  await tx.run("INSERT INTO registrants (node_id, principal) VALUES ($1, $2) ON CONFLICT DO NOTHING", [
    nodeId,
    by,
  ]);
}

/** The credential may have ended while the certificates were signed. */
export async function requireCredential(
  tx: Transaction,
  orgId: number,
  { hash, actor }: Credential,
): Promise<void> {
  if (hash === null) return requireRole(tx, orgId, actor);
  const row = await tx.get(
    "SELECT id FROM registration_tokens WHERE org_id = $1 AND token_hash = $2 AND revoked_at IS NULL",
    [orgId, hash],
  );
  if (row === undefined) throw new AppError("token_not_valid", "The registration token was revoked.");
}

/** Checked and used up in one statement: no two requests can have the last use. */
export async function consume(
  tx: Transaction,
  orgId: number,
  hash: string,
  now: number,
): Promise<Grant | { unknownToken: UnknownToken }> {
  const row = await tx.get(
    `UPDATE registration_tokens SET used = used + 1
     WHERE org_id = $1 AND token_hash = $2 AND used < uses AND expires_at > $3 AND revoked_at IS NULL
     RETURNING id, groups, is_lighthouse, node_id`,
    [orgId, hash, now],
  );
  if (row !== undefined) {
    return {
      tokenId: numberOf(row, "id"),
      groups: textsOf(row, "groups"),
      mayBeHub: truthOf(row, "is_lighthouse"),
      boundTo: numberOrNull(row, "node_id"),
      hash,
    };
  }
  return { unknownToken: await whyNot(tx, orgId, hash) };
}

export async function whyNot(
  reader: Pick<Reader, "get">,
  orgId: number,
  hash: string,
): Promise<UnknownToken> {
  const known = await reader.get("SELECT org_id, used, uses FROM registration_tokens WHERE token_hash = $1", [
    hash,
  ]);
  if (known === undefined) return "never issued";
  if (numberOf(known, "org_id") !== orgId) return "not of this organization";
  return numberOf(known, "used") >= numberOf(known, "uses") ? "used up" : "expired";
}

export function checkRights(request: RegisterRequest, grant: Grant): void {
  const wishes = request.is_lighthouse === true || request.is_relay === true;
  if (wishes && !grant.mayBeHub) {
    throw new AppError("token_scope", "This registration token does not permit a lighthouse or a relay.", {
      hint: "Make one with `agent admin token create ORG --lighthouse`.",
    });
  }
}
