// Users, their passkeys and second factors, links for a new password, and challenges that count once. An invitation creates a user
// with a home organization; the operator creates one without.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  since,
  table,
  text,
  truth,
  type TableRow,
  textOrNull,
} from "../table.ts";
import { hashToken } from "../../../pki/opaque.ts";
import type { Transaction } from "../database.ts";

export const users = table("users", {
  id: serial,
  /** Lower case. */
  email: text("UNIQUE"),
  /** "" for a user without a password. */
  passwordHash: text(),
  isStaff: truth(0),
  isActive: truth(1),
  homeOrgId: integerOrNull("REFERENCES organizations (id)"),
  /** Milliseconds. Tokens signed up to then are no longer valid (new password, disabled user). */
  sessionsFrom: integerWithDefault("DEFAULT 0"),
  createdAt: integer(),
  lastLoginAt: integerOrNull(),
  /**
   * The organization whose provider made the user: the user is valid there only, is never staff or an owner, and signs in by
   * that provider only. `email` is then a name that is no address.
   */
  boundOrgId: since(34, integerOrNull("REFERENCES organizations (id)")),
});
export type UserRow = TableRow<typeof users>;

/** Whether the user is staff: one who is bound to an organization never is. */
export const isStaff = (user: Pick<UserRow, "isStaff" | "boundOrgId">) =>
  user.isStaff && user.boundOrgId === null;

/** Passkeys of users (WebAuthn). */
export const passkeys = table(
  "passkeys",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    credentialId: text("UNIQUE"),
    /** COSE, in base64url. */
    publicKey: text(),
    /** Counter of the last use; 0 for synced passkeys. */
    counter: integer(),
    /** Words separated by spaces, as the browser reported them. */
    transports: text(),
    name: text(),
    /** The host that the passkey is bound to. */
    rpId: text(),
    createdAt: integer(),
    lastUsedAt: integerOrNull(),
  },
  { indexes: ["CREATE INDEX passkeys_user ON passkeys (user_id, id)"] },
);
export type PasskeyRow = TableRow<typeof passkeys>;

/** Links for a new password, sent by e-mail. Only their hashes are stored. */
export const passwordResets = table(
  "password_resets",
  {
    secretHash: text("PRIMARY KEY"),
    userId: integer("REFERENCES users (id)"),
    expiresAt: integer(),
  },
  { indexes: ["CREATE INDEX password_resets_user ON password_resets (user_id)"] },
);

// Second factors of users: TOTP secrets, recovery codes, and the wrong codes that were tried.

const user = () => integer("REFERENCES users (id)");

/** Each user has at most one confirmed secret, and one that waits for its first code. */
export const totpSecrets = table(
  "totp_secrets",
  {
    id: serial,
    userId: user(),
    secretSealed: text(),
    confirmedAt: integerOrNull(),
    /** The step of the last code: no code counts twice. */
    lastStep: integerWithDefault("DEFAULT 0"),
    createdAt: integer(),
    /** The sign-in that began it; no other may confirm it. NULL: begun before this was recorded, or confirmed. */
    place: since(51, textOrNull()),
  },
  { indexes: ["CREATE INDEX totp_secrets_user ON totp_secrets (user_id)"] },
);

export const recoveryCodes = table(
  "recovery_codes",
  { userId: user(), codeHash: text(), usedAt: integerOrNull() },
  { constraints: ["PRIMARY KEY (user_id, code_hash)"] },
);

/** Wrong codes count for this long. */
export const wrongCodesKeptMs = 3_600_000;

export const wrongCodes = table(
  "wrong_codes",
  {
    id: serial,
    userId: user(),
    /** Where the code came from: a network, a device, a session. */
    place: text(),
    at: integer(),
  },
  { indexes: ["CREATE INDEX wrong_codes_user ON wrong_codes (user_id, at)"] },
);

// Challenges and codes that count once. They are not stored when they are made, only when they are used.

/** Challenges that were used: they must not count again until they expire. */
export const usedChallenges = table("used_challenges", {
  challengeHash: text("PRIMARY KEY"),
  expiresAt: integer(),
});

/** Whether this is the first use. `expiresAt`: ms; after it, refuse the challenge without asking here. */
export async function useOnce(tx: Transaction, challenge: string, expiresAt: number): Promise<boolean> {
  const row = { challengeHash: hashToken(challenge), expiresAt };
  return (await usedChallenges.upsert(tx, row, "ON CONFLICT DO NOTHING")) > 0;
}
