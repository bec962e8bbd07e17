// When the user of a node last said in a browser that it is still theirs, where the organization asks for that.

import { integer, integerOrNull, table } from "../table.ts";

export const ownerProofs = table(
  "owner_proofs",
  {
    nodeId: integer("REFERENCES nodes (id)"),
    /** Ms; 0: never. */
    provenAt: integer(),
    /** When the user was told that the time ends, ms; null: not yet since the last proof. */
    toldAt: integerOrNull(),
  },
  { constraints: ["PRIMARY KEY (node_id)"] },
);
