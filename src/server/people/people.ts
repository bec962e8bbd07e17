// Users: creating them, signing in, passwords. members.ts has the memberships, sessions.ts the tokens.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { quoteWord } from "../../plan.ts";
import { formatTime } from "../../duration.ts";
import type { TokenPair } from "../../protocol.ts";
import { record, type Actor } from "../audit/record.ts";
import type { Meters } from "../http/meters.ts";
import type { ServerOptions } from "../options.ts";
import { confirmOwner, originOf, type OwnerChoice } from "./ownership.ts";
import type { Passwords } from "./passwords.ts";
import { endSessions, wrongCredentials, type Sessions } from "./sessions.ts";
import { throttleKey, type Throttle } from "../http/throttle.ts";
import { NotUnique, type Database, type Transaction } from "../store/database.ts";
import { memberships } from "../store/tables/memberships.ts";
import { users, type UserRow } from "../store/tables/users.ts";

/** Stored in lower case: two users never differ only by case. */
export const Email = v.pipe(
  v.string(),
  v.trim(),
  v.normalize("NFC"),
  v.toLowerCase(),
  v.maxLength(254, "At most 254 characters."),
  // No dash at the beginning: a command would read the address as a flag. No control or invisible characters: two
  // addresses that look alike would be mistaken for each other.
  v.regex(
    /^(?!-)[^\s\p{Cc}\p{Default_Ignorable_Code_Point}\u2800@"'<>\\,;]+@[^\s\p{Cc}\p{Default_Ignorable_Code_Point}\u2800@"'<>\\,;]+$/u,
    "Enter a valid email address.",
  ),
);
export const NewPassword = v.pipe(
  v.string(),
  v.minLength(8, "A password needs at least 8 characters."),
  v.maxLength(1024, "A password can have at most 1024 characters."),
);

export const User = v.object({
  id: v.number(),
  email: v.string(),
  is_staff: v.boolean(),
  is_active: v.boolean(),
  created_at: v.string(),
  last_login_at: v.nullable(v.string()),
});
export type User = v.InferOutput<typeof User>;

type Store = Pick<ServerOptions, "db" | "system">;
type UserServices = Store & { passwords: Passwords };
/** `throttle` counts wrong passwords, `meters` the results. */
export type SignInServices = UserServices & { throttle: Throttle; meters: Meters };

/**
 * How many guesses at one user count for the address they come from. More would let one user's forgotten password lock
 * out the others behind that address.
 */
const guessesPerUser = 5;

function showUser({ id, email, isStaff, isActive, createdAt, lastLoginAt }: UserRow): User {
  return {
    id,
    email,
    is_staff: isStaff,
    is_active: isActive,
    created_at: formatTime(createdAt),
    last_login_at: lastLoginAt === null ? null : formatTime(lastLoginAt),
  };
}

/**
 * Throws the same invalid_credentials for an unknown address, a wrong password and a disabled user, after the same work.
 */
export async function signIn(
  services: SignInServices,
  { email, password }: { email: string; password: string },
  address: string,
): Promise<{ userId: number; isStaff: boolean; passwordHash: string }> {
  const { db, passwords, throttle, meters } = services;
  const normalized = email.trim().toLowerCase();
  const check = () => {
    throttle.check(`account ${normalized}`);
    throttle.check(throttleKey("address", address));
  };
  check();
  const user = await users.find(db, { email: normalized });
  const matches = await passwords.verify(password, user?.passwordHash, {
    before: check,
    after: (matched) => {
      if (!matched || user?.isActive !== true) countGuess(throttle, normalized, address);
    },
  });
  const isAccepted = user !== undefined && matches && user.isActive;
  meters.login(isAccepted ? "ok" : "failed");
  if (isAccepted) return { userId: user.id, isStaff: user.isStaff, passwordHash: user.passwordHash };
  await recordFailedLogin(services, normalized, address);
  throw wrongCredentials();
}

/** One event for the operator, and one for each organization of the user. */
async function recordFailedLogin({ db, system }: Store, email: string, address: string): Promise<void> {
  await db.write(async (tx) => {
    const user = await users.find(tx, { email });
    const joined = user === undefined ? [] : await memberships.all(tx, { userId: user.id });
    for (const orgId of [null, ...joined.map((each) => each.orgId).sort((a, b) => a - b)]) {
      await record(tx, {
        orgId,
        at: system.now(),
        type: "security.login_failed",
        actor: { kind: "nobody", id: null, ip: address },
        subject: `user/${email}`,
      });
    }
  });
}

function countGuess(throttle: Throttle, email: string, address: string): void {
  const source = throttleKey("address", address);
  const pair = `${source} ${email}`;
  if (throttle.counted(pair) < guessesPerUser) throttle.count(source);
  throttle.count(pair);
  throttle.count(`account ${email}`);
}

export async function signInForTokens(
  services: SignInServices & { sessions: Pick<Sessions, "start"> },
  credentials: { email: string; password: string },
  address: string,
): Promise<TokenPair> {
  const { userId, passwordHash } = await signIn(services, credentials, address);
  return services.sessions.start(userId, passwordHash);
}

export async function createUser(
  { db, passwords, system }: UserServices,
  user: { email: string; password: string; isStaff: boolean },
  actor: Actor,
): Promise<User> {
  const hashed = await passwords.hash(user.password);
  const created = db.write((tx) => insertUser(tx, { ...user, hashed }, { actor, now: system.now() }));
  return created.catch(async (error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    const origin = await originOf(db, user.email);
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

export async function listUsers(db: Pick<Database, "all">): Promise<User[]> {
  return (await users.all(db, {})).map(showUser);
}

export async function findUser(db: Pick<Database, "get">, email: string): Promise<User> {
  const user = await users.find(db, { email: email.trim().toLowerCase() });
  if (user === undefined) {
    throw new AppError("not_found", `There is no user ${email}`, {
      hint: `To create the user: \`${brand.executable} admin user create ${quoteWord(email)}\`.`,
    });
  }
  return showUser(user);
}

/** Throws not_found or owner_unconfirmed. */
export async function findOwner(
  db: Pick<Database, "get">,
  { email, ...confirmation }: OwnerChoice,
): Promise<{ id: number; email: string }> {
  const user = await findUser(db, email);
  await confirmOwner(db, user.id, confirmation);
  return user;
}

/**
 * Sets a password and ends all sessions. `formerHash`: the hash that the caller's present password matched. Throws
 * invalid_credentials if the password was changed, or the user disabled, since then.
 */
export async function setPassword(
  { db, passwords, system }: UserServices,
  userId: number,
  password: string,
  actor: Actor,
  formerHash?: string,
): Promise<void> {
  const hashed = await passwords.hash(password);
  await db.write(async (tx) => {
    const unchanged = formerHash === undefined ? {} : { passwordHash: formerHash, isActive: true };
    const changed = await users.update(tx, { id: userId, ...unchanged }, { passwordHash: hashed });
    if (changed === 0) throw wrongCredentials();
    await endSessions(tx, userId, system.now());
    await record(tx, { ...userEvent(system, actor, String(userId)), type: "user.password_changed" });
  });
}

export function userEvent(system: ServerOptions["system"], actor: Actor, subject: string) {
  return { orgId: null, at: system.now(), actor, subject: `user/${subject}` };
}
