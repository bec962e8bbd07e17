// Providers of identities (OpenID Connect) and their settings. Staff manage those of the installation, administrators those of an
// organization. Users of an organization's provider are valid in that organization only, and their e-mail addresses count only in
// domains that it has verified (domains.ts). What the keys of a setting mean: protocol/settings.ts.

import { GroupName, listOf } from "../../protocol/values.ts";
import * as v from "valibot";
import { comparedText } from "../../base/text.ts";
import { declare, sent, taken } from "../../protocol/settings.ts";
import { endpoint } from "../endpoint.ts";
import { initially, isReservedGroup, Text, Time, typed, word } from "../values.ts";
import { Domain } from "./domains.ts";

const text = (max: number) => v.pipe(comparedText(max), v.trim(), v.minLength(1, "It must not be empty."));
const list = <T extends v.GenericSchema>(item: T) => listOf(item, 100);
/** The roles that a group of a provider can give. */
const providerRoles = ["member", "admin"] as const;
const GroupRole = v.strictObject({
  group: text(200),
  organization: text(63),
  role: typed(providerRoles),
});
const NodeGroup = v.pipe(
  GroupName,
  v.check((name) => !isReservedGroup(name), "The prefixes user:, idp: and autogroup: are reserved."),
);
const GroupNodeGroup = v.strictObject({ group: text(200), organization: text(63), node_group: NodeGroup });
/** The title of the section that the console folds: these fields are rarely needed. */
const rareSection = "More: groups, domains, claims";
/** What staff change of a provider of the installation. */
export const providerSettings = declare({
  name: {
    takes: text(60),
    sends: Text,
    flag: "name",
    hint: "NAME",
    help: "Another name on the sign-in page",
    section: "",
    label: "Name",
    more: "On the button of the sign-in page.",
  },
  client_id: {
    takes: v.pipe(comparedText(200), v.trim()),
    sends: Text,
    flag: "client-id",
    hint: "ID",
    help: "Another client",
    section: "",
    label: "Client ID",
    more: "Empty: not registered yet.",
    initial: "",
  },
  client_secret: {
    takes: text(1000),
    sends: v.never(),
    flag: "client-secret",
    hint: "SECRET",
    secret: true,
    help: "The secret of the client; without one, it is a public client",
    section: "",
    label: "Secret of the client",
  },
  scopes: {
    takes: v.pipe(
      text(500),
      v.check((words) => words.split(" ").includes("openid"), "The scopes must have openid."),
    ),
    sends: Text,
    flag: "scopes",
    hint: "SCOPES",
    help: "Default: openid email profile",
    section: rareSection,
    label: "Scopes",
    more: "With spaces between. With offline_access most providers can be asked whether users are still there.",
    initial: "openid email profile",
  },
  groups_claim: {
    takes: text(200),
    sends: Text,
    flag: "groups-claim",
    hint: "CLAIM",
    help: "Where the groups are, such as realm_access.roles (default: groups)",
    section: rareSection,
    label: "Claim of the groups",
    more: "Its name, or the way to it with dots: realm_access.roles.",
    initial: "groups",
  },
  domains: {
    takes: list(Domain),
    sends: v.array(Text),
    flag: "domain",
    hint: "DOMAIN",
    whole: true,
    help: "Only verified addresses of this domain sign in (repeatable; default: all)",
    section: rareSection,
    label: "Domains that may sign in",
    more: "Verified ones, separated by commas. Empty: all.",
    initial: [],
  },
  required_groups: {
    takes: list(text(200)),
    sends: v.array(Text),
    flag: "require-group",
    hint: "GROUP",
    whole: true,
    help: "Only users with one of these groups sign in (repeatable; default: all)",
    section: rareSection,
    label: "Groups that may sign in",
    more: "One a line. Empty: all.",
    lines: true,
    initial: [],
  },
  tenant: {
    takes: v.nullable(v.pipe(text(300), v.regex(/^[^=]+=.+$/, "Enter CLAIM=VALUE, such as hd=example.org."))),
    sends: v.nullable(Text),
    flag: "tenant",
    hint: "CLAIM=VALUE",
    none: "",
    help: "Only identities with this claim, such as hd=example.org",
    section: rareSection,
    label: "Tenant",
    more: "For issuers that many organizations share: CLAIM=VALUE, such as hd=example.org.",
    initial: null,
  },
  roles: {
    takes: list(GroupRole),
    sends: v.array(v.object({ ...GroupRole.entries, role: word(providerRoles) })),
    flag: "role",
    hint: "GROUP=ORG:ROLE",
    whole: true,
    parts: ["group", "organization", "role"],
    words: providerRoles,
    help: "Users with the group become member or admin of the organization (repeatable); with --org, GROUP=ROLE",
    section: "",
    label: "Roles of groups",
    more: "One a line, such as net-admins=admin or staff=member.",
    lines: true,
    lastPart: "member",
    initial: [],
  },
  node_groups: {
    takes: list(GroupNodeGroup),
    /** Groups that the nodes of users with the group get. */
    sends: v.array(v.object({ ...GroupNodeGroup.entries, node_group: GroupName })),
    flag: "node-group",
    hint: "GROUP=ORG:NODE_GROUP",
    whole: true,
    parts: ["group", "organization", "node_group"],
    help: "The machines of users with the group get this group of nodes (repeatable); with --org, GROUP=NODE_GROUP",
    section: rareSection,
    label: "Groups of machines",
    more: "One a line, GROUP=GROUP OF MACHINES, such as developers=build: for the machines of these users.",
    lines: true,
    initial: [],
  },
  creates_users: {
    takes: v.boolean(),
    sends: v.boolean(),
    flag: "users",
    hint: "create|link",
    words: ["link", "create"],
    help: "create: an identity without a user gets one. link: only users that there are sign in; with --org, only groups with a role",
    section: "",
    label: "All others become members",
    initial: false,
  },
  trust: {
    takes: v.nullable(
      v.pipe(text(60_000), v.regex(/^-----BEGIN CERTIFICATE-----/, "Enter certificates in PEM.")),
    ),
    sends: v.nullable(Text),
    flag: "api-ca",
    hint: "FILE",
    file: "text",
    help: "Trust the CAs in this PEM file for the provider",
    initial: null,
  },
});
/**
 * What administrators change of a provider of their organization. `creates_users`: every identity that may sign in becomes a
 * member. Else only those whose groups give a role.
 */
