// Members of organizations. Without a user it is an open invitation: the hash of the link's secret opens it.

import {
  integer,
  integerOrNull,
  serial,
  since,
  table,
  text,
  textOrNull,
  word,
  type TableRow,
} from "../table.ts";

export const memberships = table(
  "memberships",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    email: text(),
    userId: integerOrNull("REFERENCES users (id)"),
    role: word(["member", "admin", "owner"]),
    secretHash: textOrNull("UNIQUE"),
    expiresAt: integerOrNull(),
    createdAt: integer(),
    /** `person/7`, `service/3` or `operator/`; null where an older version wrote the row. */
    invitedBy: since(7, textOrNull()),
  },
  {
    constraints: ["UNIQUE (org_id, email)"],
    indexes: ["CREATE INDEX memberships_user ON memberships (user_id)"],
  },
);
export type MembershipRow = TableRow<typeof memberships>;
