// The credentials that registered each node.

import { integer, table, text } from "../table.ts";

/** The credentials that registered a node: `person/7`, `service/3`, `registration_token/5` or `operator/`. */
export const registrants = table(
  "registrants",
  { nodeId: integer("REFERENCES nodes (id)"), principal: text() },
  {
    constraints: ["PRIMARY KEY (node_id, principal)"],
    indexes: ["CREATE INDEX registrants_principal ON registrants (principal)"],
  },
);
