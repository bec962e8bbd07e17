// Accounts: making them, signing in, passwords, disabling. Memberships are in members.ts, tokens in sessions.ts.

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
import { guesser, type Throttle } from "../http/throttle.ts";
import {
  NotUnique,
  numberOf,
  numberOrNull,
  textOf,
  truthOf,
  type Database,
  type Row,
  type Transaction,
} from "../store/database.ts";

/** Kept in lower case: two accounts never differ by case alone. */
export const Email = v.pipe(
  v.string(),
  v.trim(),
  v.normalize("NFC"),
  v.toLowerCase(),
  v.maxLength(254, "At most 254 characters."),
  // No dash at the beginning: a command would take the address for a flag.
  // No control and no invisible characters either: two addresses that look alike are one to a person.
  v.regex(
    /^(?!-)[^\s\p{Cc}\p{Default_Ignorable_Code_Point}\u2800@"'<>\\,;]+@[^\s\p{Cc}\p{Default_Ignorable_Code_Point}\u2800@"'<>\\,;]+$/u,
    "Enter a valid email address.",
  ),
);
export const NewPassword = v.pipe(
  v.string(),
  v.minLength(8, "A password has at least 8 characters."),
  v.maxLength(1024, "A password has at most 1024 characters."),
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
type Accounts = Store & { passwords: Passwords };
/** What a sign-in needs: guesses are counted, and so are its results. */
export type SignInServices = Accounts & { throttle: Throttle; meters: Meters };

const columns = "id, email, is_staff, is_active, created_at, last_login_at";
/** Guesses at one account count this often for the address they come from: one person's trouble is not everybody's. */
const sharePerAccount = 5;

function userOf(row: Row): User {
  const login = numberOrNull(row, "last_login_at");
  return {
    id: numberOf(row, "id"),
    email: textOf(row, "email"),
    is_staff: truthOf(row, "is_staff"),
    is_active: truthOf(row, "is_active"),
    created_at: formatTime(numberOf(row, "created_at")),
    last_login_at: login === null ? null : formatTime(login),
  };
}

/** Throws one and the same invalid_credentials for unknown, wrong and disabled, after the same work. */
export async function signIn(
  services: SignInServices,
  { email, password }: { email: string; password: string },
  address: string,
): Promise<{ userId: number; isStaff: boolean; passwordHash: string }> {
  const { db, passwords, throttle, meters } = services;
  const account = email.trim().toLowerCase();
  const check = () => {
    throttle.check(`account ${account}`);
    throttle.check(guesser("address", address));
  };
  check();
  const row = await db.get("SELECT id, is_staff, is_active, password_hash FROM users WHERE email = $1", [
    account,
  ]);
  const active = row !== undefined && truthOf(row, "is_active");
  const matches = await passwords.verify(
    password,
    row === undefined ? undefined : textOf(row, "password_hash"),
    {
      before: check,
      after: (right) => {
        if (!right || !active) countGuess(throttle, account, address);
      },
    },
  );
  const isRight = row !== undefined && matches && active;
  meters.login(isRight ? "ok" : "failed");
  if (isRight) {
    return {
      userId: numberOf(row, "id"),
      isStaff: truthOf(row, "is_staff"),
      passwordHash: textOf(row, "password_hash"),
    };
  }
  await recordFailedLogin(services, account, address);
  throw wrongCredentials();
}

/** For the operator, and for each organization that the account belongs to. */
async function recordFailedLogin({ db, system }: Store, account: string, address: string): Promise<void> {
  await db.write(async (tx) => {
    const rows = await tx.all(
      "SELECT org_id FROM memberships WHERE user_id = (SELECT id FROM users WHERE email = $1) ORDER BY org_id",
      [account],
    );
    for (const orgId of [null, ...rows.map((row) => numberOf(row, "org_id"))]) {
      await record(tx, {
        orgId,
        at: system.now(),
        type: "security.login_failed",
        actor: { kind: "nobody", id: null, ip: address },
        subject: `user/${account}`,
      });
    }
  });
}

function countGuess(throttle: Throttle, account: string, address: string): void {
  const place = guesser("address", address);
  const pair = `${place} ${account}`;
  if (throttle.counted(pair) < sharePerAccount) throttle.count(place);
  throttle.count(pair);
  throttle.count(`account ${account}`);
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
  { db, passwords, system }: Accounts,
  user: { email: string; password: string; isStaff: boolean },
  actor: Actor,
): Promise<User> {
  const hashed = await passwords.hash(user.password);
  const created = db.write((tx) => insertUser(tx, { ...user, hashed }, { actor, now: system.now() }));
  return created.catch(async (error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    const origin = await originOf(db, user.email);
    throw new AppError("conflict", `There is an account for ${user.email} already${origin}`, {
      cause: error,
    });
  });
}

/** Throws NotUnique where the address has an account. */
export async function insertUser(
  tx: Transaction,
  { email, hashed, isStaff }: { email: string; hashed: string; isStaff: boolean },
  { actor, now }: { actor: Actor; now: number },
): Promise<User> {
  const row = await tx.get(
    `INSERT INTO users (email, password_hash, is_staff, sessions_from, created_at) VALUES ($1, $2, $3, $4, $4)
     RETURNING ${columns}`,
    [email, hashed, isStaff ? 1 : 0, now],
  );
  const made = userOf(row ?? {});
  await record(tx, {
    orgId: null,
    at: now,
    actor,
    subject: `user/${made.email}`,
    type: "user.created",
    after: { email: made.email, is_staff: made.is_staff },
  });
  return made;
}

export async function listUsers(db: Pick<Database, "all">): Promise<User[]> {
  return (await db.all(`SELECT ${columns} FROM users ORDER BY id`)).map(userOf);
}

export async function findUser(db: Pick<Database, "get">, email: string): Promise<User> {
  const row = await db.get(`SELECT ${columns} FROM users WHERE email = $1`, [email.trim().toLowerCase()]);
  if (row === undefined) {
    throw new AppError("not_found", `There is no account for ${email}`, {
      hint: `\`${brand.executable} admin user create ${quoteWord(email)}\` makes one.`,
    });
  }
  return userOf(row);
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
 * A new password ends all sessions. `formerHash`: that of the password that let the caller in; the account may have been
 * disabled, or have got another password, since.
 */
export async function setPassword(
  { db, passwords, system }: Accounts,
  userId: number,
  password: string,
  actor: Actor,
  formerHash?: string,
): Promise<void> {
  const hashed = await passwords.hash(password);
  await db.write(async (tx) => {
    const still = formerHash === undefined ? "" : "AND password_hash = $3 AND is_active = 1";
    const changed = await tx.run(`UPDATE users SET password_hash = $2 WHERE id = $1 ${still}`, [
      userId,
      hashed,
      ...(formerHash === undefined ? [] : [formerHash]),
    ]);
    if (changed === 0) throw wrongCredentials();
    await endSessions(tx, userId, system.now());
    await record(tx, { ...userEvent(system, actor, String(userId)), type: "user.password_changed" });
  });
}

export function userEvent(system: ServerOptions["system"], actor: Actor, subject: string) {
  return { orgId: null, at: system.now(), actor, subject: `user/${subject}` };
}
