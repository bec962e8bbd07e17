// The settings of a provider of identities, and what is shown of them.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { isReservedGroup } from "../policy/firewall.ts";
import { GroupName } from "../../api/values.ts";
import { comparedText, foreignText } from "../../base/text.ts";

const text = (max: number) => v.pipe(comparedText(max), v.trim(), v.minLength(1));
const list = <T extends v.GenericSchema>(item: T) => v.pipe(v.array(item), v.maxLength(100));
export const Domain = v.pipe(
  text(253),
  v.toLowerCase(),
  v.regex(
    // Labels of RFC 1123; the last one is no number, as in an address.
    /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+(?!\d+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    "Enter a domain such as example.org.",
  ),
);
const GroupRole = v.strictObject({
  group: text(200),
  organization: text(63),
  role: v.picklist(["member", "admin"]),
});
const NodeGroup = v.pipe(
  GroupName,
  v.check((name) => !isReservedGroup(name), "The prefixes user:, idp: and autogroup: are reserved."),
);
const GroupNodeGroup = v.strictObject({ group: text(200), organization: text(63), node_group: NodeGroup });
const settings = {
  name: text(60),
  client_id: text(200),
  client_secret: text(1000),
  scopes: v.pipe(
    text(500),
    v.check((words) => words.split(" ").includes("openid"), "The scopes must have openid."),
  ),
  groups_claim: text(200),
  domains: list(Domain),
  required_groups: list(text(200)),
  tenant: v.nullable(v.pipe(text(300), v.regex(/^[^=]+=.+$/, "Enter CLAIM=VALUE, such as hd=example.org."))),
  roles: list(GroupRole),
  node_groups: list(GroupNodeGroup),
  creates_users: v.boolean(),
  trust: v.nullable(
    v.pipe(text(60_000), v.regex(/^-----BEGIN CERTIFICATE-----/, "Enter certificates in PEM.")),
  ),
};
const Issuer = v.pipe(
  text(500),
  v.check((given) => {
    // Refused: a URL is parsed without its line breaks, but compared and shown with them.
    if (!URL.canParse(given) || /[\s\p{Cc}]/u.test(given)) return false;
    const { protocol, search, hash, username, password } = new URL(given);
    return /^https?:$/.test(protocol) && search + hash + username + password === "";
  }, "Enter the issuer, a URL such as https://login.example.org."),
);
export const NewProvider = v.strictObject({
  issuer: Issuer,
  ...settings,
  /**
   * Empty: we are not registered at the provider yet. Then the redirect URI can be shown, but no user can sign in.
   */
  client_id: v.optional(v.pipe(foreignText(200), v.trim()), ""),
  client_secret: v.optional(settings.client_secret),
  scopes: v.optional(settings.scopes, "openid email profile"),
  groups_claim: v.optional(settings.groups_claim, "groups"),
  domains: v.optional(settings.domains, []),
  required_groups: v.optional(settings.required_groups, []),
  tenant: v.optional(settings.tenant, null),
  roles: v.optional(settings.roles, []),
  node_groups: v.optional(settings.node_groups, []),
  creates_users: v.optional(settings.creates_users, false),
  trust: v.optional(settings.trust, null),
});
export const ProviderPatch = v.partial(v.strictObject(settings));

/** `creates_users`: every identity that may sign in becomes a member. Else only those whose groups give a role. */
const ownRoles = list(v.strictObject({ group: text(200), role: v.picklist(["member", "admin"]) }));
const ownNodeGroups = list(v.strictObject({ group: text(200), node_group: NodeGroup }));
export const NewOrganizationProvider = v.strictObject({
  ...NewProvider.entries,
  roles: v.optional(ownRoles, []),
  node_groups: v.optional(ownNodeGroups, []),
});
const ownSettings = { ...settings, roles: ownRoles, node_groups: ownNodeGroups };
export const OrganizationProviderPatch = v.partial(v.strictObject(ownSettings));
/** Mappings in the form of the installation's: each with the organization. */
export const allIn = <T extends object>(organization: string, given: readonly T[]) =>
  given.map((each) => ({ ...each, organization }));
export const Provider = v.object({
  id: v.number(),
  name: v.string(),
  issuer: v.string(),
  /** Empty: we are not registered at the provider yet, so no user can sign in. */
  client_id: v.string(),
  has_secret: v.boolean(),
  scopes: v.string(),
  groups_claim: v.string(),
  domains: v.array(v.string()),
  required_groups: v.array(v.string()),
  tenant: v.nullable(v.string()),
  roles: v.array(v.object(GroupRole.entries)),
  /** Groups that the nodes of users with the group get. */
  node_groups: v.array(v.object(GroupNodeGroup.entries)),
  creates_users: v.boolean(),
  trust: v.nullable(v.string()),
  /** To be registered at the provider. */
  redirect_uri: v.string(),
  created_at: v.string(),
  /**
   * When a user who left the provider is signed out here. `hourly`: the server asks the provider with a refresh
   * token. `daily`: at the end of the session, because the provider gives no such token. Null until the first
   * sign-in.
   */
  leaving: v.nullable(v.picklist(["hourly", "daily"])),
  /** Undefined: the provider belongs to the installation. */
  organization: v.optional(v.string()),
});
export type Provider = v.InferOutput<typeof Provider>;

/** Issuers that serve many tenants: without a tenant, a user of any of them could sign in. */
export function requireOneTenant(given: {
  issuer: string;
  tenant: string | null;
  required_groups: readonly string[];
}) {
  const { hostname, pathname } = new URL(given.issuer);
  if (/^\/(common|organizations|consumers)(\/|$)/.test(pathname))
    throw invalid("issuer", "This issuer stands for all tenants. Enter that of your own tenant.");
  if (hostname === "accounts.google.com" && given.tenant?.startsWith("hd=") !== true)
    throw invalid("tenant", "Everybody can have an identity there. Enter hd=DOMAIN of your organization.");
  const isOpen = given.tenant === null && given.required_groups.length === 0;
  if (hostname === "gitlab.com" && isOpen)
    throw invalid("required_groups", "Everybody can have an identity there. Enter a group of yours.");
}

export function invalid(field: string, sentence: string): AppError {
  return new AppError("validation_failed", sentence, { errors: { [field]: [sentence] } });
}
