// `agent admin oidc …`: the providers of identities (OpenID Connect) by which users sign in.

import { organizationProvidersApi, providersApi } from "../../../api/providers.ts";
import type { GivenOf } from "../../../api/endpoint.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Context, Implementation } from "../../command.ts";
import { given } from "../../../base/given.ts";
import { readNamedFile, type Flags, type Values } from "../../values.ts";
import { read, write, type Api } from "../api.ts";
import { checked, idOf } from "../lookup.ts";
import { targetFlags } from "../target.ts";

const orgFlag: Flags = {
  org: {
    type: "string",
    valueHint: "ORG",
    description: "A provider of this organization only; without it, of the installation",
  },
};
/** The scope: providers of this organization, or of the installation. */
const orgOf = ({ values }: Pick<Context, "values">) => values.text("org");
const providerArg = {
  PROVIDER: { type: "positional", description: "The provider's number or name" },
} as const;
const settings = {
  "client-secret": {
    type: "string",
    valueHint: "SECRET",
    secret: true,
    description: "The secret of the client; without one, it is a public client",
  },
  scopes: { type: "string", valueHint: "SCOPES", description: "Default: openid email profile" },
  "groups-claim": {
    type: "string",
    valueHint: "CLAIM",
    description: "Where the groups are, such as realm_access.roles (default: groups)",
  },
  domain: {
    type: "string",
    valueHint: "DOMAIN",
    repeatable: true,
    description: "Only verified addresses of this domain sign in (repeatable; default: all)",
  },
  "require-group": {
    type: "string",
    valueHint: "GROUP",
    repeatable: true,
    description: "Only users with one of these groups sign in (repeatable; default: all)",
  },
  tenant: {
    type: "string",
    valueHint: "CLAIM=VALUE",
    description: "Only identities with this claim, such as hd=example.org",
  },
  role: {
    type: "string",
    valueHint: "GROUP=ORG:ROLE",
    repeatable: true,
    description:
      "Users with the group become member or admin of the organization (repeatable); with --org, GROUP=ROLE",
  },
  "node-group": {
    type: "string",
    valueHint: "GROUP=ORG:NODE_GROUP",
    repeatable: true,
    description:
      "The machines of users with the group get this group of nodes (repeatable); with --org, GROUP=NODE_GROUP",
  },
  users: {
    type: "string",
    valueHint: "create|link",
    description:
      "create: an identity without a user gets one. link: only users that there are sign in; with --org, only groups with a role",
  },
  "api-ca": {
    type: "string",
    valueHint: "FILE",
    description: "Trust the CAs in this PEM file for the provider",
  },
} as const satisfies Flags;

async function settingsFrom({ values, system }: Context): Promise<Record<string, unknown>> {
  const secret = await values.secret("client-secret");
  const ca = values.text("api-ca");
  const users = values.text("users");
  const org = values.text("org");
  if (users !== undefined && users !== "create" && users !== "link")
    throw new AppError("usage", `--users must be create or link, not "${users}"`);
  return given({
    client_secret: secret,
    scopes: values.text("scopes"),
    groups_claim: values.text("groups-claim"),
    domains: listOf(values, "domain"),
    required_groups: listOf(values, "require-group"),
    tenant: values.text("tenant") === "" ? null : values.text("tenant"),
    roles: listOf(values, "role")?.map(org === undefined ? roleOf : ownRoleOf),
    node_groups: listOf(values, "node-group")?.map((each) => nodeGroupOf(each, org !== undefined)),
    creates_users: users === undefined ? undefined : users === "create",
    trust: ca === undefined ? undefined : await readNamedFile("api-ca", ca, system),
  });
}

/** `""` alone empties a list. */
function listOf(values: Values, flag: string): string[] | undefined {
  const all = values.list(flag);
  return all.length === 0 ? undefined : all.filter((each) => each !== "");
}

function roleOf(text: string) {
  const [, group, organization, role] = /^(.+)=([^:=]+):(member|admin)$/.exec(text) ?? [];
  if (group === undefined || organization === undefined || role === undefined)
    throw new AppError("usage", `--role must be GROUP=ORG:member or GROUP=ORG:admin, not "${text}"`);
  return { group, organization, role };
}

function ownRoleOf(text: string) {
  const [, group, role] = /^(.+)=(member|admin)$/.exec(text) ?? [];
  if (group === undefined || role === undefined)
    throw new AppError("usage", `--role must be GROUP=member or GROUP=admin with --org, not "${text}"`);
  return { group, role };
}

function nodeGroupOf(text: string, isOwn: boolean) {
  const [, group, organization, node_group] =
    (isOwn ? /^(.+)=()([^=]+)$/ : /^(.+)=([^:=]+):([^=]+)$/).exec(text) ?? [];
  if (group === undefined || organization === undefined || node_group === undefined) {
    const form = isOwn ? "GROUP=NODE_GROUP with --org" : "GROUP=ORG:NODE_GROUP";
    throw new AppError("usage", `--node-group must be ${form}, not "${text}"`);
  }
  return { group, node_group, ...(isOwn ? {} : { organization }) };
}

const listIn = (api: Api, slug: string | undefined) =>
  slug === undefined ? api.call(providersApi.list, {}) : api.call(organizationProvidersApi.list, { slug });
