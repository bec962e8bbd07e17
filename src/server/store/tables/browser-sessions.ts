// Sessions of users: of browsers, whose cookie holds a token of which only the hash is stored, and of command lines, which
// have a family of refresh tokens instead.

import { integer, integerOrNull, serial, since, table, text, textOrNull, type TableRow } from "../table.ts";

/** A session ends after this time without a use, and in any case after the longer one. */
export const idleMs = 12 * 3_600_000;
export const longestMs = 7 * 86_400_000;
/** A sign-in by a provider is asked for again: who left there stays signed in here no longer. */
export const byProviderMs = 86_400_000;

export const browserSessions = table(
  "browser_sessions",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    /** No cookie has the one of a command line. */
    tokenHash: text("UNIQUE"),
    /** The User-Agent. */
    device: text(),
    /** The address of the last use. */
    address: text(),
    /** Milliseconds, later than `sessionsFrom` of the user at that time. */
    createdAt: integer(),
    lastUsedAt: integer(),
    endsAt: integer(),
    /** The last proof of a second factor in this session. */
    factorAt: integerOrNull(),
    /** The provider by which the user signed in; null: without one. */
    providerId: since(27, integerOrNull()),
    /** The tokens of a command line's session. Null: the session of a browser. */
    family: since(52, textOrNull()),
  },
  { indexes: ["CREATE INDEX browser_sessions_user ON browser_sessions (user_id, id)"] },
);
export type SessionRow = TableRow<typeof browserSessions>;
