// Members of an organization, and invitations. An invitation gives the inviter no power over the user of the address. A
// user that the operator created joins at once, unless it belongs to another organization. Every other address accepts
// the link, with the user's password or, for a new user, a new one.

import type { ListedMember, Member, NewMember } from "../../api/members.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/plan.ts";
import { formatTime } from "../../base/quantities.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { principal, record, type Actor } from "../audit/record.ts";
import { sendMail } from "./mail.ts";
import { requireRole } from "./late-rights.ts";
import { confirmOwner, type OwnerConfirmation } from "./ownership.ts";
import { provenAtSignIn, type FactorServices } from "./factors/second-factor.ts";
import { signIn, type Origin, type SignInServices } from "./sign-in/sign-in.ts";
import { wrongCredentials } from "./sessions/sessions.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { Role } from "../../api/endpoint.ts";
import type { ServerOptions } from "../options.ts";
import { networkOf } from "../http/edge.ts";
import { countTokenGuess } from "../http/throttle.ts";
import { NotUnique, type Row, type Transaction } from "../store/database.ts";
import { computed, integer, integerOrNull, queryOne, text, truth } from "../store/table.ts";
import { rememberNetwork, memberships, type MembershipRow } from "../store/tables/organizations.ts";
import { users } from "../store/tables/users.ts";

type Store = Pick<ServerOptions, "db" | "system" | "publicUrl">;
type Org = Pick<OrganizationAccess, "id" | "slug">;

/** The role that the caller must still have at the time of the change. */
export const roleNow = (role: Role) => (role === "owner" ? "owner" : "admin");
const invitationMs = 72 * 3_600_000;
export const memberColumns = memberships.select();
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

/** `isForMember`: members learn neither who has no second factor nor when others were here. */
export function listedMemberOf(row: Row, isForMember: boolean): ListedMember {
  const { nodeCount, isDisabled, apps, keys, lastSeenAt } = ofUser.parse(row);
  const member = memberOf(row);
  const factors = (["totp", "passkey"] as const).filter((each) => (each === "totp" ? apps : keys) > 0);
  const isTold = !isForMember && member.user_id !== null;
  return {
    ...member,
    node_count: nodeCount,
    is_disabled: isDisabled,
    second_factors: isTold ? factors : null,
    last_seen_at: isTold && lastSeenAt !== null ? formatTime(lastSeenAt) : null,
  };
}

export function showMember({ id, email, role, userId, createdAt, expiresAt }: MembershipRow): Member {
  return {
    id,
    email,
    role,
    state: userId === null ? "invited" : "active",
    created_at: formatTime(createdAt),
    expires_at: expiresAt === null ? null : formatTime(expiresAt),
    user_id: userId,
  };
}

/**
 * A user that joins without a link ($3 = 1: added by the operator). These need a link: users that an invitation created,
 * and, unless the operator adds them, staff and members of other organizations. Until they accept, this organization
 * learns nothing about them.
 */
const joinsAtOnce = `SELECT id FROM users u WHERE email = $1 AND home_org_id IS NULL AND ($3 = 1 OR (is_staff = 0
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
    const entry =
      user === undefined
        ? {
            secretHash: hashToken(secret),
            expiresAt: now + invitationMs,
            invitedBy: principal(by.actor),
          }
        : { userId: user.id };
    const row = { orgId: org.id, email, role, createdAt: now, ...entry };
    const member = showMember(await memberships.insertReturning(tx, row));
    const type = user === undefined ? "member.invited" : "member.created";
    await record(tx, { ...memberEvent(org.id, now, by.actor, email), type, after: { email, role } });
    await tx.notify("auth", `member ${email}`);
    return user === undefined ? { ...member, link: `${publicUrl}/join/#${secret}` } : member;
  });
  return added.catch((error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    throw new AppError("conflict", `${email} is already a member.`, {
      cause: error,
      hint: `To change the role: \`${brand.executable} admin member update ${org.slug} ${quoteWord(email)} --role ROLE\`.`,
    });
  });
}

/**
 * Sends the link of an invitation by e-mail, and removes it from the answer. If sending fails, the inviter passes it
 * on.
 */
export async function emailInvitation(
  { mail, log, publicUrl }: Pick<ServerOptions, "mail" | "log" | "publicUrl">,
  { slug }: Pick<Org, "slug">,
  { link, ...member }: NewMember,
): Promise<NewMember> {
  if (link === undefined || mail === undefined) return link === undefined ? member : { ...member, link };
  const text = `You are invited to the organization ${slug} at ${publicUrl}.\n\nThis link accepts the invitation. It works once, for 72 hours:\n${link}\n`;
  try {
    await sendMail(mail, { to: member.email, subject: `${brand.title}: invitation to ${slug}`, text });
    return { ...member, is_emailed: true };
  } catch (error) {
    log.warn("Cannot send an invitation", { reason: error instanceof Error ? error.message : String(error) });
    return { ...member, link, is_emailed: false };
  }
}

const openInvitation = computed({
  email: text(),
  orgId: integer(),
  slug: text(),
  userId: integerOrNull(),
});

