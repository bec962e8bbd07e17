// What users may do with their own nodes without being administrators: list, revoke, confirm and import them. A node
// belongs to a user or to the organization.

import { AppError } from "../../base/errors.ts";
import type { Caller, OrganizationAccess } from "../http/route.ts";
import type { Transaction } from "../store/database.ts";

type Call = { caller: Caller; org: OrganizationAccess };

/**
 * The user whose nodes "me" means. Throws validation_failed for callers that are no members: programs, and
 * staff who visit the organization.
 */
export function requireMe({ caller, org }: Call): number {
  if (caller.kind === "person" && !org.visiting) return caller.userId;
  throw new AppError("validation_failed", "Only a member of the organization has nodes of their own.", {
    errors: { owner: ["Sign in as a member of the organization."] },
  });
}

/**
 * The user who must own a node to revoke it, for the role `member`. Undefined for the roles above it, which may revoke
 * every node. Throws permission_denied for a service token with the role `member`.
 */
export function ownerRequiredOf({ caller, org }: Call): number | undefined {
  if (org.role !== "member") return undefined;
  if (caller.kind === "person") return caller.userId;
  throw mayNotRevoke();
}

/** Throws permission_denied if the node is not the user's, or the user is no longer a member. Call it in the transaction. */
export async function requireOwner(
  tx: Transaction,
  node: { orgId: number; ownerId: number | null },
  userId: number,
): Promise<void> {
  const sql = `SELECT m.id FROM memberships m JOIN users u ON u.id = m.user_id AND u.is_active = 1
    WHERE m.org_id = $1 AND m.user_id = $2`;
  const isMember = (await tx.get(sql, [node.orgId, userId])) !== undefined;
  if (isMember && node.ownerId === userId) return;
  throw new AppError("permission_denied", "Only the user whose node it is may do this.");
}

export function mayNotRevoke(): AppError {
  return new AppError(
    "permission_denied",
    "Only administrators, and the user whose node it is, may revoke a node.",
  );
}
