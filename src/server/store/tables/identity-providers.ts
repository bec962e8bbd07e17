// Providers of identities (OpenID Connect), and the identities that users have there.

import * as v from "valibot";
import {
  integer,
  integerOrNull,
  json,
  jsonWithDefault,
  serial,
  table,
  text,
  textOrNull,
  truth,
  type TableRow,
} from "../table.ts";
import { memberRoles } from "./memberships.ts";

const Words = v.array(v.string());
/** Users with the group at the provider get the role in the organization. No group gives the role of an owner. */
const RoleOfGroup = v.object({
  group: v.string(),
  orgId: v.number(),
  role: v.picklist(memberRoles.filter((role) => role !== "owner")),
});
export type RoleOfGroup = v.InferOutput<typeof RoleOfGroup>;

export const identityProviders = table("identity_providers", {
  id: serial,
  /** On the button of the sign-in page. */
  name: text("UNIQUE"),
  /** Never changes: identities are stored under it. */
  issuer: text(),
  clientId: text(),
  /** "" for a public client. */
  secretSealed: text(),
  /** With spaces between. */
  scopes: text(),
  /** Where the claims name the groups: names with dots between. */
  groupsClaim: text(),
  /** Only verified addresses of these domains; empty: all. */
  domains: json(Words),
  /** Only users with one of these groups; empty: all. */
  requiredGroups: json(Words),
  /** `hd=example.org`: only identities with this claim, for issuers that many tenants share. */
  tenant: textOrNull(),
  roles: json(v.array(RoleOfGroup)),
  /** An identity without a user gets one. */
  createsUsers: truth(0),
  /** PEM of CAs for the connection; null: those of the system. */
  trust: textOrNull(),
  createdAt: integer(),
});
export type IdentityProviderRow = TableRow<typeof identityProviders>;

export const identities = table(
  "identities",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    providerId: integer("REFERENCES identity_providers (id)"),
    issuer: text(),
    subject: text(),
    /** As the provider said it last, for people to recognize. It never decides. */
    email: textOrNull(),
    groups: jsonWithDefault(Words, "[]"),
    createdAt: integer(),
    lastUsedAt: integerOrNull(),
  },
  {
    constraints: ["UNIQUE (issuer, subject)"],
    indexes: [
      "CREATE INDEX identities_user ON identities (user_id, id)",
      "CREATE INDEX identities_provider ON identities (provider_id)",
    ],
  },
);
