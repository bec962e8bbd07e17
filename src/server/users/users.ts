// Users: creating and finding them. members.ts has the memberships, sign-in/ passwords and the sign-in, sessions/ the tokens.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { record, type Actor } from "../audit/record.ts";
import type { ServerOptions, Store } from "../options.ts";
import { requireStaff } from "../require-role.ts";
import { confirmOwner, describeOrigin, type OwnerChoice } from "./ownership.ts";
import type { Passwords } from "./sign-in/hash-passwords.ts";
import { pageOf, searchPattern, type Page } from "../http/lists.ts";
import type { User } from "../../api/users.ts";
import type { ListQuery } from "../../api/values.ts";
import { NotUnique, type Reader, type Transaction } from "../store/database.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { users, type UserRow } from "../store/tables/users.ts";
import { emailKey, formerEmailKey } from "../../base/text.ts";

export type UserServices = Store & { passwords: Passwords };

function showUser({ id, email, isStaff, isActive, createdAt, lastLoginAt }: UserRow): User {
  return {
    id,
    email,
    is_staff: isStaff,
    is_active: isActive,
    created_at: formatTime(createdAt),
    last_login_at: timeOrNull(lastLoginAt),
  };
}

/** For staff. Throws conflict if there is a user of this address. */
export async function createUser(
  { db, passwords, system }: UserServices,
  user: { email: string; password: string; isStaff: boolean },
  actor: Actor,
): Promise<User> {
  const hashed = await passwords.hash(user.password);
  const created = db.write(async (tx) => {
    await requireStaff(tx, actor);
    return insertUser(tx, { ...user, hashed }, { actor, now: system.now() });
  });
  return created.catch(async (error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    const origin = await describeOrigin(db, user.email);
    throw new AppError("conflict", `There is already a user ${user.email}${origin}`, {
      cause: error,
    });
  });
}

/** Throws NotUnique if there is a user of this address. */
export async function insertUser(
  tx: Transaction,
  { email, hashed, isStaff }: { email: string; hashed: string; isStaff: boolean },
  { actor, now }: { actor: Actor; now: number },
): Promise<User> {
  const row = { email, passwordHash: hashed, isStaff, sessionsFrom: now, createdAt: now };
  const created = await users.insertReturning(tx, row);
  await record(tx, {
    orgId: null,
    at: now,
    actor,
    subject: `user/${email}`,
    type: "user.created",
    after: { email, is_staff: isStaff },
  });
  return showUser(created);
}

/** One page of the users, sorted by id. */
export async function listUsers(db: Reader, query: ListQuery): Promise<Page<User>> {
  const where = "email LIKE $1 ESCAPE '!'";
  const pattern = searchPattern(query);
  const { limit, offset } = pageOf(query);
  const sql = `SELECT ${users.select()} FROM users WHERE ${where} ORDER BY id LIMIT $2 OFFSET $3`;
  const page = await queryAll(db, users, sql, [pattern, limit, offset]);
  const total = await queryNumber(db, `SELECT count(*) AS n FROM users WHERE ${where}`, [pattern]);
  return { items: page.map(showUser), total, query };
}

/** Throws not_found. */
export async function userById(db: Reader, id: number): Promise<User> {
  const user = await users.find(db, { id });
  if (user === undefined) throw new AppError("not_found", "There is no such user.");
  return showUser(user);
}

/** The user of an address as it is typed; undefined if there is none. Earlier releases stored some addresses in another form. */
export async function userOfAddress(db: Reader, typed: string): Promise<UserRow | undefined> {
  const email = emailKey(typed);
  const formerKey = formerEmailKey(typed);
  const user = await users.find(db, { email });
  return user === undefined && formerKey !== email ? users.find(db, { email: formerKey }) : user;
}

/** Throws not_found. */
export async function findUser(db: Reader, email: string): Promise<User> {
  const user = await userOfAddress(db, email);
  if (user === undefined) {
    throw new AppError("not_found", `There is no user ${email}`, {
      hint: `To create the user: \`${brand.executable} admin user create ${quoteWord(email)}\`.`,
    });
  }
  return showUser(user);
}

/** The user who is to own a new organization. Throws not_found or owner_unconfirmed. */
export async function findOwner(
  db: Reader,
  { email, ...confirmation }: OwnerChoice,
): Promise<{ id: number; email: string }> {
  const user = await findUser(db, email);
  await confirmOwner(db, user.id, confirmation);
  return user;
}

export function userEvent(system: ServerOptions["system"], actor: Actor, subject: string) {
  return { orgId: null, at: system.now(), actor, subject: `user/${subject}` };
}
