// Members of an organization. A user that the operator created joins at once, unless it belongs to another organization.
// Every other address is invited: an invitation gives the inviter no power over the user of the address.

import { invitationHours, type ListedMember, type Member, type NewMember } from "../../api/members.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { type Actor, principal, record } from "../audit/record.ts";
import { requireRole } from "../require-role.ts";
import { type OwnerConfirmation, confirmOwner } from "./ownership.ts";
import type { Org } from "../http/route.ts";
import type { Role } from "../../api/endpoint.ts";
import type { ServerOptions } from "../options.ts";
import { ifNotUnique, type Reader, type Row, type Transaction } from "../store/database.ts";
import { computed, integer, integerOrNull, queryOne, truth } from "../store/table.ts";
import { type MembershipRow, memberships } from "../store/tables/organizations.ts";
import { users } from "../store/tables/users.ts";

type Store = Pick<ServerOptions, "db" | "system" | "publicUrl">;

/** The role that a caller with this role must still have at the time of the change, for `requireRole`. */
export const roleNow = (role: Role) => (role === "owner" ? "owner" : "admin");
export const memberColumns = memberships.select();
/** What the list shows of the member's user. `apps`, `keys`: how many second factors (authenticator apps, passkeys) it has. */
const ofUser = computed({
  nodeCount: integer(),
  isDisabled: truth(0),
  apps: integer(),
  keys: integer(),
  lastSeenAt: integerOrNull(),
});
/** For SELECT of the list. "+ 0": SQLite would otherwise read the nodes of the organization for each member. */
export const listedColumns = `${memberColumns}, (SELECT count(*) FROM nodes n
  WHERE n.owner_id = memberships.user_id AND n.org_id + 0 = memberships.org_id AND n.state <> 'revoked') AS node_count,
  (SELECT count(*) FROM users u WHERE u.id = memberships.user_id AND u.is_active = 0) AS is_disabled,
  (SELECT count(*) FROM totp_secrets t WHERE t.user_id = memberships.user_id AND t.confirmed_at IS NOT NULL) AS apps,
  (SELECT count(*) FROM passkeys p WHERE p.user_id = memberships.user_id) AS keys,
  coalesce((SELECT max(s.last_used_at) FROM browser_sessions s WHERE s.user_id = memberships.user_id),
    (SELECT u.last_login_at FROM users u WHERE u.id = memberships.user_id)) AS last_seen_at`;
/** SQL condition: the organization has another owner who can sign in. */
export const anotherOwner = `EXISTS (SELECT 1 FROM memberships o JOIN users u ON u.id = o.user_id
  WHERE o.org_id = memberships.org_id AND o.role = 'owner' AND u.is_active = 1 AND o.id <> memberships.id)`;

function memberOf(row: Row): Member {
  return showMember(memberships.parse(row));
}

/** A row of the list. `isForMember`: members learn neither who has no second factor nor when others were here. */
export function listedMemberOf(row: Row, isForMember: boolean): ListedMember {
  const { nodeCount, isDisabled, apps, keys, lastSeenAt } = ofUser.parse(row);
  const member = memberOf(row);
  const factors = (["totp", "passkey"] as const).filter((each) => (each === "totp" ? apps : keys) > 0);
  const showsUser = !isForMember && member.user_id !== null;
  return {
    ...member,
    node_count: nodeCount,
    is_disabled: isDisabled,
    second_factors: showsUser ? factors : null,
    last_seen_at: showsUser && lastSeenAt !== null ? formatTime(lastSeenAt) : null,
  };
}

export function showMember({ id, email, role, userId, createdAt, expiresAt }: MembershipRow): Member {
  return {
    id,
    email,
    role,
    state: userId === null ? "invited" : "active",
    created_at: formatTime(createdAt),
    expires_at: timeOrNull(expiresAt),
    user_id: userId,
  };
}

/**
 * The user of the address $1, if it joins the organization $2 without a link ($3 = 1: added by the operator). These need a link:
 * users that an invitation created, and, unless the operator adds them, staff and members of other organizations. Until they accept,
 * this organization learns nothing about them.
 */
