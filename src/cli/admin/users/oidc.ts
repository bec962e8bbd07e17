// `agent admin oidc …`: the providers of identities (OpenID Connect) by which users sign in.

import {
  organizationProvidersApi,
  organizationProviderSettings,
  providersApi,
  providerSettings,
} from "../../../api/providers/providers.ts";
import type { GivenOf } from "../../../api/endpoint.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import type { Context, Implementation } from "../../command.ts";
import { valueFlag, wordArg } from "../../values.ts";
import { read, write, type Api } from "../api.ts";
import { checked, idOf } from "../lookup.ts";
import { readSettings, settingFlags } from "../setting-flags.ts";

const orgFlag = {
  org: valueFlag("ORG", "A provider of this organization only; without it, of the installation"),
};
/** The scope: providers of this organization, or of the installation. */
const orgOf = ({ values }: Pick<Context, "values">) => values.text("org");
const providerArg = {
  PROVIDER: wordArg("The provider's number or name"),
};
/** The name of a new provider is a word, not a flag. */
const { name: _, ...settingsOfNew } = providerSettings;
const settingsOf = (slug: string | undefined) =>
  slug === undefined ? providerSettings : organizationProviderSettings;

const listIn = (api: Api, slug: string | undefined) =>
  slug === undefined ? api.call(providersApi.list, {}) : api.call(organizationProvidersApi.list, { slug });
const numberOf = (api: Api, slug: string | undefined, word: string) => {
  const list = () => listIn(api, slug);
  return idOf(word, { what: "provider", listing: "oidc list", list, nameOf: ({ name }) => name });
};

export const list: Implementation = {
  args: orgFlag,
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
    NAME: wordArg("The name on the sign-in page"),
    ISSUER: wordArg("The issuer's URL"),
    ...settingFlags(settingsOfNew, { isNew: true }),
    // Replaces the flag of the setting, whose help is about a change.
    "client-id": valueFlag("ID", "The client that you registered (default: none yet; `oidc update` adds it)"),
    ...orgFlag,
  },
  examples: [
    `${brand.executable} admin oidc create Company https://login.example.org --client-id agent --client-secret-file secret --users create --domain example.org`,
    `${brand.executable} admin oidc create Company https://login.example.org --org acme --client-id agent --client-secret-file secret --role net-admins=admin`,
  ],
  async run(context) {
    const [name, issuer] = context.words;
    const slug = orgOf(context);
    const fields = { ...(await readSettings(context, settingsOf(slug))), name, issuer };
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
    ...settingFlags(providerSettings),
    ...orgFlag,
  },
  examples: [`${brand.executable} admin oidc update Company --role net-admins=acme:admin`],
  async run(context) {
    const [word = ""] = context.words;
    const slug = orgOf(context);
    const fields = await readSettings(context, settingsOf(slug));
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
  args: { ...providerArg, ...orgFlag },
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
