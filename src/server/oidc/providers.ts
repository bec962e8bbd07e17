// Providers of identities: of the installation, which staff manage, and of an organization, which its administrators manage.
// The secret is never shown again.

import { given } from "../../base/given.ts";
import type { NewProvider, Provider, ProviderPatch } from "../../api/providers/providers.ts";
import { providerSignInApi } from "../../api/providers/sign-in.ts";
import { apiPath } from "../../api/endpoint.ts";
import { columnOf } from "../../protocol/settings.ts";
import { AppError, invalidField } from "../../base/errors.ts";
import { formatTime } from "../../base/quantities.ts";
import { sealSecret } from "../../pki/secrets.ts";
import { record, type Actor } from "../audit/record.ts";
import { regroupOwned } from "../nodes/owner-groups.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole, requireStaff } from "../require-role.ts";
import { endSessions } from "../users/sessions/sessions.ts";
import { allOrganizations } from "../organizations/organizations.ts";
import { ifNotUnique, type Reader, type Transaction } from "../store/database.ts";
import {
  groupUsers,
  identities,
  identityProviders,
  nameOfProvider,
  organizationIdentities,
  providerGrants,
  providerGroups,
  type IdentityProviderRow,
} from "../store/tables/providers.ts";
import { memberships, verifiedDomains } from "../store/tables/organizations.ts";
import { providerContext, type Exchange } from "./provider-requests.ts";
import { endSessionsBy } from "./provider-sessions.ts";
import { throwWithReason } from "./failure-reasons.ts";

type Services = Pick<ServerOptions, "db" | "system" | "secretKey" | "publicUrl"> & {
  exchange: Pick<Exchange, "discover">;
};
type Shown = Pick<Services, "db" | "publicUrl">;
/** The providers of one organization, or of the installation. Every query names its scope. */
export type Scope = { orgId: number | null };
export const installation: Scope = { orgId: null };

type Mappings = Pick<ProviderPatch, "roles" | "node_groups">;
type StoredMappings = Partial<Pick<IdentityProviderRow, "roles" | "nodeGroups">>;

const maxOfOrganization = 10;

/**
 * The address to which the provider sends browsers back. Each provider has its own: an answer of one is never taken for that of
 * another.
 */
export const redirectUri = (publicUrl: string, id: number) =>
  publicUrl + apiPath(providerSignInApi.callback, { id });

export async function listProviders({ db, publicUrl }: Shown, { orgId }: Scope): Promise<Provider[]> {
  const slugs = await slugsById(db);
  return (await identityProviders.all(db, { orgId })).map((row) => providerOf(row, slugs, publicUrl));
}

/** Throws not_found. Without a scope, any provider: for the sign-in itself. */
export async function findProvider(
  reader: Reader,
  where: { id: number } & Partial<Scope>,
): Promise<IdentityProviderRow> {
  const found = await identityProviders.find(reader, where);
  if (found === undefined) throw new AppError("not_found", "There is no such provider of identities.");
  return found;
}

export async function showProvider({ db, publicUrl }: Shown, { orgId }: Scope, id: number) {
  return providerOf(await findProvider(db, { id, orgId }), await slugsById(db), publicUrl);
}

/** Where a browser signs out of the provider; undefined if there is no such page, or no answer. */
export async function signOutPage(
  { db, publicUrl, exchange }: Shown & { exchange: Pick<Exchange, "signOutUrl"> },
  id: number,
): Promise<string | undefined> {
  const provider = await identityProviders.find(db, { id });
  if (provider === undefined) return undefined;
  return exchange.signOutUrl(provider, `${publicUrl}/console/`).catch(() => undefined);
}

/** Asks the provider for its configuration first. Throws provider_unavailable, untrusted_answer or conflict. */
export async function createProvider(
  services: Services,
  { orgId }: Scope,
  { client_secret = "", ...settings }: NewProvider,
  actor: Actor,
): Promise<Provider> {
  const { db, system, secretKey, exchange } = services;
  const { name, issuer, scopes, domains, tenant, trust } = settings;
  requireOneTenant(settings);
  await exchange.discover(settings).catch(throwWithReason);
  const createdId = db.write(async (tx) => {
    await requireRight(tx, { orgId }, actor);
    await requireOwnDomains(tx, { orgId }, domains);
    if (orgId !== null && (await identityProviders.all(tx, { orgId })).length >= maxOfOrganization)
      throw new AppError("conflict", `An organization has at most ${maxOfOrganization} providers.`);
    const created = await identityProviders.insertReturning(tx, {
      orgId,
      issuer,
      scopes,
      domains,
      tenant,
      trust,
      clientId: settings.client_id,
      groupsClaim: settings.groups_claim,
      requiredGroups: settings.required_groups,
      createsUsers: settings.creates_users,
      createdAt: system.now(),
      // Sealed for the id of the row, so it is stored below.
      secretSealed: "",
      roles: [],
      ...storedName({ orgId }, name),
      ...(await storedMappings(tx, { orgId }, settings)),
    });
    if (client_secret !== "") await storeSecret(tx, secretKey, created.id, client_secret);
    await record(tx, {
      ...providerEvent(system, { orgId }, actor, name),
      type: "provider.created",
      after: auditOf({ ...created, secretSealed: "" }),
    });
    return created.id;
  });
  return showProvider(services, { orgId }, await createdId.catch(ifNotUnique(nameTaken(name))));
}

