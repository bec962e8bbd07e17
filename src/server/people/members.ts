// Members of an organization, and invitations. Inviting an address gives no power over its user: a user that the operator
// created joins as itself, unless another organization has it already; every other address opens the link and knows (or
// sets) the password.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { quoteWord } from "../../plan.ts";
import { formatTime } from "../../duration.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { principal, record, type Actor } from "../audit/record.ts";
import { requireRole } from "./late-rights.ts";
import { confirmOwner, type OwnerConfirmation } from "./ownership.ts";
import { signIn, type SignInServices } from "./people.ts";
import { wrongCredentials } from "./sessions.ts";
import type { OrganizationAccess, Role } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { guesser } from "../http/throttle.ts";
import {
  NotUnique,
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  type Row,
  type Transaction,
} from "../store/database.ts";

export const Member = v.object({
  id: v.number(),
  email: v.string(),
  role: v.picklist(["member", "admin", "owner"]),
  state: v.picklist(["active", "invited"]),
  created_at: v.string(),
  expires_at: v.nullable(v.string()),
});
export type Member = v.InferOutput<typeof Member>;
/** `link` is there once, for the inviter to pass on. */
export const NewMember = v.object({ ...Member.entries, link: v.optional(v.string()) });
export type NewMember = v.InferOutput<typeof NewMember>;

type Store = Pick<ServerOptions, "db" | "system" | "publicUrl">;
type Org = Pick<OrganizationAccess, "id" | "slug">;

export const roleNow = (role: Role) => (role === "owner" ? "owner" : "admin");
const invitationMs = 72 * 3_600_000;
export const memberColumns = "id, email, role, user_id, created_at, expires_at";
/** True for a row `m` that is not the only owner who can still sign in. */
export const anotherOwner = `EXISTS (SELECT 1 FROM memberships o JOIN users u ON u.id = o.user_id
  WHERE o.org_id = memberships.org_id AND o.role = 'owner' AND u.is_active = 1 AND o.id <> memberships.id)`;

export function memberOf(row: Row): Member {
  const role = textOf(row, "role");
  const expires = numberOrNull(row, "expires_at");
  return {
    id: numberOf(row, "id"),
    email: textOf(row, "email"),
    role: role === "owner" || role === "admin" ? role : "member",
    state: numberOrNull(row, "user_id") === null ? "invited" : "active",
    created_at: formatTime(numberOf(row, "created_at")),
    expires_at: expires === null ? null : formatTime(expires),
  };
}

/**
 * A user that joins without a link. Created by an invitation, it needs one; so does staff or a member of another
 * organization, unless the operator adds it: until it accepts, this organization sees nothing of it.
 */
const joinsAtOnce = `SELECT id FROM users u WHERE email = $1 AND home_org_id IS NULL AND ($3 = 1 OR (is_staff = 0
  AND NOT EXISTS (SELECT 1 FROM memberships m WHERE m.user_id = u.id AND m.org_id <> $2)))`;

/** Adds a user that may join at once; invites any other address. Only owners make owners, or take that back. */
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
    // An invitation that nobody took up gives way to the next.
    const open = await tx.get(
      `DELETE FROM memberships WHERE org_id = $1 AND email = $2 AND user_id IS NULL RETURNING ${memberColumns}`,
      [org.id, email],
    );
    mayTouch(by.role, open === undefined ? role : memberOf(open).role, role);
    const user = await tx.get(joinsAtOnce, [email, org.id, by.actor.kind === "operator" ? 1 : 0]);
    const known = user !== undefined;
    const row = await tx.get(
      `INSERT INTO memberships (org_id, email, user_id, role, secret_hash, expires_at, created_at, invited_by)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING ${memberColumns}`,
      [
        org.id,
        email,
        known ? numberOf(user, "id") : null,
        role,
        known ? null : hashToken(secret),
        known ? null : now + invitationMs,
        now,
        known ? null : principal(by.actor),
      ],
    );
    const member = memberOf(row ?? {});
    const type = known ? "member.created" : "member.invited";
    await record(tx, { ...happened(org.id, now, by.actor, email), type, after: { email, role } });
    await tx.notify("auth", `member ${email}`);
    return known ? member : { ...member, link: `${publicUrl}/join/#${secret}` };
  });
  return added.catch((error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    throw new AppError("conflict", `${email} is a member already.`, {
      cause: error,
      hint: `Another role is given by \`${brand.executable} admin member update ${org.slug} ${quoteWord(email)} --role ROLE\`.`,
    });
  });
}

