// What the admin commands work with: the same data as `serve`, without asking a server. What they change reaches a
// running one through the database.

import type { SecretKeys } from "../pki/secrets.ts";
import type { System } from "../system.ts";
import { openData, type DataOptions } from "./store/data-directory.ts";
import { makePasswords, type Passwords } from "./people/passwords.ts";
import { publicUrlOf } from "./store/meta.ts";
import type { Database } from "./store/database.ts";

export type Admin = {
  db: Database;
  /** Where the data lies. */
  place: DataOptions;
  system: System;
  secretKey: SecretKeys;
  passwords: Passwords;
  /** What `serve` said last; links and lines to paste begin with it. */
  publicUrl: string;
  caFingerprint?: string;
};

/** Opens the data, runs the work, closes again. */
export async function withAdmin<T>(
  options: DataOptions & { publicUrl?: string },
  system: System,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  const { db, secretKey } = await openData(options, "visitor", system);
  try {
    const known = await publicUrlOf(db);
    const publicUrl = options.publicUrl ?? known.publicUrl;
    const caFingerprint = known.caFingerprint === undefined ? {} : { caFingerprint: known.caFingerprint };
    return await work({
      db,
      place: options,
      system,
      secretKey,
      passwords: makePasswords(),
      publicUrl,
      ...caFingerprint,
    });
  } finally {
    await db.close();
  }
}
