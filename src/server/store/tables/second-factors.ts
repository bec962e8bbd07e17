// Second factors of users: TOTP secrets, recovery codes, and the wrong codes that were tried.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  since,
  table,
  text,
  textOrNull,
} from "../table.ts";

const user = () => integer("REFERENCES users (id)");

/** At most one confirmed secret for each user, and one that waits for its first code. */
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
    /** The sign-in that began it, and alone may confirm it. NULL: begun before this was recorded, or confirmed. */
    place: since(50, textOrNull()),
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
