// CAs of organizations, and the certificates that they signed.

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
  queryNumber,
  textOrNull,
  truth,
} from "../table.ts";
import type { Reader } from "../database.ts";

export const authorities = table(
  "authorities",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    kind: word(["overlay", "x509"]),
    version: integerWithDefault("DEFAULT 1"),
    fingerprint: text(),
    certificate: text(),
    /** An envelope of pki/secrets.ts; empty: the key is not here (`offline`), or was deleted at the end of a rotation. */
    privateKeySealed: text(),
    state: word(["next", "active", "former"]),
    notBefore: integer(),
    notAfter: integer(),
    createdAt: integer(),
    /** When a former CA left the trusted bundle, ms. */
    retiredAt: since(3, integerOrNull()),
    /** Its key is on the machines of signers: state former, no key, and trusted until it is retired (offline-ca.ts). */
    offline: since(66, truth(0)),
  },
  { indexes: ["CREATE INDEX authorities_org ON authorities (org_id, state)"] },
);
export type AuthorityRow = TableRow<typeof authorities>;

/** Certificates that CAs signed for nodes. Times are in ms. */
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
    /** former: replaced, and still valid until it ends. blocked: in the blocklist until it ends. */
    state: word(["current", "former", "blocked"]),
    /** A former certificate that granted more is blocked at this time, ms, or when its node has confirmed blockVersion. */
    blockAfter: integerOrNull(),
    blockVersion: integerOrNull(),
    blockedAt: integerOrNull(),
    /** The configuration version whose blocklist has it first; null: it had expired, and is in none. */
    blockedAtVersion: integerOrNull(),
    createdAt: integer(),
    /** When the event about its expiry was recorded, ms. */
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

const lastEnd = "SELECT coalesce(max(not_after), 0) AS n FROM certificates WHERE node_id = $1";
const lastEndOverlay = `${lastEnd} AND kind = 'overlay'`;

/** When the last certificate of the node of any kind expires, ms; 0 if it never had one. */
export function lastCertificateEnd(reader: Reader, nodeId: number): Promise<number> {
  return queryNumber(reader, lastEnd, [nodeId]);
}

/** When the last overlay certificate of the node expires, ms; 0 if it never had one. */
export function lastOverlayEnd(reader: Reader, nodeId: number): Promise<number> {
  return queryNumber(reader, lastEndOverlay, [nodeId]);
}