export async function changeProvider(
  services: Services,
  { orgId }: Scope,
  id: number,
  patch: ProviderPatch,
  actor: Actor,
): Promise<Provider> {
  const { db, system, secretKey } = services;
  // These are stored in another form, or elsewhere; all others have a column of their own.
  const { client_secret, name, roles: _roles, node_groups: _nodeGroups, ...plain } = patch;
  const changes: Partial<IdentityProviderRow> = {
    ...Object.fromEntries(Object.entries(plain).map(([field, value]) => [columnOf(field), value])),
    ...(name === undefined ? {} : storedName({ orgId }, name)),
  };
  const changed = db.write(async (tx) => {
    await requireRight(tx, { orgId }, actor);
    await requireOwnDomains(tx, { orgId }, patch.domains ?? []);
    const before = await findProvider(tx, { id, orgId });
    const change = { ...changes, ...(await storedMappings(tx, { orgId }, patch)) };
    const after = { ...before, ...change };
    requireOneTenant({ ...after, required_groups: after.requiredGroups });
    if (Object.keys(change).length > 0) await identityProviders.update(tx, { id, orgId }, change);
    if (client_secret !== undefined) await storeSecret(tx, secretKey, id, client_secret);
    await record(tx, {
      ...providerEvent(system, { orgId }, actor, nameOfProvider(before)),
      type: "provider.updated",
      before: auditOf(before),
      after: { ...auditOf(after), ...(client_secret === undefined ? {} : { client_secret: "changed" }) },
    });
  });
  await changed.catch(ifNotUnique(nameTaken(name ?? "")));
  return showProvider(services, { orgId }, id);
}

/**
 * Deletes a provider. Its identities and the sessions that began with it end. Roles that its groups gave stay; users of an
 * organization's provider cannot sign in any more.
 */
export async function deleteProvider(
  { db, system }: Pick<Services, "db" | "system">,
  { orgId }: Scope,
  id: number,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    await requireRight(tx, { orgId }, actor);
    const provider = await findProvider(tx, { id, orgId });
    await endSessionsBy(tx, { providerId: id }, system.now());
    // These users sign in by this provider alone, so all their sessions end.
    for (const { userId } of await organizationIdentities.all(tx, { providerId: id }))
      await endSessions(tx, userId, system.now());
    await organizationIdentities.delete(tx, { providerId: id });
    await identities.delete(tx, { providerId: id });
    await providerGrants.delete(tx, { providerId: id });
    await memberships.update(tx, { providerId: id }, { providerId: null });
    await endProviderGroups(tx, id, system.now());
    await identityProviders.delete(tx, { id, orgId });
    const deleted = providerEvent(system, { orgId }, actor, nameOfProvider(provider));
    await record(tx, { ...deleted, type: "provider.deleted" });
  });
}

/** Rules that name the provider's groups stay, without effect, as they do when a user leaves. */
async function endProviderGroups(tx: Transaction, providerId: number, now: number): Promise<void> {
  const named = await providerGroups.all(tx, { providerId });
  for (const { orgId, people } of named) await groupUsers.delete(tx, { orgId, people });
  await providerGroups.delete(tx, { providerId });
  // Not in deleted organizations, whose nodes are revoked.
  for (const { id: orgId } of await allOrganizations(tx))
    if (named.some((each) => each.orgId === orgId)) await regroupOwned(tx, orgId, now);
}

function requireRight(tx: Transaction, { orgId }: Scope, actor: Actor): Promise<void> {
  return orgId === null ? requireStaff(tx, actor) : requireRole(tx, orgId, actor);
}

/**
 * Each organization has its own names of providers: a conflict must not reveal another organization's. The column `name` is unique
 * over all, so it holds the id too, and `label` is what is shown.
 */
function storedName({ orgId }: Scope, name: string): Pick<IdentityProviderRow, "name" | "label"> {
  return orgId === null ? { name, label: null } : { name: `organization ${orgId}/${name}`, label: name };
}

