// Opens the data for the admin commands. They work on the same data as `serve`, without a server; a running server learns
// of changes through the database.

import { defer } from "../base/defer.ts";
import type { SecretKeys } from "../pki/secrets.ts";
import type { System } from "../base/system.ts";
import { databasePath, openData, type DataOptions } from "./store/data-directory.ts";
import { namingDamage } from "./store/sqlite/damage.ts";
import { makePasswords, type Passwords } from "./users/sign-in/hash-passwords.ts";
import { publicUrlOf } from "./store/meta.ts";
import type { ServerClock } from "./store/clock.ts";
import type { Database } from "./store/database.ts";

export type Admin = {
  db: Database;
  /** The location of the data. */
  place: DataOptions;
  /** Its `now` is the believed time (store/clock.ts). */
  system: System;
  clock: ServerClock;
  secretKey: SecretKeys;
  passwords: Passwords;
  /** The public URL that was given, else that of the last `serve`. Links and commands to paste begin with it. */
  publicUrl: string;
  caFingerprint?: string;
};

/** Opens the data, runs the work, and closes the database. */
export async function withAdmin<T>(
  options: DataOptions & { publicUrl?: string },
  system: System,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  return namingDamage(databasePath(options), async () => {
    const { db, secretKey, clock } = await openData(options, "visitor", system);
    await using _ = defer(() => db.close());
    const known = await publicUrlOf(db);
    const publicUrl = options.publicUrl ?? known.publicUrl;
    const passwords = makePasswords();
    const believing = { ...system, now: clock.now };
    const admin = { db, place: options, system: believing, clock, secretKey, passwords };
    return await work({ ...admin, ...known, publicUrl });
  });
}
