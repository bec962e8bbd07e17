// Machines that wait until an administrator approves them. A request holds no name and no address, but a use of its token.

import * as v from "valibot";
import {
  integer,
  integerOrNull,
  json,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  wordWithDefault,
  type TableRow,
} from "../table.ts";

export const registrationRequests = table(
  "registration_requests",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** Of everything that the approval covers. */
    digest: text(),
    state: wordWithDefault(["waiting", "approved", "refused"], "waiting"),
    name: text(),
    hostPublicKey: text(),
    csrKeySha256: textOrNull(),
    groups: json(v.array(v.string())),
    isLighthouse: truth(0),
    isRelay: truth(0),
    /** The user whose node it becomes; null: the organization's. */
    ownerId: integerOrNull("REFERENCES users (id)"),
    /** The token of which it holds a use, unless it was refused; null: an administrator's own registration. */
    tokenId: integerOrNull("REFERENCES registration_tokens (id)"),
    platform: textOrNull(),
    agentVersion: textOrNull(),
    /** The address that it came from first. */
    seenFrom: text(),
    createdAt: integer(),
    expiresAt: integer(),
    /** About when its machine asked last. NULL: it has not since this is recorded. */
    askedAt: since(48, integerOrNull()),
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
