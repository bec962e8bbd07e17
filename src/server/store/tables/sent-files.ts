// The files that the control plane sent to each node last, in a form that can be compared. A configuration is stored once
// for all nodes of an organization that have the same.

import { integer, integerOrNull, key, table, text, textOrNull } from "../table.ts";

export const sentConfigs = table(
  "sent_configs",
  {
    orgId: integer("REFERENCES organizations (id)"),
    digest: text(),
    /** config.yml without its blocklist, gzip in base64. */
    packed: text(),
    /** When it was sent last, ms, to the hour. */
    sentAt: integer(),
  },
  {
    constraints: ["PRIMARY KEY (org_id, digest)"],
    indexes: ["CREATE INDEX sent_configs_sent ON sent_configs (sent_at)"],
  },
);

export const sentFiles = table("sent_files", {
  nodeId: key,
  orgId: integer("REFERENCES organizations (id)"),
  /** What was sent last. */
  version: integer(),
  configDigest: text(),
  others: text(),
  /** Since when it has files that it has not applied, or else when it was sent these; ms. */
  sentAt: integer(),
  /** What was sent before, of which the node said that it had applied it. A node may refuse what was sent last. */
  formerVersion: integerOrNull(),
  formerDigest: textOrNull(),
  formerOthers: textOrNull(),
});
