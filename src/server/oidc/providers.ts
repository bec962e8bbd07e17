// The settings of providers of identities. Staff manage them; the secret is never shown again.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { formatTime } from "../../duration.ts";
import { sealSecret } from "../../pki/secrets.ts";
import { record, type Actor } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { requireStaff } from "../people/late-rights.ts";
import { allOrganizations } from "../policy/organizations.ts";
import { NotUnique, type Reader, type Transaction } from "../store/database.ts";
import { browserSessions } from "../store/tables/browser-sessions.ts";
import {
  identities,
  identityProviders,
  type IdentityProviderRow,
  type RoleOfGroup,
} from "../store/tables/identity-providers.ts";
import { memberships } from "../store/tables/memberships.ts";
import { refreshTokens } from "../store/tables/refresh-tokens.ts";
import { providerContext, type Exchange } from "./exchange.ts";

type Services = Pick<ServerOptions, "db" | "system" | "secretKey" | "publicUrl"> & {
  exchange: Pick<Exchange, "discover">;
};

const text = (max: number) => v.pipe(v.string(), v.trim(), v.minLength(1), v.maxLength(max));
const list = <T extends v.GenericSchema>(item: T) => v.pipe(v.array(item), v.maxLength(100));
const Domain = v.pipe(
  text(253),
  v.toLowerCase(),
  v.regex(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/, "Enter a domain such as example.org."),
);
const GroupRole = v.strictObject({
  group: text(200),
  organization: text(63),
  role: v.picklist(["member", "admin"]),
});
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
  creates_users: v.boolean(),
  trust: v.nullable(
    v.pipe(text(60_000), v.regex(/^-----BEGIN CERTIFICATE-----/, "Enter certificates in PEM.")),
  ),
};
const Issuer = v.pipe(
  text(500),
  v.check((given) => {
    if (!URL.canParse(given)) return false;
    const { protocol, search, hash, username } = new URL(given);
    return /^https?:$/.test(protocol) && search + hash + username === "";
  }, "Enter the issuer, a URL such as https://login.example.org."),
);
export const NewProvider = v.strictObject({
  issuer: Issuer,
  ...settings,
  client_secret: v.optional(settings.client_secret),
  scopes: v.optional(settings.scopes, "openid email profile"),
  groups_claim: v.optional(settings.groups_claim, "groups"),
  domains: v.optional(settings.domains, []),
  required_groups: v.optional(settings.required_groups, []),
  tenant: v.optional(settings.tenant, null),
  roles: v.optional(settings.roles, []),
  creates_users: v.optional(settings.creates_users, false),
  trust: v.optional(settings.trust, null),
});
export const ProviderPatch = v.partial(v.strictObject(settings));
export const Provider = v.object({
  id: v.number(),
  name: v.string(),
  issuer: v.string(),
  client_id: v.string(),
  has_secret: v.boolean(),
  scopes: v.string(),
  groups_claim: v.string(),
  domains: v.array(v.string()),
  required_groups: v.array(v.string()),
  tenant: v.nullable(v.string()),
  roles: v.array(v.object(GroupRole.entries)),
  creates_users: v.boolean(),
  trust: v.nullable(v.string()),
  /** To be registered at the provider. */
  redirect_uri: v.string(),
  created_at: v.string(),
});
type Provider = v.InferOutput<typeof Provider>;

/** Each provider has its own: an answer of one is never taken for that of another. */
export const redirectUri = (publicUrl: string, id: number) => `${publicUrl}/api/session/oidc/${id}/callback/`;

export async function listProviders(services: Pick<Services, "db" | "publicUrl">): Promise<Provider[]> {
  const slugs = await slugsById(services.db);
  const rows = await identityProviders.all(services.db, {});
  return rows.map((row) => show(row, slugs, services.publicUrl));
}

/** Throws not_found. */
export async function findProvider(reader: Pick<Reader, "get">, id: number): Promise<IdentityProviderRow> {
  const found = await identityProviders.find(reader, { id });
  if (found === undefined) throw new AppError("not_found", "There is no such provider of identities.");
  return found;
}

export async function showProvider(services: Pick<Services, "db" | "publicUrl">, id: number) {
  return show(await findProvider(services.db, id), await slugsById(services.db), services.publicUrl);
}

/** Where a browser signs out of the provider; undefined if there is no such page, or no answer. */
export async function signOutPage(
  {
    db,
    publicUrl,
    exchange,
  }: Pick<Services, "db" | "publicUrl"> & { exchange: Pick<Exchange, "signOutUrl"> },
  id: number,
): Promise<string | undefined> {
  const provider = await identityProviders.find(db, { id });
  if (provider === undefined) return undefined;
  return exchange.signOutUrl(provider, `${publicUrl}/console/`).catch(() => undefined);
}

/** Asks the provider for its configuration first. Throws provider_unavailable, untrusted_answer or conflict. */
export async function createProvider(
  services: Services,
  { client_secret = "", ...given }: v.InferOutput<typeof NewProvider>,
  actor: Actor,
): Promise<Provider> {
  const { db, system, secretKey, exchange } = services;
  requireOneTenant(given);
  await exchange.discover(given);
  const { client_id: clientId, groups_claim: groupsClaim, required_groups: requiredGroups, ...rest } = given;
  const { creates_users: createsUsers, name, issuer, scopes, domains, tenant, trust } = rest;
  const made = db.write(async (tx) => {
    await requireStaff(tx, actor);
    const values = { name, issuer, scopes, domains, tenant, trust, clientId, groupsClaim, requiredGroups };
    const row = { ...values, createsUsers, createdAt: system.now(), secretSealed: "" };
    const created = await identityProviders.insertReturning(tx, {
      ...row,
      roles: await storedRoles(tx, given.roles),
    });
    if (client_secret !== "") await storeSecret(tx, secretKey, created.id, client_secret);
    await record(tx, {
      ...event(system, actor, name),
      type: "provider.created",
      after: auditOf({ ...created, secretSealed: "" }),
    });
    return created.id;
  });
  return showProvider(services, await made.catch((error: unknown) => nameTaken(error, name)));
}

