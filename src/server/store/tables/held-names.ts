// Names that nodes gave up, reserved against others for a while.

import { integer, integerOrNull, table, text } from "../table.ts";

/** Names that nodes gave up, held while peers may still grant them something, see holds.ts. */
export const heldNames = table(
  "held_names",
  {
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    nodeId: integer("REFERENCES nodes (id)"),
    /** The version that no longer contains the name; null until it is known. */
    heldVersion: integerOrNull(),
    /** When the last certificate with the name expires, ms. */
    heldUntil: integer(),
    /** When the name becomes free, ms; null until all active nodes have confirmed. */
    freeAt: integerOrNull(),
  },
  {
    constraints: ["PRIMARY KEY (org_id, name, node_id)"],
    indexes: [
      "CREATE INDEX held_names_node ON held_names (node_id)",
      "CREATE INDEX held_names_version ON held_names (org_id, held_version) WHERE free_at IS NULL",
      "CREATE INDEX held_names_free ON held_names (org_id, free_at) WHERE free_at IS NOT NULL",
    ],
  },
);
