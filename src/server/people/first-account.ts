// The first staff account of a new server, made in a browser by whoever can read what `serve` printed: a link with a
// secret, good once, for half an hour, and only while there is no account at all. There is no default password.

import { AppError } from "../../errors.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import type { Actor } from "../audit/record.ts";
import { insertUser, type User } from "./people.ts";
import type { ServerOptions } from "../options.ts";
import type { Passwords } from "./passwords.ts";
import { numberOf, textOf, type Reader, type Transaction } from "../store/database.ts";
import { throttleKey, type Throttle } from "../http/throttle.ts";

const firstAccountMs = 30 * 60_000;
const prefix = "first_account ";

/** The link to print, or undefined where somebody has an account already. Replicas may each have one of their own. */
export async function offerFirstAccount({
  db,
  system,
  publicUrl,
}: Pick<ServerOptions, "db" | "system" | "publicUrl">): Promise<string | undefined> {
  if (await hasUsers(db)) return undefined;
  const secret = makeOpaqueToken(system.random);
  const until = String(system.now() + firstAccountMs);
  await db.write((tx) =>
    tx.run("INSERT INTO meta (key, value) VALUES ($1, $2)", [prefix + hashToken(secret), until]),
  );
  return `${publicUrl}/setup/#${secret}`;
}

export async function makeFirstAccount(
  services: Pick<ServerOptions, "db" | "system"> & { passwords: Passwords; throttle: Throttle },
  { secret, email, password }: { secret: string; email: string; password: string },
  address: string,
): Promise<User> {
  const { db, passwords, system, throttle } = services;
  const key = prefix + hashToken(secret);
  if (!(await isGood(db, key, system.now()))) {
    throttle.count(throttleKey("token", address));
    throw overdue();
  }
  const hashed = await passwords.hash(password);
  return db.write(async (tx) => {
    if (!(await isGood(tx, key, system.now()))) throw overdue();
    // The links of other replicas too.
    await tx.run("DELETE FROM meta WHERE key LIKE $1", [`${prefix}%`]);
    const actor: Actor = { kind: "nobody", id: null, ip: address };
    return insertUser(tx, { email, hashed, isStaff: true }, { actor, now: system.now() });
  });
}

async function isGood(reader: Pick<Transaction, "get">, key: string, now: number): Promise<boolean> {
  const row = await reader.get("SELECT value FROM meta WHERE key = $1", [key]);
  return row !== undefined && Number(textOf(row, "value")) > now && !(await hasUsers(reader));
}

async function hasUsers(reader: Pick<Reader, "get">): Promise<boolean> {
  return numberOf((await reader.get("SELECT count(*) AS n FROM users")) ?? {}, "n") > 0;
}

function overdue(): AppError {
  return new AppError("not_found", "This link is not valid any more. Use the admin commands of the server.");
}
