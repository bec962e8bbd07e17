// Tokens of users, programs and new nodes. Only their hashes are stored.

import * as v from "valibot";
import {
  integer,
  integerOrNull,
  integerWithDefault,
  jsonWithDefault,
  serial,
  table,
  text,
  textOrNull,
  truth,
  word,
  type TableRow,
} from "../table.ts";

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
  },
  {
    indexes: [
      "CREATE INDEX refresh_tokens_family ON refresh_tokens (family)",
      "CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id)",
      "CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at)",
    ],
  },
);

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
export type ServiceTokenRow = TableRow<typeof serviceTokens>;

export const registrationTokens = table(
  "registration_tokens",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: textOrNull(),
    tokenHash: text("UNIQUE"),
    uses: integer(),
    used: integerWithDefault("DEFAULT 0"),
    groups: jsonWithDefault(v.array(v.string()), "[]"),
    isLighthouse: truth(0),
    nodeId: integerOrNull("REFERENCES nodes (id)"),
    expiresAt: integer(),
    createdBy: integerOrNull("REFERENCES users (id)"),
    createdAt: integer(),
    revokedAt: integerOrNull(),
  },
  {
    constraints: ["CHECK (used <= uses)"],
    indexes: ["CREATE INDEX registration_tokens_org ON registration_tokens (org_id, id)"],
  },
);
export type RegistrationTokenRow = TableRow<typeof registrationTokens>;

/** Replaced tokens of nodes. They stay known, so that using one does not count as guessing. */
export const retiredTokens = table("retired_tokens", {
  tokenHash: text("PRIMARY KEY"),
  retiredAt: integer(),
});