/** Takes an invitation up: with a new password for an address without an account, else with the account's own. */
export async function acceptInvitation(
  services: SignInServices,
  { secret, password }: { secret: string; password: string },
  address: string,
): Promise<{ email: string; org_slug: string }> {
  const { db, passwords, system, throttle } = services;
  const secretHash = hashToken(secret);
  const row = await db.get(
    `SELECT m.email, m.org_id, o.slug, u.id AS user_id FROM memberships m JOIN organizations o ON o.id = m.org_id
     LEFT JOIN users u ON u.email = m.email
     WHERE m.secret_hash = $1 AND m.user_id IS NULL AND m.expires_at > $2 AND o.deleted_at IS NULL`,
    [secretHash, system.now()],
  );
  if (row === undefined) {
    throttle.count(guesser("token", address));
    throw new AppError("not_found", "This invitation is not valid any more. Ask for a new one.");
  }
  const [email, orgId] = [textOf(row, "email"), numberOf(row, "org_id")];
  const isNew = numberOrNull(row, "user_id") === null;
  const known = isNew ? undefined : await signIn(services, { email, password }, address);
  const hashed = isNew ? await passwords.hash(password) : "";
  await db.write(async (tx) => {
    if (known !== undefined) await stillSignedIn(tx, known);
    const userId = known?.userId ?? (await newcomer(tx, email, hashed, orgId, system.now()));
    const taken = await tx.run(
      `UPDATE memberships SET user_id = $2, secret_hash = NULL, expires_at = NULL
       WHERE secret_hash = $1 AND user_id IS NULL`,
      [secretHash, userId],
    );
    if (taken === 0) throw new AppError("not_found", "This invitation has been used already.");
    const actor: Actor = { kind: "person", id: userId, ip: address };
    await record(tx, { ...happened(orgId, system.now(), actor, email), type: "member.created" });
    await tx.notify("auth", `user ${userId}`);
  });
  return { email, org_slug: textOf(row, "slug") };
}

/** The user may have been disabled, or its password changed, since the password was checked. */
async function stillSignedIn(
  tx: Transaction,
  { userId, passwordHash }: { userId: number; passwordHash: string },
): Promise<void> {
  const row = await tx.get("SELECT id FROM users WHERE id = $1 AND is_active = 1 AND password_hash = $2", [
    userId,
    passwordHash,
  ]);
  if (row === undefined) throw wrongCredentials();
}

/** An account that belongs to the inviting organization only. */
async function newcomer(
  tx: Transaction,
  email: string,
  hashed: string,
  orgId: number,
  now: number,
): Promise<number> {
  const row = await tx.get(
    `INSERT INTO users (email, password_hash, home_org_id, sessions_from, created_at) VALUES ($1, $2, $3, $4, $4)
     ON CONFLICT (email) DO NOTHING RETURNING id`,
    [email, hashed, orgId, now],
  );
  if (row === undefined)
    throw new AppError("conflict", `There is an account for ${email} now; use its password.`);
  return numberOf(row, "id");
}

export async function findMember(
  reader: Pick<Transaction, "get">,
  org: Org,
  memberId: number,
): Promise<Member> {
  return (await findMembership(reader, org, memberId)).member;
}

type Membership = { member: Member; userId: number | undefined; invitedBy: string | null };

/** With the user behind it; undefined while it is an invitation. */
export async function findMembership(
  reader: Pick<Transaction, "get">,
  org: Org,
  memberId: number,
): Promise<Membership> {
  const row = await reader.get(
    `SELECT ${memberColumns}, invited_by FROM memberships WHERE id = $1 AND org_id = $2`,
    [memberId, org.id],
  );
  if (row === undefined) throw new AppError("not_found", "There is no such member.");
  const userId = numberOrNull(row, "user_id") ?? undefined;
  return { member: memberOf(row), userId, invitedBy: textOrNull(row, "invited_by") };
}

/**
 * The inviter could use the link instead of the address's owner, so only an invitation that the caller sent proves the
 * address to the caller.
 */
export async function requireOwner(
  tx: Transaction,
  { member, userId, invitedBy }: Membership,
  { actor, confirmation = {} }: { actor: Actor; confirmation?: OwnerConfirmation },
): Promise<void> {
  if (userId === undefined) {
    if (invitedBy === principal(actor)) return;
    throw new AppError("conflict", `Another user invited ${member.email} and holds the link.`, {
      hint: `Invite the address again as owner (\`${brand.executable} admin member create ORG EMAIL --role owner\`): the old link ends, and you get the new one.`,
    });
  }
  const isProven = invitedBy === principal(actor) && confirmation.id === undefined;
  if (!isProven) await confirmOwner(tx, userId, confirmation);
}

export function mayTouch(by: Role, before: Role, after: Role): void {
  if (by === "owner" || (before !== "owner" && after !== "owner")) return;
  throw new AppError("permission_denied", "Only an owner appoints, changes or removes an owner.");
}

export function lastOwner(email: string): AppError {
  return new AppError("conflict", `${email} is the last owner.`, {
    hint: `Appoint another owner first (on the server: \`${brand.executable} admin member update ORG EMAIL --role owner\`).`,
  });
}

export function happened(orgId: number, at: number, actor: Actor, email: string) {
  return { orgId, at, actor, subject: `member/${email}` };
}

/** All of them, for the admin commands. */
export async function listMembers(reader: Pick<Transaction, "all">, org: Org): Promise<Member[]> {
  const rows = await reader.all(`SELECT ${memberColumns} FROM memberships WHERE org_id = $1 ORDER BY id`, [
    org.id,
  ]);
  return rows.map(memberOf);
}

export async function memberByEmail(
  reader: Pick<Transaction, "get">,
  org: Org,
  email: string,
): Promise<Member> {
  const row = await reader.get(`SELECT ${memberColumns} FROM memberships WHERE org_id = $1 AND email = $2`, [
    org.id,
    email.trim().toLowerCase(),
  ]);
  if (row === undefined) {
    throw new AppError("not_found", `${email} is no member of ${org.slug}`, {
      hint: `Add them with \`${brand.executable} admin member create ${org.slug} EMAIL --role ROLE\`.`,
    });
  }
  return memberOf(row);
}
