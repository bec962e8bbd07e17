// How new nodes join: registration tokens, requests that wait for an administrator, and machines that wait for a user in a
// browser. Of secrets only hashes are stored.

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
  json,
  wordWithDefault,
} from "../table.ts";
import * as v from "valibot";

export const registrationTokens = table(
  "registration_tokens",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: textOrNull(),
    tokenHash: text("UNIQUE"),
    /** How many nodes may register with it, and how many have. */
    uses: integer(),
    used: integerWithDefault("DEFAULT 0"),
    groups: jsonWithDefault(v.array(v.string()), "[]"),
    isLighthouse: truth(0),
    /** The node that registers with it, which exists already; null: a new node. */
    nodeId: integerOrNull("REFERENCES nodes (id)"),
    expiresAt: integer(),
    createdBy: integerOrNull("REFERENCES users (id)"),
    createdAt: integer(),
    revokedAt: integerOrNull(),
    /** Its nodes are ephemeral and end after this silence, in seconds; null: they stay. */
    ephemeralSilenceS: since(25, integerOrNull()),
    /** Whether peers get the names of its nodes. */
    isNamed: since(25, truth(1)),
    /** Its nodes need no approval if the organization requires it of all others. */
    isApproved: since(26, truth(0)),
    /**
     * Digest of the machine that a user confirmed in the browser: its keys and name. The node is the user's. Null:
     * any machine.
     */
    boundDigest: since(35, textOrNull()),
  },
  {
    constraints: ["CHECK (used <= uses)"],
    indexes: ["CREATE INDEX registration_tokens_org ON registration_tokens (org_id, id)"],
  },
);
export type RegistrationTokenRow = TableRow<typeof registrationTokens>;
/** SQL condition: a machine can register with the token of the row `t`. `now`: the parameter that holds the time, ms. */
export const isOpenToken = (now: `$${number}`, t = "registration_tokens") =>
  `${t}.revoked_at IS NULL AND ${t}.used < ${t}.uses AND ${t}.expires_at > ${now}`;
/** The same of a row that was read. `now`: ms. */
export const isOpenRow = ({ revokedAt, used, uses, expiresAt }: RegistrationTokenRow, now: number): boolean =>
  revokedAt === null && used < uses && expiresAt > now;

/** Machines that wait until an administrator approves them. A request holds no name and no address, but a use of its token. */
export const registrationRequests = table(
  "registration_requests",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** Digest of everything that the approval covers. */
    digest: text(),
    state: wordWithDefault(["waiting", "approved", "refused"], "waiting"),
    name: text(),
    hostPublicKey: text(),
    /** Of the key in its request for an X.509 certificate; null: it sent none. */
    csrKeySha256: textOrNull(),
    groups: json(v.array(v.string())),
    isLighthouse: truth(0),
    isRelay: truth(0),
    /** The user whose node it becomes; null: the organization's. */
    ownerId: integerOrNull("REFERENCES users (id)"),
    /** The token of which it holds a use, if it was not refused; null: an administrator's own registration. */
    tokenId: integerOrNull("REFERENCES registration_tokens (id)"),
    platform: textOrNull(),
    agentVersion: textOrNull(),
    /** The address that it came from first. */
    seenFrom: text(),
    createdAt: integer(),
    expiresAt: integer(),
    /** About when its machine asked last. NULL: it has not since this is recorded. */
    askedAt: since(49, integerOrNull()),
  },
  {
    indexes: [
      "CREATE INDEX registration_requests_org ON registration_requests (org_id, id)",
      "CREATE INDEX registration_requests_key ON registration_requests (org_id, host_public_key)",
      "CREATE INDEX registration_requests_end ON registration_requests (expires_at)",
    ],
  },
);
export type RegistrationRequestRow = TableRow<typeof registrationRequests>;

/**
 * Machines that wait until a user confirms them in a browser. They end after some minutes. A request holds no name, no
 * address and no certificate.
 */
export const enrollments = table(
  "enrollments",
  {
    id: serial,
    /** Names the request in the address of the page. Not a secret: it confirms nothing. */
    code: text("UNIQUE"),
    /** Hash of the machine's own secret. After the confirmation it is the registration token. */
    tokenHash: text("UNIQUE"),
    /** The name that the node asks for. */
    name: text(),
    hostPublicKey: text(),
    csrKeySha256: textOrNull(),
    /** The organization that the machine asks for, which need not exist; null: the user chooses. */
    slug: textOrNull(),
    /** The machine's description of itself. It proves nothing. */
    machine: text(),
    platform: textOrNull(),
    address: text(),
    createdAt: integer(),
    expiresAt: integer(),
    /** Wrong words that were typed for it, and tries that are compared now. Above the maximum, the request has ended. */
    tries: integerWithDefault("DEFAULT 0"),
    /** The organization for which it was confirmed; null: it waits. */
    orgId: integerOrNull("REFERENCES organizations (id)"),
  },
  { indexes: ["CREATE INDEX enrollments_expiry ON enrollments (expires_at)"] },
);
export type EnrollmentRow = TableRow<typeof enrollments>;