const joinsAtOnce = `SELECT id FROM users u
  WHERE email = $1
    AND home_org_id IS NULL
    AND ($3 = 1 OR (is_staff = 0
      AND NOT EXISTS (SELECT 1 FROM memberships m WHERE m.user_id = u.id AND m.org_id <> $2)))`;

/** Adds a user that may join at once; invites any other address. Only owners appoint owners or withdraw their invitations. */
export async function addMember(
  { db, system, publicUrl }: Store,
  org: Org,
  { email, role }: { email: string; role: Role },
  by: { role: Role; actor: Actor },
): Promise<NewMember> {
  const secret = makeOpaqueToken(system.random);
  const now = system.now();
  const added = db.write(async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    // A new invitation replaces an open one.
    const open = await queryOne(
      tx,
      memberships,
      `DELETE FROM memberships WHERE org_id = $1 AND email = $2 AND user_id IS NULL RETURNING ${memberColumns}`,
      [org.id, email],
    );
    requireMayChange(by.role, open?.role ?? role, role);
    const isOperator = by.actor.kind === "operator" ? 1 : 0;
    const user = await queryOne(tx, users.pick("id"), joinsAtOnce, [email, org.id, isOperator]);
    const expiresAt = now + invitationHours * 3_600_000;
    const invitation = { secretHash: hashToken(secret), expiresAt, invitedBy: principal(by.actor) };
    const who = user === undefined ? invitation : { userId: user.id };
    const row = { orgId: org.id, email, role, createdAt: now, ...who };
    const member = showMember(await memberships.insertReturning(tx, row));
    const type = user === undefined ? "member.invited" : "member.created";
    await record(tx, { ...memberEvent(org.id, now, by.actor, email), type, after: { email, role } });
    await tx.notify("auth", `member ${email}`);
    return user === undefined ? { ...member, link: `${publicUrl}/join/#${secret}` } : member;
  });
  const hint = `To change the role: \`${brand.executable} admin member update ${org.slug} ${quoteWord(email)} --role ROLE\`.`;
  const isMember = (cause: unknown) =>
    new AppError("conflict", `${email} is already a member.`, { cause, hint });
  return added.catch(ifNotUnique(isMember));
}

export async function findMember(reader: Reader, org: Org, memberId: number): Promise<Member> {
  return showMember(await findMembership(reader, org, memberId));
}

export async function findMembership(reader: Reader, org: Org, memberId: number): Promise<MembershipRow> {
  const membership = await memberships.find(reader, { id: memberId, orgId: org.id });
  if (membership === undefined) throw new AppError("not_found", "There is no such member.");
  return membership;
}

/**
 * Checks that the member may become owner. The inviter could use the link instead of the owner of the address, so only an
 * invitation that the caller sent proves the address to the caller.
 */
export async function requireProvenAddress(
  tx: Transaction,
  { email, userId, invitedBy }: MembershipRow,
  { actor, confirmation = {} }: { actor: Actor; confirmation?: OwnerConfirmation },
): Promise<void> {
  if (userId === null) {
    if (invitedBy === principal(actor)) return;
    throw new AppError("conflict", `Another user invited ${email} and holds the link.`, {
      hint: `Invite the address again as owner: \`${brand.executable} admin member create ORG EMAIL --role owner\`. That revokes the old link and gives you the new one.`,
    });
  }
  // A confirmation that is given is checked in any case: it may name another user.
  const isProven = invitedBy === principal(actor) && confirmation.id === undefined;
  if (!isProven) await confirmOwner(tx, userId, confirmation);
}

/** Only owners change the role of an owner, or make one. `by`: the role of the caller. Throws permission_denied. */
export function requireMayChange(by: Role, before: Role, after: Role): void {
  if (by === "owner" || (before !== "owner" && after !== "owner")) return;
  throw new AppError("permission_denied", "Only an owner can appoint, change or remove an owner.");
}

export function lastOwner(email: string): AppError {
  return new AppError("conflict", `${email} is the last owner.`, {
    hint: `Appoint another owner first. On the server: \`${brand.executable} admin member update ORG EMAIL --role owner\`.`,
  });
}

export function memberEvent(orgId: number, at: number, actor: Actor, email: string) {
  return { orgId, at, actor, subject: `member/${email}` };
}
