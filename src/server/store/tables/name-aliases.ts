// Aliases: further names of nodes, and names of addresses that nodes route.

import { integer, integerOrNull, serial, table, text, textOrNull, truth } from "../table.ts";

export const nameAliases = table(
  "name_aliases",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    nodeId: integer("REFERENCES nodes (id)"),
    /** An address within a subnet of the node; null: the node's own addresses. */
    address: textOrNull(),
    /** An active node has this name now, which comes first: nodes are not told of the alias. */
    isShadowed: truth(0),
    /** The version of the organization's names that last changed the alias. */
    namesVersion: integer(),
    createdAt: integer(),
    /** Deleted aliases are kept until no node asks for changes since then. */
    deletedAt: integerOrNull(),
  },
  {
    indexes: [
      "CREATE UNIQUE INDEX name_aliases_name ON name_aliases (org_id, name) WHERE deleted_at IS NULL",
      "CREATE INDEX name_aliases_version ON name_aliases (org_id, names_version)",
      "CREATE INDEX name_aliases_node ON name_aliases (node_id)",
    ],
  },
);
