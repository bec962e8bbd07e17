// On which nodes' machines sessions of command lines are, as these machines proved. When such a node is revoked, they end.

import { integer, table, text } from "../table.ts";

export const sessionNodes = table(
  "session_nodes",
  {
    /** Of the session's tokens. */
    family: text(),
    nodeId: integer("REFERENCES nodes (id)"),
    provenAt: integer(),
  },
  {
    constraints: ["PRIMARY KEY (family, node_id)"],
    indexes: ["CREATE INDEX session_nodes_node ON session_nodes (node_id)"],
  },
);
