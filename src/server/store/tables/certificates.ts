// CAs, and the certificates that they signed for nodes.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  since,
  table,
  text,
  textOrNull,
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
    /** A former CA is trusted until then. */
    retiredAt: since(3, integerOrNull()),
  },
  { indexes: ["CREATE INDEX authorities_org ON authorities (org_id, state)"] },
);
export type AuthorityRow = TableRow<typeof authorities>;

export const certificates = table(
  "certificates",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    nodeId: integer("REFERENCES nodes (id)"),
    authorityId: integer("REFERENCES authorities (id)"),
    kind: word(["overlay", "x509"]),
    version: integer(),
    fingerprint: text(),
    /** The other fingerprint of the same certificate, where its signature has a second form (P-256). */
    twin: textOrNull(),
    pem: text(),
    notBefore: integer(),
    notAfter: integer(),
    renewAt: integer(),
    state: word(["current", "former", "blocked"]),
    /** A former certificate that granted more is blocked then, or once the node has confirmed blockVersion. */
    blockAfter: integerOrNull(),
    blockVersion: integerOrNull(),
    blockedAt: integerOrNull(),
    blockedAtVersion: integerOrNull(),
    createdAt: integer(),
    /** The event that it expires was recorded. */
    expiringToldAt: since(2, integerOrNull()),
  },
  {
    indexes: [
      "CREATE INDEX certificates_node ON certificates (node_id, state)",
      "CREATE UNIQUE INDEX certificates_fingerprint ON certificates (fingerprint)",
      "CREATE INDEX certificates_blocked ON certificates (org_id, not_after) WHERE state = 'blocked'",
      "CREATE INDEX certificates_former ON certificates (block_after) WHERE state = 'former' AND block_after IS NOT NULL",
    ],
  },
);
export type CertificateRow = TableRow<typeof certificates>;
