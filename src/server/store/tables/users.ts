// People who sign in. A user with a home organization was created by an invitation and belongs to that organization alone.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  table,
  text,
  truth,
  type TableRow,
} from "../table.ts";

export const users = table("users", {
  id: serial,
  /** Lower case. */
  email: text("UNIQUE"),
  passwordHash: text(),
  isStaff: truth(0),
  isActive: truth(1),
  homeOrgId: integerOrNull("REFERENCES organizations (id)"),
  /** Tokens signed before no longer count (new password, disabling). */
  sessionsFrom: integerWithDefault("DEFAULT 0"),
  createdAt: integer(),
  lastLoginAt: integerOrNull(),
});
export type UserRow = TableRow<typeof users>;
