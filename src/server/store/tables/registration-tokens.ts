// Tokens with which new nodes register. Only their hashes are stored.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  jsonWithDefault,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  type TableRow,
} from "../table.ts";
import * as v from "valibot";

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
    /** Its nodes are ephemeral and end after this silence, in seconds; null: they stay. */
    ephemeralSilenceS: since(25, integerOrNull()),
    /** Whether peers get the names of its nodes. */
    isNamed: since(25, truth(1)),
    /** Its nodes need no approval where the organization asks for that of all but these. */
    isApproved: since(26, truth(0)),
    /** A machine that a user confirmed in the browser: its keys and name. Its node is the user's. Null: any machine. */
    boundDigest: since(35, textOrNull()),
  },
  {
    constraints: ["CHECK (used <= uses)"],
    indexes: ["CREATE INDEX registration_tokens_org ON registration_tokens (org_id, id)"],
  },
);
export type RegistrationTokenRow = TableRow<typeof registrationTokens>;
