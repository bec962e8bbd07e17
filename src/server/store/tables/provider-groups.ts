// The groups of providers of identities that the policy of an organization names.

import { integer, serial, table, text } from "../table.ts";

export const providerGroups = table(
  "provider_groups",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    providerId: integer(),
    /** As the provider says it. */
    name: text(),
    /** The group of the nodes of its users, `idp:3.` and a digest of the name. */
    people: text(),
    createdAt: integer(),
  },
  {
    constraints: ["UNIQUE (org_id, people)"],
    indexes: ["CREATE INDEX provider_groups_provider ON provider_groups (provider_id)"],
  },
);
