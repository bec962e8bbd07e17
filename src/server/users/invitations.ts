// Sends the link of an invitation by e-mail, and accepts an invitation: by its link with the user's password, or for a new user with
// a new one; or as the signed-in user. members.ts creates invitations.

import { invitationHours, type NewMember } from "../../api/members.ts";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { hashToken } from "../../pki/opaque.ts";
import { type Actor, record } from "../audit/record.ts";
import { sendMailOf } from "./mail.ts";
import { type FactorServices, provenAtSignIn } from "./factors/second-factor.ts";
import { type Origin, type SignInServices, signIn } from "./sign-in/sign-in.ts";
import { wrongCredentials } from "./sessions/sessions.ts";
import type { ServerOptions } from "../options.ts";
import { networkOf } from "../../base/ip.ts";
import { countTokenGuess, type Throttle } from "../http/throttle.ts";
import type { Transaction } from "../store/database.ts";
import { computed, integer, integerOrNull, queryOne, text } from "../store/table.ts";
import { memberships, rememberNetwork } from "../store/tables/organizations.ts";
import { users } from "../store/tables/users.ts";
import { memberEvent } from "./members.ts";

/**
 * Sends the link of an invitation by e-mail, and removes it from the answer. If sending fails, the inviter passes it
 * on.
 */
export async function emailInvitation(
  {
    mail,
    log,
    publicUrl,
    throttle,
  }: Pick<ServerOptions, "mail" | "log" | "publicUrl"> & { throttle: Throttle },
  { slug }: { slug: string },
  { link, ...member }: NewMember,
): Promise<NewMember> {
  if (link === undefined) return member;
  if (mail === undefined) return { ...member, link };
  const text = `You are invited to the organization ${slug} at ${publicUrl}.\n\nThis link accepts the invitation. It works once, for ${invitationHours} hours:\n${link}\n`;
  try {
    const subject = `${brand.title}: invitation to ${slug}`;
    await sendMailOf(slug, { mail, throttle }, { to: member.email, subject, text });
    return { ...member, is_emailed: true };
  } catch (error) {
    log.warn("Cannot send an invitation", { reason: messageOf(error) });
    return { ...member, link, is_emailed: false };
  }
}

const openInvitation = computed({
  email: text(),
  orgId: integer(),
  slug: text(),
  userId: integerOrNull(),
});

/**
 * The open invitation of a link. `address`: of the client, because a network may guess only a few secrets. Its `userId`: of the user
 * with the invited e-mail address, if there is one. Throws not_found.
 */
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
export async function joinOrganization(
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
    await joinOrganization(tx, { secretHash, orgId, email }, { userId, address }, system.now());
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
  const proven = isNew ? undefined : await signIn(services, { email, password }, origin);
  // Only its errors matter: accepting an invitation begins no session.
  if (proven !== undefined) await provenAtSignIn(services, proven, otp, address);
  const network = networkOf(address);
  const turn = { user: email, source: network, isKnown: false };
  // Before the transaction, because hashing takes long. Used for a new user alone.
  const hashed = isNew ? await passwords.hash(password, turn) : "";
  await db.write(async (tx) => {
    if (proven !== undefined) await requireUnchanged(tx, proven);
    const userId =
      proven?.userId ??
      (await createInvited(tx, { email, passwordHash: hashed, homeOrgId: orgId }, system.now()));
    await joinOrganization(tx, { secretHash, orgId, email }, { userId, address }, system.now());
    // So that the first sign-in from there is not one from an unknown network.
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
  { email, ...rest }: { email: string; passwordHash: string; homeOrgId: number },
  now: number,
): Promise<number> {
  const row = { email, ...rest, sessionsFrom: now, createdAt: now };
  const created = await users.upsert(tx, row, "ON CONFLICT (email) DO NOTHING");
  const user = await users.find(tx, { email });
  if (created === 0 || user === undefined) {
    throw new AppError("conflict", `The user ${email} exists now. Accept with the user's password.`);
  }
  return user.id;
}
