// Checks the credential of a registration and what it permits. A registration token is checked and consumed in one
// statement; an administrator's rights are read again inside each transaction.
//
// Order of use in register.ts, in one transaction: `heldGrant`, else `consume`, or `adminGrant`; `checkRights`; then
// `recordRegistrant`. In complete-registration.ts, after certificates were signed, in a second one: `requireCredential`.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { RegisterRequest } from "../../../protocol/registration.ts";
import { principal, type Actor } from "../../audit/record.ts";
import { requireRole } from "../../require-role.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { queryOne } from "../../store/table.ts";
import { registrants } from "../../store/tables/nodes.ts";
import { isOpenToken, registrationTokens } from "../../store/tables/joining.ts";
import { requireEnrolling } from "./self-enrollment.ts";

/** The rights of a credential. `tokenId` null: an administrator. */
export type Grant = {
  tokenId: number | null;
  groups: string[];
  mayBeHub: boolean;
  /** The id of the existing node that is registered, such as a pending one. Null: the name decides (`findClaimed`). */
  boundTo: number | null;
  /** The owner of the new node: the user who registers it. Null: the organization. */
  ownerId: number | null;
  ephemeralSilenceS: number | null;
  /** Whether peers get the name of the new node. */
  isNamed: boolean;
  /** The token is marked as approved. */
  isApproved: boolean;
  /**
   * Digest of the machine that a user confirmed in the browser (digestOf). Null: the token is not bound to a machine.
   */
  boundDigest: string | null;
  /** Whether the new node is a phone. */
  isPhone?: true;
};

/** `hash`: of the registration token; null if none was sent. */
export type Credential = { hash: string | null; actor: Actor };

/** Why a token is refused. `refusalError` decides who learns it. */
export type TokenRefusal = "never issued" | "not of this organization" | "revoked" | "used up" | "expired";

/** Only the holder of a token of this organization learns why; all others learn only that it is not valid. */
export function refusalError(why: TokenRefusal): AppError {
  const isUnknown = why === "never issued" || why === "not of this organization";
  if (isUnknown) return new AppError("token_not_valid", "The registration token is not valid.");
  // Nodes tell both errors apart by the hint: only this one has it.
  return new AppError("token_not_valid", `The registration token is ${why}.`, {
    hint: `Create a new one: \`${brand.executable} admin token create ORG\`.`,
  });
}

/** The rights of an administrator who registers a machine. */
export function adminGrant({ kind, id }: Actor): Grant {
  const ownerId = kind === "person" ? id : null;
  return {
    tokenId: null,
    groups: [],
    mayBeHub: true,
    boundTo: null,
    ownerId,
    ephemeralSilenceS: null,
    isNamed: true,
    isApproved: false,
    boundDigest: null,
  };
}

/**
 * Recorded before the node is active. When a user leaves, `offboarding/find-access.ts` then finds nodes in registration too.
 */
export async function recordRegistrant(
  tx: Transaction,
  nodeId: number,
  tokenId: number | null,
  actor: Actor,
): Promise<void> {
  const by = tokenId === null ? principal(actor) : `registration_token/${tokenId}`;
  await registrants.upsert(tx, { nodeId, principal: by }, "ON CONFLICT DO NOTHING");
}

/** Throws if the credential was revoked while the certificates were signed. */
export async function requireCredential(
  tx: Transaction,
  orgId: number,
  { hash, actor }: Credential,
): Promise<void> {
  if (hash === null) return requireRole(tx, orgId, actor);
  const token = await registrationTokens.find(tx, { orgId, tokenHash: hash, revokedAt: null });
  if (token === undefined) throw refusalError("revoked");
  if (token.boundDigest !== null) await requireEnrolling(tx, orgId, token.createdBy);
}

const grantPick = registrationTokens.pick(
  "id",
  "groups",
  "isLighthouse",
  "nodeId",
  "ephemeralSilenceS",
  "isNamed",
  "isApproved",
  "createdBy",
  "boundDigest",
);

/** Checks and consumes a token in one statement: two requests cannot both get the last use. */
export async function consume(
  tx: Transaction,
  orgId: number,
  hash: string,
  now: number,
): Promise<Grant | { tokenRefusal: TokenRefusal }> {
  const used = await queryOne(
    tx,
    grantPick,
    `UPDATE registration_tokens SET used = used + 1
     WHERE org_id = $1 AND token_hash = $2 AND ${isOpenToken("$3")}
     RETURNING ${grantPick.select()}`,
    [orgId, hash, now],
  );
  if (used === undefined) return { tokenRefusal: await whyRefused(tx, orgId, hash) };
  return grantOf(used);
}

function grantOf(token: ReturnType<typeof grantPick.parse>): Grant {
  const { id: tokenId, isLighthouse: mayBeHub, nodeId: boundTo, createdBy, ...rest } = token;
  // A machine that a user confirmed is the user's; one with an administrator's token is the organization's.
  const ownerId = rest.boundDigest === null ? null : createdBy;
  return { ...rest, tokenId, mayBeHub, boundTo, ownerId };
}

/** The grant of a token of which a use is held for this registration already, also after the token's expiry. */
export async function heldGrant(
  tx: Transaction,
  { orgId, tokenId }: { orgId: number; tokenId: number | null },
  hash: string,
): Promise<Grant | undefined> {
  if (tokenId === null) return undefined;
  const sql = `SELECT ${grantPick.select()} FROM registration_tokens
    WHERE id = $1 AND org_id = $2 AND token_hash = $3 AND revoked_at IS NULL`;
  const token = await queryOne(tx, grantPick, sql, [tokenId, orgId, hash]);
  return token === undefined ? undefined : grantOf(token);
}

/** Gives a use back that no node has. */
export async function releaseUse(tx: Transaction, tokenId: number | null): Promise<void> {
  if (tokenId === null) return;
  await tx.run("UPDATE registration_tokens SET used = used - 1 WHERE id = $1 AND used > 0", [tokenId]);
}

/** Why the token, which could not be consumed, is refused. */
export async function whyRefused(reader: Reader, orgId: number, hash: string): Promise<TokenRefusal> {
  const known = await registrationTokens.find(reader, { tokenHash: hash });
  if (known === undefined) return "never issued";
  if (known.orgId !== orgId) return "not of this organization";
  if (known.revokedAt !== null) return "revoked";
  return known.used >= known.uses ? "used up" : "expired";
}

/** Throws token_scope if the request asks for more than the credential permits. */
export function checkRights(request: RegisterRequest, grant: Grant): void {
  const isHub = request.is_lighthouse === true || request.is_relay === true;
  if (isHub && !grant.mayBeHub) {
    throw new AppError("token_scope", "This registration token does not permit a lighthouse or a relay.", {
      hint: `Create one that does: \`${brand.executable} admin token create ORG --lighthouse\`.`,
    });
  }
}
