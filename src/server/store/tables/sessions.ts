// Sessions of users: of browsers, whose cookie holds a token, and of command lines, which have a family of refresh tokens instead.
// Also sign-ins that wait for a browser, replaced tokens of nodes, and tokens of programs. Of all tokens only hashes are stored.

import {
  integer,
  integerOrNull,
  serial,
  since,
  table,
  text,
  textOrNull,
  type TableRow,
  word,
} from "../table.ts";

export const browserSessions = table(
  "browser_sessions",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    /** Hash of the cookie's token. For a command line, a text that no hash equals. */
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
    /** The provider of the sign-in; null: without a provider. */
    providerId: since(27, integerOrNull()),
    /** The tokens of a command line's session. Null: the session of a browser. */
    family: since(53, textOrNull()),
  },
  { indexes: ["CREATE INDEX browser_sessions_user ON browser_sessions (user_id, id)"] },
);
export type SessionRow = TableRow<typeof browserSessions>;

/** Refresh tokens of users. */
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
    /** When the sign-in ends; the same for the whole family. NULL: stored by a release that set no end. */
    endsAt: since(10, integerOrNull()),
    /** The last proof of a second factor in this family; the same for the whole family. */
    factorAt: since(20, integerOrNull()),
    /** The provider of identities by which the sign-in began; the same for the whole family. Null: without one. */
    providerId: since(32, integerOrNull()),
  },
  {
    indexes: [
      "CREATE INDEX refresh_tokens_family ON refresh_tokens (family)",
      "CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id)",
      "CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at)",
    ],
  },
);

/**
 * The nodes on whose machines sessions of command lines are, as these machines proved. When such a node is revoked,
 * the sessions end.
 */
export const sessionNodes = table(
  "session_nodes",
  {
    /** Family of the session's tokens. */
    family: text(),
    nodeId: integer("REFERENCES nodes (id)"),
    provenAt: integer(),
  },
  {
    constraints: ["PRIMARY KEY (family, node_id)"],
    indexes: ["CREATE INDEX session_nodes_node ON session_nodes (node_id)"],
  },
);

/** Sign-ins of the command line that wait for a browser (RFC 8628). They end after five minutes. */
export const deviceRequests = table(
  "device_requests",
  {
    id: serial,
    /** Hash of the code that the command line polls with. */
    deviceHash: text("UNIQUE"),
    /** Hash of the code that the user types in the browser. */
    userHash: text("UNIQUE"),
    /** The machine's description of itself. It proves nothing. */
    machine: text(),
    address: text(),
    createdAt: integer(),
    expiresAt: integer(),
    /** The user who decided, and when; null: undecided. */
    userId: integerOrNull("REFERENCES users (id)"),
    decidedAt: integerOrNull(),
    /** 1: approved, 0: refused. */
    isApproved: integerOrNull(),
    /** The last poll, ms. */
    polledAt: integerOrNull(),
    /** The provider of the approving browser's sign-in, and the end of that session; null: without a provider. */
    providerId: since(32, integerOrNull()),
    providerUntil: since(32, integerOrNull()),
    /** The session of the deciding browser, in `browser_sessions`; null: undecided, or decided at the release before. */
    sessionId: since(74, integerOrNull()),
  },
  { indexes: ["CREATE INDEX device_requests_expiry ON device_requests (expires_at)"] },
);
export type DeviceRequestRow = TableRow<typeof deviceRequests>;

/** Replaced tokens of nodes. They stay known, so that using one does not count as guessing. */
export const retiredTokens = table("retired_tokens", {
  tokenHash: text("PRIMARY KEY"),
  retiredAt: integer(),
});

/** Tokens of programs. */
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
    lastUsedAt: since(50, integerOrNull()),
  },
  { indexes: ["CREATE INDEX service_tokens_org ON service_tokens (org_id, id)"] },
);