export const organizationProviderSettings = declare({
  ...providerSettings,
  roles: {
    ...providerSettings.roles,
    takes: list(v.strictObject({ group: text(200), role: typed(providerRoles) })),
    hint: "GROUP=ROLE",
    parts: ["group", "role"],
  },
  node_groups: {
    ...providerSettings.node_groups,
    takes: list(v.strictObject({ group: text(200), node_group: NodeGroup })),
    hint: "GROUP=NODE_GROUP",
    parts: ["group", "node_group"],
  },
});
const Issuer = v.pipe(
  text(500),
  v.check((issuer) => {
    // Refused: a URL is parsed without its line breaks, but compared and shown with them.
    if (!URL.canParse(issuer) || /[\s\p{Cc}]/u.test(issuer)) return false;
    const { protocol, search, hash, username, password } = new URL(issuer);
    return /^https?:$/.test(protocol) && search + hash + username + password === "";
  }, "Enter the issuer, a URL such as https://login.example.org."),
);
/** Without `client_id`, the redirect URI can be shown, to be registered at the provider, but no user can sign in. */
const newProvider = {
  issuer: Issuer,
  ...initially(providerSettings),
  name: providerSettings.name.takes,
  client_secret: v.optional(providerSettings.client_secret.takes),
};
const NewProvider = v.strictObject(newProvider);
const ProviderPatch = v.partial(v.strictObject(taken(providerSettings)));
const { roles, node_groups } = organizationProviderSettings;
const NewOrganizationProvider = v.strictObject({
  ...newProvider,
  ...initially({ roles, node_groups }),
});
const OrganizationProviderPatch = v.partial(v.strictObject(taken(organizationProviderSettings)));

// Answers say only whether there is a secret.
const { name, client_id, client_secret: _, ...otherSettings } = sent(providerSettings);
const Provider = v.object({
  id: v.number(),
  name,
  issuer: Text,
  client_id,
  has_secret: v.boolean(),
  ...otherSettings,
  /** To be registered at the provider. */
  redirect_uri: Text,
  created_at: Time,
  /**
   * When a user who left the provider is signed out here. `hourly`: the server asks the provider with a refresh
   * token. `daily`: at the end of the session, because the provider gives no such token. Null until the first
   * sign-in.
   */
  leaving: v.nullable(word(["hourly", "daily"])),
  /** Undefined: the provider belongs to the installation. */
  organization: v.optional(Text),
});
export type Provider = v.InferOutput<typeof Provider>;
export type NewProvider = v.InferOutput<typeof NewProvider>;
export type ProviderPatch = v.InferOutput<typeof ProviderPatch>;
export type OrganizationProviderPatch = v.InferOutput<typeof OrganizationProviderPatch>;

