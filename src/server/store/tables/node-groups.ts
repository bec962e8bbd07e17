// Groups of nodes.

import { integer, serial, table, text, textWithDefault } from "../table.ts";

export const nodeGroups = table(
  "node_groups",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    description: textWithDefault("DEFAULT ''"),
    createdAt: integer(),
  },
  { constraints: ["UNIQUE (org_id, name)"] },
);