const numberOf = (api: Api, slug: string | undefined, word: string) => {
  const list = () => listIn(api, slug);
  return idOf(word, { what: "provider", listing: "oidc list", list, nameOf: ({ name }) => name });
};

export const list: Implementation = {
  args: { ...orgFlag, ...targetFlags },
  examples: [`${brand.executable} admin oidc list`],
  async run(context) {
    const providers = await read(context, (api) => listIn(api, orgOf(context)));
    context.output.list(
      { providers },
      {
        columns: ["ID", "NAME", "ISSUER", "CLIENT", "NEW USERS", "LEAVERS END", "REDIRECT URI"],
        rows: providers.map((each) => [
          each.id,
          each.name,
          each.issuer,
          each.client_id === "" ? "not registered yet" : each.client_id,
          each.creates_users ? "created" : "refused",
          each.leaving ?? "not known yet",
          each.redirect_uri,
        ]),
        none: "There are no providers.",
      },
    );
  },
};

export const create: Implementation = {
  notes: `Register a client at the provider first: code flow with PKCE, and the redirect URI that this prints. Users are known by
issuer and subject, never by their address. Users of a provider of an organization (--org) are valid in that organization only. On the machine of the control plane this works with any address; serve reaches
internal ones only with --webhook-allow.`,
  args: {
    NAME: { type: "positional", description: "The name on the sign-in page" },
    ISSUER: { type: "positional", description: "The issuer's URL" },
    "client-id": {
      type: "string",
      valueHint: "ID",
      description: "The client that you registered (default: none yet; `oidc update` adds it)",
    },
    ...settings,
    ...orgFlag,
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin oidc create Company https://login.example.org --client-id agent --client-secret-file secret --users create --domain example.org`,
    `${brand.executable} admin oidc create Company https://login.example.org --org acme --client-id agent --client-secret-file secret --role net-admins=admin`,
  ],
  async run(context) {
    const [name, issuer] = context.words;
    const fields = {
      name,
      issuer,
      ...given({ client_id: context.values.text("client-id") }),
      ...(await settingsFrom(context)),
    };
    const slug = orgOf(context);
    const change =
      slug === undefined
        ? request(providersApi.create, {}, await checked(providersApi.create.body, fields))
        : request(
            organizationProvidersApi.create,
            { slug },
            await checked(organizationProvidersApi.create.body, fields),
          );
    const made = await write(context, () => change);
    if (made === undefined) return;
    const next = `Register this redirect URI at the provider:\n  ${made.redirect_uri}`;
    const state =
      made.client_id === ""
        ? `Nobody can sign in with ${made.name} yet: add its client with \`oidc update\`.`
        : `Users can sign in with ${made.name} now.`;
    context.output.result(made, `${state} ${next}\n`);
  },
};

export const update: Implementation = {
  notes: `Flags that are not given change nothing. --domain "", --require-group "", --role "" and --node-group "" empty a list, --tenant "" removes the tenant.`,
  args: {
    ...providerArg,
    name: { type: "string", valueHint: "NAME", description: "Another name on the sign-in page" },
    "client-id": { type: "string", valueHint: "ID", description: "Another client" },
    ...settings,
    domain: { ...settings.domain, clears: true },
    "require-group": { ...settings["require-group"], clears: true },
    tenant: { ...settings.tenant, clears: true },
    role: { ...settings.role, clears: true },
    "node-group": { ...settings["node-group"], clears: true },
    ...orgFlag,
    ...targetFlags,
  },
  examples: [`${brand.executable} admin oidc update Company --role net-admins=acme:admin`],
  async run(context) {
    const { values } = context;
    const [word = ""] = context.words;
    const names = given({ name: values.text("name"), client_id: values.text("client-id") });
    const slug = orgOf(context);
    const fields = { ...names, ...(await settingsFrom(context)) };
    const changeOf =
      slug === undefined
        ? installationChange(await checked(providersApi.update.body, fields))
        : organizationChange(slug, await checked(organizationProvidersApi.update.body, fields));
    const made = await write(context, async (api) => changeOf(await numberOf(api, slug, word)));
    if (made !== undefined) context.output.result(made, `Changed ${made.name}\n`);
  },
};

const installationChange = (body: GivenOf<typeof providersApi.update>) => (id: number) =>
  request(providersApi.update, { id }, body);
const organizationChange =
  (slug: string, body: GivenOf<typeof organizationProvidersApi.update>) => (id: number) =>
    request(organizationProvidersApi.update, { slug, id }, body);

export const remove: Implementation = {
  notes:
    "Users stay, but those without a password can no longer sign in. Roles that its groups gave stay too.",
  args: { ...providerArg, ...orgFlag, ...targetFlags },
  examples: [`${brand.executable} admin oidc delete Company`],
  async run(context) {
    const [word = ""] = context.words;
    const slug = orgOf(context);
    const done = await write(context, async (api) => {
      const id = await numberOf(api, slug, word);
      return slug === undefined
        ? request(providersApi.delete, { id })
        : request(organizationProvidersApi.delete, { slug, id });
    });
    if (done !== undefined) context.output.result({ provider: word }, `Deleted ${word} and its identities\n`);
  },
};