/** The addresses of an organization's provider count only in domains that the organization has verified. */
async function requireOwnDomains(tx: Transaction, { orgId }: Scope, domains: readonly string[]) {
  if (orgId === null) return;
  const own = (await verifiedDomains.all(tx, { orgId })).filter(({ verifiedAt }) => verifiedAt !== null);
  for (const domain of domains) {
    if (!own.some((each) => each.domain === domain))
      throw invalidField("domains", `The organization has not verified the domain ${domain}.`);
  }
}

async function storeSecret(tx: Transaction, secretKey: Services["secretKey"], id: number, secret: string) {
  const secretSealed = sealSecret(secretKey, secret, providerContext(id));
  await identityProviders.update(tx, { id }, { secretSealed });
}

/** The mappings that are given, with the organization's id in place of its slug. Throws validation_failed. */
async function storedMappings(
  tx: Transaction,
  scope: Scope,
  { roles, node_groups }: Mappings,
): Promise<StoredMappings> {
  const known = new Map((await allOrganizations(tx)).map(({ id, slug }) => [slug, id]));
  const idOf = (organization: string, field: string) => {
    const orgId = known.get(organization);
    // An organization's provider may name its own organization alone, and must not learn which others there are.
    if (orgId === undefined || orgId !== (scope.orgId ?? orgId))
      throw invalidField(field, `There is no organization ${organization}.`);
    return orgId;
  };
  return {
    ...(roles === undefined
      ? {}
      : {
          roles: roles.map(({ group, organization, role }) => ({
            group,
            role,
            orgId: idOf(organization, "roles"),
          })),
        }),
    ...(node_groups === undefined
      ? {}
      : {
          nodeGroups: node_groups.map(({ group, organization, node_group }) => ({
            group,
            nodeGroup: node_group,
            orgId: idOf(organization, "node_groups"),
          })),
        }),
  };
}

async function slugsById(reader: Reader): Promise<Map<number, string>> {
  return new Map((await allOrganizations(reader)).map(({ id, slug }) => [id, slug]));
}

/** `slugs`: of all organizations that are not deleted, by id. */
function providerOf(
  row: IdentityProviderRow,
  slugs: ReadonlyMap<number, string>,
  publicUrl: string,
): Provider {
  const { id, issuer, scopes, domains, tenant, trust, createdAt, orgId } = row;
  const own = orgId === null ? undefined : slugs.get(orgId);
  return {
    id,
    name: nameOfProvider(row),
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
    roles: row.roles.flatMap(({ group, orgId: roleOrg, role }) => {
      const organization = slugs.get(roleOrg);
      return organization === undefined ? [] : [{ group, organization, role }];
    }),
    node_groups: row.nodeGroups.flatMap(({ group, orgId: groupOrg, nodeGroup }) => {
      const organization = slugs.get(groupOrg);
      return organization === undefined ? [] : [{ group, organization, node_group: nodeGroup }];
    }),
    redirect_uri: redirectUri(publicUrl, id),
    created_at: formatTime(createdAt),
    leaving: leavingOf(row.proof),
    ...given({ organization: own }),
  };
}

/** How often the provider is asked whether its users left, by the proof that it gives. Null: no sign-in has shown it yet. */
function leavingOf(proof: IdentityProviderRow["proof"]): Provider["leaving"] {
  if (proof === null) return null;
  return proof === "refresh" ? "hourly" : "daily";
}

/** The columns for events, without the secret. */
function auditOf(row: IdentityProviderRow) {
  return Object.fromEntries(Object.entries(row).filter(([name]) => name !== "secretSealed"));
}

function providerEvent({ now }: Services["system"], { orgId }: Scope, actor: Actor, name: string) {
  return { orgId, at: now(), actor, subject: `provider/${name}` };
}

const nameTaken = (name: string) => (cause: unknown) =>
  new AppError("conflict", `There is already a provider of identities named ${name}.`, { cause });

/** Refuses settings of an issuer that serves many tenants by which a user of any of them could sign in. Throws validation_failed. */
function requireOneTenant(settings: {
  issuer: string;
  tenant: string | null;
  required_groups: readonly string[];
}) {
  const { hostname, pathname } = new URL(settings.issuer);
  if (/^\/(common|organizations|consumers)(\/|$)/.test(pathname))
    throw invalidField("issuer", "This issuer stands for all tenants. Enter that of your own tenant.");
  if (hostname === "accounts.google.com" && settings.tenant?.startsWith("hd=") !== true)
    throw invalidField(
      "tenant",
      "Everybody can have an identity there. Enter hd=DOMAIN of your organization.",
    );
  const isOpen = settings.tenant === null && settings.required_groups.length === 0;
  if (hostname === "gitlab.com" && isOpen)
    throw invalidField("required_groups", "Everybody can have an identity there. Enter a group of yours.");
}
