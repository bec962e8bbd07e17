// Users sign in with email and password. An invitation creates a user with a home organization; the operator creates
// one without.

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
  /** "" for a user without a password. */
  passwordHash: text(),
  isStaff: truth(0),
  isActive: truth(1),
  homeOrgId: integerOrNull("REFERENCES organizations (id)"),
  /** Milliseconds. Tokens signed up to then are no longer valid (new password, disabled user). */
  sessionsFrom: integerWithDefault("DEFAULT 0"),
  createdAt: integer(),
  lastLoginAt: integerOrNull(),
});
export type UserRow = TableRow<typeof users>;
