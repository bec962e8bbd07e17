// Tokens of programs. Only their hashes are stored.

import { integer, integerOrNull, serial, since, table, text, textOrNull, word } from "../table.ts";

export const serviceTokens = table(
  "service_tokens",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    role: word(["member", "admin"]),
    tokenHash: text("UNIQUE"),
    expiresAt: integerOrNull(),
    createdBy: integerOrNull("REFERENCES users (id)"),
    createdAt: integer(),
    revokedAt: integerOrNull(),
    /** Words with spaces between. NULL: a token of an earlier release, which has all rights of its role. */
    scopes: since(21, textOrNull()),
    /** Networks with spaces between from which the token is valid. NULL: from everywhere. */
    networks: since(21, textOrNull()),
    /** About when the API accepted it last. NULL: not since this is recorded. */
    lastUsedAt: since(49, integerOrNull()),
  },
  { indexes: ["CREATE INDEX service_tokens_org ON service_tokens (org_id, id)"] },
);
