// Refresh tokens of users. Only their hashes are stored.

import { integer, integerOrNull, since, table, text } from "../table.ts";

export const refreshTokens = table(
  "refresh_tokens",
  {
    jtiHash: text("PRIMARY KEY"),
    /** All tokens that followed from one sign-in. Using a token twice revokes the family. */
    family: text(),
    userId: integer("REFERENCES users (id)"),
    expiresAt: integer(),
    usedAt: integerOrNull(),
    revokedAt: integerOrNull(),
    /** When the sign-in ends; the same for the whole family. NULL: stored by a release that set no end. */
    endsAt: since(10, integerOrNull()),
    /** The last proof of a second factor in this family; the same for the whole family. */
    factorAt: since(20, integerOrNull()),
    /** The provider of identities by which the sign-in began; the same for the whole family. Null: without one. */
    providerId: since(32, integerOrNull()),
  },
  {
    indexes: [
      "CREATE INDEX refresh_tokens_family ON refresh_tokens (family)",
      "CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id)",
      "CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at)",
    ],
  },
);
