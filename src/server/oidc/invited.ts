// Invitations of users who sign in by a provider: they have no password, so no link asks for one. The address counts
// only where the provider may vouch for it. No sign-in by a provider makes an owner: such an invitation stays open.

import { ourselves, record } from "../audit/record.ts";
import { memberEvent } from "../users/members.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { memberships, type MembershipRow } from "../store/tables/organizations.ts";

/** The open invitations of the address that a sign-in may accept. */
export function invitationsOf(
  tx: Reader,
  address: string,
  { now, orgId }: { now: number; orgId?: number },
): Promise<MembershipRow[]> {
  const sql = `SELECT ${memberships.select("m")} FROM memberships m
    JOIN organizations o ON o.id = m.org_id AND o.deleted_at IS NULL
    WHERE m.email = $1 AND m.user_id IS NULL AND m.role <> 'owner' AND m.expires_at > $2
      AND m.org_id = coalesce($3, m.org_id) ORDER BY m.id`;
  return queryAll(tx, memberships, sql, [address, now, orgId ?? null]);
}

/** The user becomes a member. The role is the inviter's: no group takes it. */
export async function acceptInvited(
  tx: Transaction,
  { id, orgId, role }: MembershipRow,
  { userId, email }: { userId: number; email: string },
  now: number,
): Promise<void> {
  const accepted = { userId, email, secretHash: null, expiresAt: null };
  await memberships.update(tx, { id, userId: null }, accepted);
  const event = memberEvent(orgId, now, ourselves, email);
  await record(tx, { ...event, type: "member.created", after: { email, role } });
  await tx.notify("auth", `user ${userId}`);
}

/** An invited member may sign in without a group that gives a role. `providerId` null: no group gave the membership. */
export async function isInvited(tx: Reader, at: { orgId: number; userId: number }): Promise<boolean> {
  const membership = await memberships.find(tx, at);
  return membership !== undefined && membership.providerId === null && membership.invitedBy !== null;
}
