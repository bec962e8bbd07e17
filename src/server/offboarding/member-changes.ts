// Changes the role of a member, or removes the member. The access that ends with it ends in the same transaction.

import { AppError } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import type { Role } from "../../api/endpoint.ts";
import { ownerGroup } from "../../protocol/users-groups.ts";
import { regroupOwned } from "../nodes/owner-groups.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole } from "../users/late-rights.ts";
import { groupsThatProvidersDecide } from "../policy/group-users.ts";
import {
  anotherOwner,
  findMembership,
  lastOwner,
  memberColumns,
  memberEvent,
  requireMayChange,
  requireProvenAddress,
  roleNow,
  showMember,
} from "../users/members.ts";
import type { Member } from "../../api/members.ts";
import type { OwnerConfirmation } from "../users/ownership.ts";
import type { Transaction } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { browserSessions } from "../store/tables/sessions.ts";
import { groupUsers } from "../store/tables/providers.ts";
import { memberships, type MembershipRow } from "../store/tables/organizations.ts";
import { users } from "../store/tables/users.ts";
import {
  accessForEvent,
  endAccess,
  withdrawOwnerInvitations,
  type Access,
  type Ending,
} from "./left-access.ts";

type Org = { id: number; slug: string };

const none: Access = { left: [], revoked: [] };

/**
 * Only owners appoint, change or remove owners, and the last owner stays. A user who becomes `member` can no longer
 * create tokens: `access` lists those that keep working. The invitations that the user sent are deleted.
 */
export async function changeRole(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org,
  memberId: number,
  role: Role,
  by: { role: Role; actor: Actor; confirmation?: OwnerConfirmation },
): Promise<{ member: Member; access: Access }> {
  return db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    const before = await findMembership(tx, org, memberId);
    const { userId } = before;
    requireMayChange(by.role, before.role, role);
    if (role === "owner") await requireUnbound(tx, before);
    if (role === "owner" && before.role !== "owner") await requireProvenAddress(tx, before, by);
    const changed = await queryOne(
      tx,
      memberships,
      `UPDATE memberships SET role = $3 WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR $3 = 'owner' OR user_id IS NULL OR ${anotherOwner}) RETURNING ${memberColumns}`,
      [memberId, org.id, role],
    );
    if (changed === undefined) throw lastOwner(before.email);
    const now = system.now();
    const isDemoted = role === "member" && before.role !== "member";
    const ending = { actor: by.actor, now, reason: `${before.email} is no longer an administrator` };
    const access =
      isDemoted && userId !== null ? await endAccess(tx, { kind: "person", id: userId }, ending, org) : none;
    const isLess = isDemoted || (before.role === "owner" && role !== "owner");
    if (isLess && userId !== null) await browserSessions.delete(tx, { userId, family: null });
    if (before.role === "owner" && role === "admin" && userId !== null) {
      await withdrawOwnerInvitations(tx, org.id, userId, { actor: by.actor, now });
    }
    await record(tx, {
      ...memberEvent(org.id, now, by.actor, before.email),
      type: "member.updated",
      before: { role: before.role },
      after: { role, ...accessForEvent(access).after },
    });
    await tx.notify("auth", `member ${before.email}`);
    return { member: showMember(changed), access };
  });
}

/**
 * An owner must be able to sign in while the organization's provider is away, and the provider's operator must not
 * become one.
 */
async function requireUnbound(tx: Transaction, { userId, email }: MembershipRow): Promise<void> {
  const user = userId === null ? undefined : await users.find(tx, { id: userId });
  if (user === undefined || user.boundOrgId === null) return;
  throw new AppError("conflict", `${email} signs in by the organization's provider, so cannot be an owner.`, {
    hint: "Invite an e-mail address as owner: owners sign in with a password or a passkey.",
  });
}

export async function removeMember(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org,
  memberId: number,
  by: { role: Role; actor: Actor },
  ends: Pick<Ending, "revokeTokens" | "revokeNodes"> = {},
): Promise<{ member: Member; access: Access }> {
  const removed = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    const before = await findMembership(tx, org, memberId);
    requireMayChange(by.role, before.role, before.role);
    const deleted = await tx.run(
      `DELETE FROM memberships WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR user_id IS NULL OR ${anotherOwner})`,
      [memberId, org.id],
    );
    if (deleted === 0) throw lastOwner(before.email);
    const event = memberEvent(org.id, system.now(), by.actor, before.email);
    const revokeWebhooks = ends.revokeTokens === true;
    const reason = `${before.email} was removed`;
    const ending = { ...ends, isLeaving: true, revokeWebhooks, actor: by.actor, now: event.at, reason };
    const { userId } = before;
    const access = userId === null ? none : await endAccess(tx, { kind: "person", id: userId }, ending, org);
    if (userId !== null) {
      // The user's nodes leave the groups that a provider gave, and those in which the policy names the user or its groups.
      await groupUsers.delete(tx, { orgId: org.id, people: ownerGroup(userId) });
      const taken = await groupsThatProvidersDecide(tx, org.id, userId);
      await regroupOwned(tx, org.id, event.at, { ownerId: userId, taken });
      await browserSessions.delete(tx, { userId, family: null });
    }
    const deletion = { before: { role: before.role }, ...accessForEvent(access) };
    await record(tx, { ...event, type: "member.deleted", ...deletion });
    await tx.notify("auth", `member ${before.email}`);
    return { member: showMember(before), access };
  });
  if (removed.access.revoked.length > 0) await runDueUpkeep({ db, system }, org.id);
  return removed;
}
