// Creates the first staff user of a new server in a browser. `serve` prints a link with a secret that works once, for
// half an hour, and only while there are no users. There is no default password.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import type { Actor } from "../audit/record.ts";
import { networkOf } from "../../base/ip.ts";
import { countTokenGuess, type Throttle } from "../http/throttle.ts";
import type { ServerOptions, Store } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { queryNumber } from "../store/table.ts";
import { rememberNetwork } from "../store/tables/organizations.ts";
import { meta } from "../store/tables/servers.ts";
import type { Passwords } from "./sign-in/hash-passwords.ts";
import { insertUser } from "./users.ts";
import type { User } from "../../api/users.ts";

const firstUserMs = 30 * 60_000;
/** Of keys in `meta`, before the hash of the link's secret. The value is when the link ends, ms. */
const prefix = "first_account ";

/** The link to print; undefined if there are users. Each replica may have a link of its own. */
export async function offerFirstUser({
  db,
  system,
  publicUrl,
}: Pick<ServerOptions, "db" | "system" | "publicUrl">): Promise<string | undefined> {
  if (await hasUsers(db)) return undefined;
  const secret = makeOpaqueToken(system.random);
  const now = system.now();
  const value = String(now + firstUserMs);
  await db.write(async (tx) => {
    const expired = "DELETE FROM meta WHERE key LIKE $1 AND CAST(value AS bigint) <= $2";
    await tx.run(expired, [`${prefix}%`, now]);
    await meta.insert(tx, { key: prefix + hashToken(secret), value });
  });
  return `${publicUrl}/setup/#${secret}`;
}

/** Creates the user by a link. Throws not_found for a link that is no longer valid. */
export async function makeFirstUser(
  services: Store & { passwords: Passwords; throttle: Throttle },
  { secret, email, password }: { secret: string; email: string; password: string },
  address: string,
): Promise<User> {
  const { db, passwords, system, throttle } = services;
  const key = prefix + hashToken(secret);
  if (!(await isValid(db, key, system.now()))) {
    countTokenGuess(throttle, address);
    throw linkExpired();
  }
  const network = networkOf(address);
  // `isKnown`: in the queue of passwords it waits with those from networks that their users have not used before.
  const hashed = await passwords.hash(password, { user: email, source: network, isKnown: false });
  return db.write(async (tx) => {
    if (!(await isValid(tx, key, system.now()))) throw linkExpired();
    // All links for a first account end, also those of other replicas.
    await tx.run("DELETE FROM meta WHERE key LIKE $1", [`${prefix}%`]);
    const actor: Actor = { kind: "nobody", id: null, ip: address };
    const now = system.now();
    const user = await insertUser(tx, { email, hashed, isStaff: true }, { actor, now });
    await rememberNetwork(tx, { userId: user.id, network, now });
    return user;
  });
}

async function isValid(reader: Reader, key: string, now: number): Promise<boolean> {
  const link = await meta.find(reader, { key });
  return link !== undefined && Number(link.value) > now && !(await hasUsers(reader));
}

async function hasUsers(reader: Reader): Promise<boolean> {
  return (await queryNumber(reader, "SELECT count(*) AS n FROM users")) > 0;
}

function linkExpired(): AppError {
  const command = `${brand.executable} admin user create EMAIL --staff`;
  return new AppError(
    "not_found",
    `This link is no longer valid. Run \`${command}\` on the server's machine.`,
  );
}
