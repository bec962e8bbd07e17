// Tokens of programs. Only their hashes are stored.

import { integer, integerOrNull, serial, table, text, word } from "../table.ts";

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
  },
  { indexes: ["CREATE INDEX service_tokens_org ON service_tokens (org_id, id)"] },
);
