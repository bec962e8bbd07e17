// Changes the role of a member, or removes the member. The access that ends with it ends in the same transaction.

import { AppError } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import { roles, type Role } from "../../api/endpoint.ts";
import { ownerGroup } from "../../protocol/users-groups.ts";
import { regroupOwned } from "../nodes/owner-groups.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole } from "../require-role.ts";
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
} from "./end-access.ts";

type Store = Pick<ServerOptions, "db" | "system">;
type Org = { id: number; slug: string };
type Changed = { member: Member; access: Access };

const noAccess: Access = { left: [], revoked: [] };

/** The change is one transaction. After it, names and addresses of the nodes that ended with it are released. */
async function changeMember(
  store: Store,
  org: Org,
  change: (tx: Transaction) => Promise<Changed>,
): Promise<Changed> {
  const changed = await store.db.writeFor({ org: org.id }, change);
  if (changed.access.revoked.length > 0) await runDueUpkeep(store, org.id);
  return changed;
}

/**
 * Only owners appoint, change or remove owners, and the last owner stays. A user who becomes `member` can no longer
 * create tokens: `access` lists those that keep working. The invitations that the user sent are deleted.
 */
export async function changeRole(
  store: Store,
  org: Org,
  memberId: number,
  role: Role,
  by: { role: Role; actor: Actor; confirmation?: OwnerConfirmation },
): Promise<Changed> {
  return changeMember(store, org, async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    const before = await findMembership(tx, org, memberId);
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
    const now = store.system.now();
    const access = await endWithRole(tx, org, before, role, { actor: by.actor, now });
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

/** What ends with a change of the role from `before` to `role`. */
const whatEnds = (before: Role, role: Role) => ({
  access: role === "member" && before !== "member",
  // An owner who becomes a member loses all open invitations with `access`.
  ownerInvitations: role === "admin" && before === "owner",
  // `roles` begins with the lowest.
  browserSessions: roles.indexOf(role) < roles.indexOf(before),
});

/** Ends what a lower role does not permit. */
async function endWithRole(
  tx: Transaction,
  org: Org,
  { userId, email, role: before }: MembershipRow,
  role: Role,
  by: { actor: Actor; now: number },
): Promise<Access> {
  // The invitation is not accepted yet, so no user has the role.
  if (userId === null) return noAccess;
  const ends = whatEnds(before, role);
  const reason = `${email} is no longer an administrator`;
  const access = ends.access
    ? await endAccess(tx, { kind: "person", id: userId }, { ...by, reason }, org)
    : noAccess;
  if (ends.browserSessions) await endBrowserSessions(tx, userId);
  if (ends.ownerInvitations) await withdrawOwnerInvitations(tx, org.id, userId, by);
  return access;
}

/** Command lines, whose sessions have a family of tokens, stay signed in. */
const endBrowserSessions = (tx: Transaction, userId: number) =>
  browserSessions.delete(tx, { userId, family: null });

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

/** Removes a member; the last owner stays. `ends`: what of the access that the user gave to others, or to machines, ends too. */
export async function removeMember(
  store: Store,
  org: Org,
  memberId: number,
  by: { role: Role; actor: Actor },
  ends: Pick<Ending, "revokeTokens" | "revokeNodes"> = {},
): Promise<Changed> {
  return changeMember(store, org, async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    const before = await findMembership(tx, org, memberId);
    requireMayChange(by.role, before.role, before.role);
    const deleted = await tx.run(
      `DELETE FROM memberships WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR user_id IS NULL OR ${anotherOwner})`,
      [memberId, org.id],
    );
    if (deleted === 0) throw lastOwner(before.email);
    const event = memberEvent(org.id, store.system.now(), by.actor, before.email);
    // A webhook, like a token, is access that the user gave to others.
    const revokeWebhooks = ends.revokeTokens === true;
    const reason = `${before.email} was removed`;
    const ending = { ...ends, isLeaving: true, revokeWebhooks, actor: by.actor, now: event.at, reason };
    const { userId } = before;
    const access =
      userId === null ? noAccess : await endAccess(tx, { kind: "person", id: userId }, ending, org);
    if (userId !== null) {
      // The user's nodes leave the groups that a provider gave, and those in which the policy names the user or its groups.
      await groupUsers.delete(tx, { orgId: org.id, people: ownerGroup(userId) });
      // Groups that nodes were given directly, and lose as well: those that providers decide.
      const taken = await groupsThatProvidersDecide(tx, org.id, userId);
      await regroupOwned(tx, org.id, event.at, { ownerId: userId, taken });
      await endBrowserSessions(tx, userId);
    }
    const deletion = { before: { role: before.role }, ...accessForEvent(access) };
    await record(tx, { ...event, type: "member.deleted", ...deletion });
    await tx.notify("auth", `member ${before.email}`);
    return { member: showMember(before), access };
  });
}
