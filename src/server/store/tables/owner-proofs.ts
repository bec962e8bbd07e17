// When the user of a node last said in a browser that it is still theirs, where the organization asks for that.

import { integer, integerOrNull, since, table } from "../table.ts";

export const ownerProofs = table(
  "owner_proofs",
  {
    nodeId: integer("REFERENCES nodes (id)"),
    /** Ms; 0: never. */
    provenAt: integer(),
    /** When the user was told that the time ends, ms; null: not yet since the last proof. */
    toldAt: integerOrNull(),
    /** When an administrator last gave the node to its user, by a transfer or a restore, ms; null: never. */
    givenAt: since(41, integerOrNull()),
  },
  { constraints: ["PRIMARY KEY (node_id)"] },
);
