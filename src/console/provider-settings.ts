// The settings of an organization's provider of identities, as texts of a form and as the control plane takes them.

import type { GivenOf } from "../api/endpoint.ts";
import type { organizationProvidersApi } from "../api/providers.ts";

type Patch = GivenOf<typeof organizationProvidersApi.update>;
/** All that the form has. The secret is apart, because it is never shown. */
export type ProviderSettings = {
  [K in Exclude<keyof Patch, "client_secret" | "trust">]-?: Exclude<Patch[K], undefined>;
};
export type ProviderTexts = Record<Exclude<keyof ProviderSettings, "creates_users">, string>;

/** Without what is only shown. An answer names the organization in each role and group, a request does not. */
export const settingsOf = (provider: ProviderSettings): ProviderSettings =>
  settingsIn(textsOf(provider), provider.creates_users);

/** Groups have lines of their own: names such as `cn=vpn,ou=groups` have commas. */
const linesIn = (text: string) => itemsIn(text, "\n");
const itemsIn = (text: string, between: string) =>
  text.split(between).flatMap((item) => (item.trim() === "" ? [] : [item.trim()]));

export function textsOf(settings: ProviderSettings): ProviderTexts {
  const { name, client_id, scopes, groups_claim, tenant, domains, required_groups, roles, node_groups } =
    settings;
  return {
    name,
    client_id,
    scopes,
    groups_claim,
    tenant: tenant ?? "",
    domains: domains.join(", "),
    required_groups: required_groups.join("\n"),
    roles: roles.map(({ group, role }) => `${group}=${role}`).join("\n"),
    node_groups: node_groups.map(({ group, node_group }) => `${group}=${node_group}`).join("\n"),
  };
}

export function settingsIn(texts: ProviderTexts, creates_users: boolean): ProviderSettings {
  const { name, client_id, scopes, groups_claim } = texts;
  return {
    name: name.trim(),
    client_id: client_id.trim(),
    scopes: scopes.trim(),
    groups_claim: groups_claim.trim(),
    tenant: texts.tenant.trim() === "" ? null : texts.tenant.trim(),
    domains: itemsIn(texts.domains, ","),
    required_groups: linesIn(texts.required_groups),
    roles: linesIn(texts.roles).map((line) => {
      const [group, role] = halvesOf(line);
      return { group, role: role ?? "member" };
    }),
    node_groups: linesIn(texts.node_groups).map((line) => {
      const [group, node_group = ""] = halvesOf(line);
      return { group, node_group };
    }),
    creates_users,
  };
}

/** `net-admins=admin`: the role follows the last equals sign. */
function halvesOf(line: string): [string, string?] {
  const at = line.lastIndexOf("=");
  return at === -1 ? [line] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}

/** Only the fields that differ, so that changes by others meanwhile stay. */
export function changesIn(before: ProviderSettings, after: ProviderSettings): Partial<ProviderSettings> {
  const isChanged = ([key, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(before[key as keyof ProviderSettings]);
  return Object.fromEntries(Object.entries(after).filter(isChanged));
}

/** The flags of `agent admin oidc update`. */
export function flagsOf(changes: Partial<ProviderSettings>): string[] {
  const {
    name,
    client_id,
    scopes,
    groups_claim,
    tenant,
    domains,
    required_groups,
    roles,
    node_groups,
    creates_users,
  } = changes;
  const one = (flag: string, text: string | undefined) => (text === undefined ? [] : [`--${flag}`, text]);
  const all = (flag: string, list: readonly string[] | undefined) =>
    (list?.length === 0 ? [""] : (list ?? [])).flatMap((each) => [`--${flag}`, each]);
  return [
    ...one("name", name),
    ...one("client-id", client_id),
    ...one("scopes", scopes),
    ...one("groups-claim", groups_claim),
    ...one("tenant", tenant === null ? "" : tenant),
    ...all("domain", domains),
    ...all("require-group", required_groups),
    ...all(
      "role",
      roles?.map(({ group, role }) => `${group}=${role}`),
    ),
    ...all(
      "node-group",
      node_groups?.map(({ group, node_group }) => `${group}=${node_group}`),
    ),
    ...(creates_users === undefined ? [] : ["--users", creates_users ? "create" : "link"]),
  ];
}