/** Throws not_found. */
async function findInvitation(
  { db, system, throttle }: Pick<SignInServices, "db" | "system" | "throttle">,
  secretHash: string,
  address: string,
) {
  const invitation = await queryOne(
    db,
    openInvitation,
    `SELECT m.email, m.org_id, o.slug, u.id AS user_id FROM memberships m JOIN organizations o ON o.id = m.org_id
     LEFT JOIN users u ON u.email = m.email
     WHERE m.secret_hash = $1 AND m.user_id IS NULL AND m.expires_at > $2 AND o.deleted_at IS NULL`,
    [secretHash, system.now()],
  );
  if (invitation === undefined) {
    countTokenGuess(throttle, address);
    throw new AppError("not_found", "This invitation is no longer valid. Ask for a new one.");
  }
  return invitation;
}

/**
 * The page of a link before it is accepted. It does not show whether the address has a user: the inviter may hold the
 * link.
 */
export async function showInvitation(
  services: Pick<SignInServices, "db" | "system" | "throttle">,
  secret: string,
  address: string,
): Promise<{ email: string; org_slug: string }> {
  const { email, slug } = await findInvitation(services, hashToken(secret), address);
  return { email, org_slug: slug };
}

/** Makes the user a member. Throws not_found if the invitation was used or withdrawn meanwhile. */
async function join(
  tx: Transaction,
  { secretHash, orgId, email }: { secretHash: string; orgId: number; email: string },
  { userId, address }: { userId: number; address: string },
  now: number,
): Promise<void> {
  const actor: Actor = { kind: "person", id: userId, ip: address };
  const accepted = { userId, secretHash: null, expiresAt: null };
  const changed = await memberships.update(tx, { secretHash, userId: null }, accepted);
  if (changed === 0) throw new AppError("not_found", "This invitation has already been used.");
  await record(tx, { ...memberEvent(orgId, now, actor, email), type: "member.created" });
  await tx.notify("auth", `user ${userId}`);
}

/** The signed-in user accepts an invitation of the own address: the way for users without a password. */
export async function acceptAsUser(
  services: Pick<SignInServices, "db" | "system" | "throttle">,
  secret: string,
  { userId, email }: { userId: number; email: string },
  address: string,
): Promise<{ email: string; org_slug: string }> {
  const { db, system } = services;
  const secretHash = hashToken(secret);
  const { orgId, slug, email: invited } = await findInvitation(services, secretHash, address);
  if (invited !== email) {
    throw new AppError("permission_denied", `This invitation is for another address than ${email}.`, {
      hint: "Sign in as the user of that address, or choose a password for it.",
    });
  }
  await db.write(async (tx) => {
    if ((await users.find(tx, { id: userId, isActive: true, email })) === undefined) throw wrongCredentials();
    await join(tx, { secretHash, orgId, email }, { userId, address }, system.now());
  });
  return { email, org_slug: slug };
}

/** Accepts an invitation: with the user's password, or with a new password if the address has no user. */
export async function acceptInvitation(
  services: SignInServices & FactorServices,
  { secret, password, otp }: { secret: string; password: string; otp?: string | undefined },
  origin: Origin,
): Promise<{ email: string; org_slug: string }> {
  const { address } = origin;
  const { db, passwords, system } = services;
  const secretHash = hashToken(secret);
  const invitation = await findInvitation(services, secretHash, address);
  const { email, orgId, slug } = invitation;
  const isNew = invitation.userId === null;
  const known = isNew ? undefined : await signIn(services, { email, password }, origin);
  if (known !== undefined) await provenAtSignIn(services, known, otp, address);
  const network = networkOf(address);
  const turn = { user: email, source: network, isKnown: false };
  const hashed = isNew ? await passwords.hash(password, turn) : "";
  await db.write(async (tx) => {
    if (known !== undefined) await requireUnchanged(tx, known);
    const userId = known?.userId ?? (await createInvited(tx, email, hashed, orgId, system.now()));
    await join(tx, { secretHash, orgId, email }, { userId, address }, system.now());
    await rememberNetwork(tx, { userId, network, now: system.now() });
  });
  return { email, org_slug: slug };
}

/** Throws if the user was disabled, or the password changed, since the password was checked. */
async function requireUnchanged(
  tx: Transaction,
  { userId, passwordHash }: { userId: number; passwordHash: string },
): Promise<void> {
  const user = await users.find(tx, { id: userId, isActive: true, passwordHash });
  if (user === undefined) throw wrongCredentials();
}

/** Creates a user that belongs only to the inviting organization. */
async function createInvited(
  tx: Transaction,
  email: string,
  passwordHash: string,
  homeOrgId: number,
  now: number,
): Promise<number> {
  const row = { email, passwordHash, homeOrgId, sessionsFrom: now, createdAt: now };
  const created = await users.upsert(tx, row, "ON CONFLICT (email) DO NOTHING");
  const user = await users.find(tx, { email });
  if (created === 0 || user === undefined) {
    throw new AppError("conflict", `The user ${email} exists now. Accept with the user's password.`);
  }
  return user.id;
}

export async function findMember(
  reader: Pick<Transaction, "get">,
  org: Org,
  memberId: number,
): Promise<Member> {
  return showMember(await findMembership(reader, org, memberId));
}

export async function findMembership(
  reader: Pick<Transaction, "get">,
  org: Org,
  memberId: number,
): Promise<MembershipRow> {
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
  const isProven = invitedBy === principal(actor) && confirmation.id === undefined;
  if (!isProven) await confirmOwner(tx, userId, confirmation);
}

/** Throws permission_denied. */
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