export async function changeProvider(
  services: Services,
  id: number,
  { client_secret, roles, ...given }: v.InferOutput<typeof ProviderPatch>,
  actor: Actor,
): Promise<Provider> {
  const { db, system, secretKey } = services;
  const columns: readonly (readonly [keyof typeof given, keyof IdentityProviderRow])[] = [
    ["name", "name"],
    ["client_id", "clientId"],
    ["scopes", "scopes"],
    ["groups_claim", "groupsClaim"],
    ["domains", "domains"],
    ["required_groups", "requiredGroups"],
    ["tenant", "tenant"],
    ["creates_users", "createsUsers"],
    ["trust", "trust"],
  ];
  const changes: Partial<IdentityProviderRow> = Object.fromEntries(
    columns.flatMap(([from, to]) => (given[from] === undefined ? [] : [[to, given[from]]])),
  );
  const changed = db.write(async (tx) => {
    await requireStaff(tx, actor);
    const before = await findProvider(tx, id);
    const change = { ...changes, ...(roles === undefined ? {} : { roles: await storedRoles(tx, roles) }) };
    const after = { ...before, ...change };
    requireOneTenant({ ...after, required_groups: after.requiredGroups });
    if (Object.keys(change).length > 0) await identityProviders.update(tx, { id }, change);
    if (client_secret !== undefined) await storeSecret(tx, secretKey, id, client_secret);
    await record(tx, {
      ...event(system, actor, before.name),
      type: "provider.updated",
      before: auditOf(before),
      after: { ...auditOf(after), ...(client_secret === undefined ? {} : { client_secret: "changed" }) },
    });
  });
  await changed.catch((error: unknown) => nameTaken(error, given.name ?? ""));
  return showProvider(services, id);
}

/** Its identities and the sessions that began with it end. Roles that its groups gave stay. */
export async function deleteProvider(
  { db, system }: Pick<Services, "db" | "system">,
  id: number,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    await requireStaff(tx, actor);
    const { name } = await findProvider(tx, id);
    await browserSessions.delete(tx, { providerId: id });
    await refreshTokens.update(tx, { providerId: id, revokedAt: null }, { revokedAt: system.now() });
    await identities.delete(tx, { providerId: id });
    await memberships.update(tx, { providerId: id }, { providerId: null });
    await identityProviders.delete(tx, { id });
    await record(tx, { ...event(system, actor, name), type: "provider.deleted" });
  });
}

/** Issuers that serve everybody: without a tenant, any of their customers could sign in. */
function requireOneTenant(given: {
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

function invalid(field: string, sentence: string): AppError {
  return new AppError("validation_failed", sentence, { errors: { [field]: [sentence] } });
}

async function storeSecret(tx: Transaction, secretKey: Services["secretKey"], id: number, secret: string) {
  const secretSealed = sealSecret(secretKey, secret, providerContext(id));
  await identityProviders.update(tx, { id }, { secretSealed });
}

async function storedRoles(
  tx: Transaction,
  given: readonly v.InferOutput<typeof GroupRole>[],
): Promise<RoleOfGroup[]> {
  const known = new Map((await allOrganizations(tx)).map(({ id, slug }) => [slug, id]));
  return given.map(({ group, organization, role }) => {
    const orgId = known.get(organization);
    if (orgId === undefined) throw invalid("roles", `There is no organization ${organization}.`);
    return { group, orgId, role };
  });
}

async function slugsById(reader: Pick<Reader, "all">): Promise<Map<number, string>> {
  return new Map((await allOrganizations(reader)).map(({ id, slug }) => [id, slug]));
}

function show(row: IdentityProviderRow, slugs: ReadonlyMap<number, string>, publicUrl: string): Provider {
  const { id, name, issuer, scopes, domains, tenant, trust, createdAt } = row;
  return {
    id,
    name,
    issuer,
    scopes,
    domains,
    tenant,
    trust,
    client_id: row.clientId,
    has_secret: row.secretSealed !== "",
    groups_claim: row.groupsClaim,
    required_groups: row.requiredGroups,
    creates_users: row.createsUsers,
    roles: row.roles.flatMap(({ group, orgId, role }) => {
      const organization = slugs.get(orgId);
      return organization === undefined ? [] : [{ group, organization, role }];
    }),
    redirect_uri: redirectUri(publicUrl, id),
    created_at: formatTime(createdAt),
  };
}

/** Without the secret. */
function auditOf(row: IdentityProviderRow) {
  return Object.fromEntries(Object.entries(row).filter(([name]) => name !== "secretSealed"));
}

function event({ now }: Services["system"], actor: Actor, name: string) {
  return { orgId: null, at: now(), actor, subject: `provider/${name}` };
}

function nameTaken(error: unknown, name: string): never {
  if (!(error instanceof NotUnique)) throw error;
  throw new AppError("conflict", `There is already a provider of identities named ${name}.`, {
    cause: error,
  });
}
