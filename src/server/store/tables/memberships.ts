// Members of organizations. A row without a user is an open invitation; the secret of its link, stored as a hash,
// accepts it.

import { roles } from "../../../api/endpoint.ts";
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
    role: word(roles),
    secretHash: textOrNull("UNIQUE"),
    expiresAt: integerOrNull(),
    createdAt: integer(),
    /** `person/7`, `service/3` or `operator/`; null for rows of older versions. */
    invitedBy: since(7, textOrNull()),
    /** The provider whose groups gave the role, and may take it; null: a person gave it. */
    providerId: since(27, integerOrNull()),
  },
  {
    constraints: ["UNIQUE (org_id, email)"],
    indexes: ["CREATE INDEX memberships_user ON memberships (user_id)"],
  },
);
export type MembershipRow = TableRow<typeof memberships>;
