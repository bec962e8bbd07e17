// Providers of identities (OpenID Connect), and the identities that users have there. A provider belongs to the installation,
// or to one organization, where alone its users are valid.

import * as v from "valibot";
import type { Reader } from "../database.ts";
import {
  integer,
  integerOrNull,
  integerWithDefault,
  json,
  jsonWithDefault,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  wordOrNull,
  type TableRow,
} from "../table.ts";
import { roles } from "../../../api/endpoint.ts";

/** Read in NFC, as all that is compared with it: earlier versions stored groups as they were spelt. */
const Text = v.pipe(v.string(), v.normalize("NFC"));
const Texts = v.array(Text);
/** Users with the group at the provider get the role in the organization. No group gives the role of an owner. */
const RoleOfGroup = v.object({
  group: Text,
  orgId: v.number(),
  role: v.picklist(roles.filter((role) => role !== "owner")),
});

/** The nodes of users with the group at the provider get the group of nodes in the organization. */
const NodeGroupOfGroup = v.object({ group: Text, orgId: v.number(), nodeGroup: v.string() });

export const identityProviders = table("identity_providers", {
  id: serial,
  /** The text of the button on the sign-in page. For an organization's provider only the unique key, see `label`. */
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
  /** Only verified addresses in these domains may sign in; empty: all. */
  domains: json(Texts),
  /** Only users with one of these groups may sign in; empty: all. */
  requiredGroups: json(Texts),
  /** `hd=example.org`: only identities with this claim, for issuers that many tenants share. */
  tenant: textOrNull(),
  roles: json(v.array(RoleOfGroup)),
  /** Whether an identity without a user gets a new user. */
  createsUsers: truth(0),
  /** PEM of CAs for the connection; null: those of the system. */
  trust: textOrNull(),
  createdAt: integer(),
  /** The organization that the provider belongs to; null: the installation. */
  orgId: since(34, integerOrNull("REFERENCES organizations (id)")),
  /** The name of an organization's provider: each organization chooses its own. */
  label: since(34, textOrNull()),
  /**
   * Whether the last sign-in gave a refresh token, with which the server asks whether users are still there; null:
   * not known.
   */
  proof: since(38, wordOrNull(["refresh", "none"])),
  /**
   * Nodes of its users are not revoked before this time, ms, because the provider was away when the users had to sign
   * in.
   */
  heldUntil: since(41, integerWithDefault("DEFAULT 0")),
  nodeGroups: since(37, jsonWithDefault(v.array(NodeGroupOfGroup), "[]")),
});
export type IdentityProviderRow = TableRow<typeof identityProviders>;

/** The shown name; `name` is unique in the installation. */
export const nameOfProvider = ({ name, label }: Pick<IdentityProviderRow, "name" | "label">) => label ?? name;

export const identities = table(
  "identities",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    providerId: integer("REFERENCES identity_providers (id)"),
    issuer: text(),
    subject: text(),
    /** The last value from the provider, for administrators to recognize the user. Nothing depends on it. */
    email: textOrNull(),
    groups: jsonWithDefault(Texts, "[]"),
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

/**
 * The identities of an organization's provider. They are apart from the others, so that no issuer of an organization ever
 * finds a user of the installation, or of another organization.
 */
export const organizationIdentities = table(
  "organization_identities",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    providerId: integer("REFERENCES identity_providers (id)"),
    subject: text(),
    groups: jsonWithDefault(Texts, "[]"),
    createdAt: integer(),
    lastUsedAt: integerOrNull(),
  },
  {
    constraints: ["UNIQUE (provider_id, subject)"],
    indexes: ["CREATE INDEX organization_identities_user ON organization_identities (user_id)"],
  },
);

/** Whether the user has an identity at the provider. */
export async function hasIdentity(
  reader: Reader,
  at: { userId: number; providerId: number },
): Promise<boolean> {
  const found = (await identities.find(reader, at)) ?? (await organizationIdentities.find(reader, at));
  return found !== undefined;
}

// Refresh tokens of providers, with which the server asks every hour whether the user is still there.

/** The context that the token is sealed for. */
export const grantContext = (providerId: number, subject: string) =>
  `provider grant ${providerId} ${subject}`;

export const providerGrants = table(
  "provider_grants",
  {
    id: serial,
    providerId: integer("REFERENCES identity_providers (id)"),
    userId: integer("REFERENCES users (id)"),
    subject: text(),
    /** The refresh token. Providers may replace it with each use. */
    tokenSealed: text(),
    /** When the provider is asked next. */
    nextAt: integer(),
    /** Since when the provider refuses the token without saying why, ms; null: it does not. */
    refusedAt: since(45, integerOrNull()),
  },
  {
    constraints: ["UNIQUE (provider_id, subject)"],
    indexes: [
      "CREATE INDEX provider_grants_next ON provider_grants (next_at)",
      "CREATE INDEX provider_grants_user ON provider_grants (user_id)",
    ],
  },
);
export type ProviderGrantRow = TableRow<typeof providerGrants>;

/** The groups of providers of identities that the policy of an organization names. */
export const providerGroups = table(
  "provider_groups",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    providerId: integer(),
    /** The name at the provider. */
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

/** The users, and groups of providers of identities, whose nodes a policy file puts into a group of nodes. */
export const groupUsers = table(
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
