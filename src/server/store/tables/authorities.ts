// CAs of organizations.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  since,
  table,
  text,
  word,
  type TableRow,
} from "../table.ts";

export const authorities = table(
  "authorities",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    kind: word(["overlay", "x509"]),
    version: integerWithDefault("DEFAULT 1"),
    fingerprint: text(),
    certificate: text(),
    privateKeySealed: text(),
    state: word(["next", "active", "former"]),
    notBefore: integer(),
    notAfter: integer(),
    createdAt: integer(),
    /** When a former CA left the trusted bundle, ms. */
    retiredAt: since(3, integerOrNull()),
  },
  { indexes: ["CREATE INDEX authorities_org ON authorities (org_id, state)"] },
);
export type AuthorityRow = TableRow<typeof authorities>;
