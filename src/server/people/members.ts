// Who belongs to an organization, and invitations. Nobody gains anything over an account by inviting its address: an
// account made by the operator joins as itself, any other address has to open the link and know (or set) the password.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { formatTime } from "../../duration.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { record, type Actor } from "../audit/record.ts";
import { settleTokens, tokensTold, type IssuedToken, type TokensOfGone } from "./issued-tokens.ts";
import { signIn } from "./people.ts";
import type { OrganizationAccess, Role } from "../http/route.ts";
import type { Services } from "../services.ts";
import { guesser } from "../http/throttle.ts";
import { NotUnique, numberOf, numberOrNull, textOf, type Row, type Transaction } from "../store/database.ts";

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

type Store = Pick<Services, "db" | "system" | "publicUrl">;
type Org = Pick<OrganizationAccess, "id" | "slug">;

/** Nobody's id: an invitation has made nothing. */
const noAccount = 0;
const invitationMs = 72 * 3_600_000;
export const memberColumns = "id, email, role, user_id, created_at, expires_at";
/** True for a row `m` that is not the only owner who can still sign in. */
const anotherOwner = `EXISTS (SELECT 1 FROM memberships o JOIN users u ON u.id = o.user_id
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

/** Adds an account that the operator made; invites any other address. Owners alone make owners, or take that back. */
export async function addMember(
  { db, system, publicUrl }: Store,
  org: Org,
  { email, role }: { email: string; role: Role },
  by: { role: Role; actor: Actor },
): Promise<NewMember> {
  const secret = makeOpaqueToken(system.random);
  const now = system.now();
  const added = db.write(async (tx) => {
    // An invitation that nobody took up gives way to the next.
    const open = await tx.get(
      `DELETE FROM memberships WHERE org_id = $1 AND email = $2 AND user_id IS NULL RETURNING ${memberColumns}`,
      [org.id, email],
    );
    mayTouch(by.role, open === undefined ? role : memberOf(open).role, role);
    const user = await tx.get("SELECT id FROM users WHERE email = $1 AND home_org_id IS NULL", [email]);
    const known = user !== undefined;
    const row = await tx.get(
      `INSERT INTO memberships (org_id, email, user_id, role, secret_hash, expires_at, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${memberColumns}`,
      [
        org.id,
        email,
        known ? numberOf(user, "id") : null,
        role,
        known ? null : hashToken(secret),
        known ? null : now + invitationMs,
        now,
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
      hint: `Another role is given by \`${brand.executable} admin member update ${org.slug} ${email} --role ROLE\`.`,
    });
  });
}

/** Takes an invitation up: with a new password for an address without an account, else with the account's own. */
export async function acceptInvitation(
  services: Services,
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

/**
 * Owners alone appoint owners, and change or remove them; the last one stays. `left`: the tokens of somebody who may
 * make none any more.
 */
export async function changeRole(
  { db, system }: Store,
  org: Org,
  memberId: number,
  role: Role,
  by: { role: Role; actor: Actor },
): Promise<{ member: Member; left: IssuedToken[] }> {
  return db.write(async (tx) => {
    const { member: before, userId } = await findMembership(tx, org, memberId);
    mayTouch(by.role, before.role, role);
    const row = await tx.get(
      `UPDATE memberships SET role = $3 WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR $3 = 'owner' OR user_id IS NULL OR ${anotherOwner}) RETURNING ${memberColumns}`,
      [memberId, org.id, role],
    );
    if (row === undefined) throw lastOwner(before.email);
    const now = system.now();
    const makesNoMore = role === "member" && before.role !== "member";
    const ending = { actor: by.actor, now, revokes: false };
    const left = makesNoMore ? (await settleTokens(tx, userId ?? noAccount, ending, org)).tokens_left : [];
    await record(tx, {
      ...happened(org.id, now, by.actor, before.email),
      type: "member.updated",
      before: { role: before.role },
      after: { role, ...(left.length === 0 ? {} : { tokens_left: left }) },
    });
    await tx.notify("auth", `member ${before.email}`);
    return { member: memberOf(row), left };
  });
}

export async function removeMember(
  { db, system }: Pick<Services, "db" | "system">,
  org: Org,
  memberId: number,
  by: { role: Role; actor: Actor },
  { revokeTokens = false } = {},
): Promise<Member & TokensOfGone & { userId: number | undefined }> {
  return db.write(async (tx) => {
    const { member: before, userId } = await findMembership(tx, org, memberId);
    mayTouch(by.role, before.role, before.role);
    const removed = await tx.run(
      `DELETE FROM memberships WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR user_id IS NULL OR ${anotherOwner})`,
      [memberId, org.id],
    );
    if (removed === 0) throw lastOwner(before.email);
    const event = happened(org.id, system.now(), by.actor, before.email);
    const ending = { actor: by.actor, now: system.now(), revokes: revokeTokens };
    const tokens = await settleTokens(tx, userId ?? noAccount, ending, org);
    await record(tx, {
      ...event,
      type: "member.deleted",
      before: { role: before.role },
      ...tokensTold(tokens),
    });
    await tx.notify("auth", `member ${before.email}`);
    return { ...before, ...tokens, userId };
  });
}

export async function findMember(
  reader: Pick<Transaction, "get">,
  org: Org,
  memberId: number,
): Promise<Member> {
  return (await findMembership(reader, org, memberId)).member;
}

/** With the account behind it; undefined while it is an invitation. */
async function findMembership(
  reader: Pick<Transaction, "get">,
  org: Org,
  memberId: number,
): Promise<{ member: Member; userId: number | undefined }> {
  const row = await reader.get(`SELECT ${memberColumns} FROM memberships WHERE id = $1 AND org_id = $2`, [
    memberId,
    org.id,
  ]);
  if (row === undefined) throw new AppError("not_found", "There is no such member.");
  return { member: memberOf(row), userId: numberOrNull(row, "user_id") ?? undefined };
}

function mayTouch(by: Role, before: Role, after: Role): void {
  if (by === "owner" || (before !== "owner" && after !== "owner")) return;
  throw new AppError("permission_denied", "Only an owner appoints, changes or removes an owner.");
}

function lastOwner(email: string): AppError {
  return new AppError("conflict", `${email} is the last owner.`, {
    hint: `Appoint another owner first (on the server: \`${brand.executable} admin member update ORG EMAIL --role owner\`).`,
  });
}

function happened(orgId: number, at: number, actor: Actor, email: string) {
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
