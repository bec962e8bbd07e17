// Users sign in with email and password. An invitation creates a user with a home organization; the operator creates
// one without.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  since,
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
  /**
   * The organization whose provider made the user: the user is valid there only, is never staff or an owner, and signs in by
   * that provider only. `email` is then a name that is no address.
   */
  boundOrgId: since(34, integerOrNull("REFERENCES organizations (id)")),
});
export type UserRow = TableRow<typeof users>;

/** A user who is bound to an organization never is staff. */
export const isStaff = (user: Pick<UserRow, "isStaff" | "boundOrgId">) =>
  user.isStaff && user.boundOrgId === null;
