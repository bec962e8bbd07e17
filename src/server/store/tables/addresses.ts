// Which host numbers of an organization are taken, held or free.

import { integer, integerOrNull, since, table, truth } from "../table.ts";

/**
 * Every host number below next_host, and those above it that were requested. Without a node the address is free. With a
 * node it is taken. With heldUntil too, its node has left it: it becomes free when every active node has confirmed
 * heldVersion, or when the certificate that names it has expired, and open flows have ended, see holds.ts.
 */
export const addresses = table(
  "addresses",
  {
    orgId: integer("REFERENCES organizations (id)"),
    host: integer(),
    nodeId: integerOrNull("REFERENCES nodes (id)"),
    heldVersion: integerOrNull(),
    heldUntil: integerOrNull(),
    /** As heldNames.freeAt. */
    freeAt: since(8, integerOrNull()),
    /** The version that makes engines check open flows again, raised at freeAt. The address is free once it is confirmed. */
    recheckVersion: since(12, integerOrNull()),
    /** Its former node was ephemeral: engines check open flows again for another reason, or when few addresses are left. */
    isQuiet: since(25, truth(0)),
  },
  {
    constraints: ["PRIMARY KEY (org_id, host)"],
    indexes: [
      "CREATE INDEX addresses_node ON addresses (node_id)",
      "CREATE INDEX addresses_free ON addresses (org_id, host) WHERE node_id IS NULL",
      "CREATE INDEX addresses_held ON addresses (org_id) WHERE held_until IS NOT NULL",
    ],
  },
);