/** More than the usual maximum, because `trust` holds certificates. */
const maxBody = 131_072;

export const providersApi = {
  list: endpoint({
    name: "identity_providers_list",
    method: "GET",
    path: "/api/identity_providers/",
    access: "staff",
    summary: "Providers of identities (OpenID Connect)",
    answers: { 200: { description: "Providers", schema: v.array(Provider) } },
  }),
  create: endpoint({
    name: "identity_providers_create",
    method: "POST",
    path: "/api/identity_providers/",
    access: "staff",
    fresh: true,
    maxBody,
    summary: "Add a provider of identities. It is asked for its configuration first",
    body: NewProvider,
    answers: { 201: { description: "The provider; register its redirect_uri there", schema: Provider } },
    errors: ["conflict", "provider_unavailable", "untrusted_answer"],
  }),
  retrieve: endpoint({
    name: "identity_providers_retrieve",
    method: "GET",
    path: "/api/identity_providers/{id}/",
    access: "staff",
    summary: "One provider of identities",
    answers: { 200: { description: "The provider", schema: Provider } },
  }),
  update: endpoint({
    name: "identity_providers_partial_update",
    method: "PATCH",
    path: "/api/identity_providers/{id}/",
    access: "staff",
    fresh: true,
    maxBody,
    summary: "Change a provider of identities. Its issuer stays: identities are stored under it",
    body: ProviderPatch,
    answers: { 200: { description: "The provider", schema: Provider } },
    errors: ["conflict"],
  }),
  delete: endpoint({
    name: "identity_providers_destroy",
    method: "DELETE",
    path: "/api/identity_providers/{id}/",
    access: "staff",
    fresh: true,
    summary: "Delete a provider of identities, with its identities and the sessions that began there",
    answers: { 204: { description: "Deleted" } },
  }),
};

/** Service tokens never reach sign-in settings. */
export const organizationProvidersApi = {
  list: endpoint({
    name: "org_identity_providers_list",
    method: "GET",
    path: "/api/org/{slug}/identity_providers/",
    access: "admin",
    usersOnly: true,
    summary: "The organization's own providers of identities (OpenID Connect)",
    answers: { 200: { description: "Providers", schema: v.array(Provider) } },
  }),
  retrieve: endpoint({
    name: "org_identity_providers_retrieve",
    method: "GET",
    path: "/api/org/{slug}/identity_providers/{id}/",
    access: "admin",
    usersOnly: true,
    summary: "One of the organization's own providers of identities",
    answers: { 200: { description: "The provider", schema: Provider } },
  }),
  create: endpoint({
    name: "org_identity_providers_create",
    method: "POST",
    path: "/api/org/{slug}/identity_providers/",
    access: "admin",
    usersOnly: true,
    fresh: true,
    grows: true,
    maxBody,
    summary:
      "Add a provider of identities to the organization. Its users are valid in this organization only. It is asked for its configuration first",
    body: NewOrganizationProvider,
    answers: { 201: { description: "The provider; register its redirect_uri there", schema: Provider } },
    errors: ["conflict", "provider_unavailable", "untrusted_answer"],
  }),
  update: endpoint({
    name: "org_identity_providers_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/identity_providers/{id}/",
    access: "admin",
    usersOnly: true,
    fresh: true,
    grows: true,
    maxBody,
    summary: "Change a provider of the organization. Its issuer stays",
    body: OrganizationProviderPatch,
    answers: { 200: { description: "The provider", schema: Provider } },
    errors: ["conflict"],
  }),
  delete: endpoint({
    name: "org_identity_providers_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/identity_providers/{id}/",
    access: "admin",
    usersOnly: true,
    fresh: true,
    summary:
      "Delete a provider of the organization. Its users cannot sign in any more, and their sessions end",
    answers: { 204: { description: "Deleted" } },
  }),
};
