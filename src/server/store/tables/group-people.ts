// The users, and groups of providers of identities, whose nodes a policy file puts into a group of nodes.

import { integer, serial, table, text } from "../table.ts";

export const groupPeople = table(
  "group_people",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** The name of the group. */
    name: text(),
    /** The group of the nodes of a user, `user:id.17`, or of the users of a provider's group. */
    people: text(),
    createdAt: integer(),
  },
  { constraints: ["UNIQUE (org_id, name, people)"] },
);
