// The users whose nodes a policy file puts into a group of nodes.

import { integer, serial, table, text } from "../table.ts";

export const groupPeople = table(
  "group_people",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** The name of the group. */
    name: text(),
    /** The group of the user's nodes, `user:id.17`. */
    people: text(),
    createdAt: integer(),
  },
  { constraints: ["UNIQUE (org_id, name, people)"] },
);
