// Domains of e-mail addresses that an organization has claimed. Only when a domain is verified, the addresses that the
// organization's provider names there count.

import { integer, integerOrNull, serial, table, text, wordOrNull, type TableRow } from "../table.ts";

export const verifiedDomains = table(
  "verified_domains",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** Lower case, without a dot at the end. */
    domain: text(),
    /** What the TXT record must hold. No secret: only the owner of the domain can publish it. */
    proof: text(),
    createdAt: integer(),
    verifiedAt: integerOrNull(),
    /** By the record in DNS, or by the word of staff. */
    verifiedBy: wordOrNull(["dns", "staff"]),
  },
  {
    constraints: ["UNIQUE (org_id, domain)"],
    indexes: [
      "CREATE INDEX verified_domains_domain ON verified_domains (domain) WHERE verified_at IS NOT NULL",
    ],
  },
);
export type VerifiedDomainRow = TableRow<typeof verifiedDomains>;
