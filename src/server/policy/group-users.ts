// Which groups the nodes of a user are in by the policy: groups of their provider of identities that it names, and groups of
// nodes in which it names the user or such a group.

import { isUsersGroup, ownerGroup } from "../../protocol/users-groups.ts";
import { AppError } from "../../base/errors.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, text } from "../store/table.ts";
import { identityProviders, groupUsers, providerGroups } from "../store/tables/providers.ts";
import { oneSpelling } from "../../base/text.ts";
import { sha256Hex } from "../../base/sha256.ts";

/**
 * The policy puts the nodes of these users into the group `name`. `people` (the column's name, also in stored rollbacks) is
 * the group that stands for the users: `user:id.17` for one, `idp:3.` and a digest for those of a provider's group.
 */
export type GroupSource = { name: string; people: string };
/** `name`: at the provider. */
export type ProviderGroup = { people: string; providerId: number; name: string };
/** The members of the organization who are in each group of a provider, by the `people` of the group. Users by their ids. */
export type ProviderUsers = ReadonlyMap<string, ReadonlySet<number>>;

/** Maximum groups of providers that an organization's policy names: a certificate has all that the owner of its node has. */
const maxProviderGroups = 64;

/** Throws validation_failed. `count`: those that the policy would name. */
export function requireFewProviderGroups(count: number): void {
  if (count <= maxProviderGroups) return;
  throw new AppError(
    "validation_failed",
    `The policy would name ${count} groups of providers of identities; the maximum is ${maxProviderGroups}.`,
    { hint: "Put several of them into one group at the provider, and name that one." },
  );
}

/** Stored by provider and text: a group of the same name at another provider is another one. */
export function providerGroup(providerId: number, name: string): ProviderGroup {
  const digest = sha256Hex(name).slice(0, 32);
  return { people: `idp:${providerId}.${digest}`, providerId, name };
}

const sourcePick = groupUsers.pick("name", "people");

export function readGroupUsers(reader: Reader, orgId: number): Promise<GroupSource[]> {
  const sql = `SELECT ${sourcePick.select()} FROM group_people WHERE org_id = $1 ORDER BY name, people`;
  return queryAll(reader, sourcePick, sql, [orgId]);
}

const providerGroupPick = providerGroups.pick("people", "providerId", "name");

export function readProviderGroups(reader: Reader, orgId: number): Promise<ProviderGroup[]> {
  const sql = `SELECT ${providerGroupPick.select()} FROM provider_groups WHERE org_id = $1 ORDER BY people`;
  return queryAll(reader, providerGroupPick, sql, [orgId]);
}

const userId = computed({ userId: integer() });
/**
 * $1: the organization, $2: the provider. $3, $4: the name as JSON text, whose quotes make it match whole entries of the list only:
 * as it is spelled, which an earlier version may have stored, and in the one spelling that is stored now. `more`: a further condition.
 */
const providerUsersSql = (table: string, more: string) =>
  `SELECT i.user_id FROM ${table} i JOIN memberships m ON m.user_id = i.user_id AND m.org_id = $1
   WHERE i.provider_id = $2 AND replace(replace(i.groups, $3, ''), $4, '') <> i.groups${more}`;

/** The users with these groups at their last sign-ins. `ownerId`: looks for this user only. */
export async function readProviderUsers(
  reader: Reader,
  orgId: number,
  groups: readonly ProviderGroup[],
  ownerId?: number,
): Promise<ProviderUsers> {
  const found = new Map<string, ReadonlySet<number>>();
  const more = ownerId === undefined ? "" : " AND i.user_id = $5";
  const tables = ["identities", "organization_identities"];
  const sql = tables.map((table) => providerUsersSql(table, more)).join(" UNION ");
  for (const { people, providerId, name } of groups) {
    const names = [name, oneSpelling(name)].map((each) => JSON.stringify(each));
    const params = [orgId, providerId, ...names, ...(ownerId === undefined ? [] : [ownerId])];
    found.set(people, new Set((await queryAll(reader, userId, sql, params)).map((row) => row.userId)));
  }
  return found;
}

/** The groups that nodes have by their owner. `ownerId`: for this user only. */
export async function readOwnerGroups(
  reader: Reader,
  orgId: number,
  ownerId?: number,
): Promise<(ownerId: number) => string[]> {
  const sources = await readGroupUsers(reader, orgId);
  const groups = await readProviderGroups(reader, orgId);
  return makeOwnerGroups(sources, await readProviderUsers(reader, orgId, groups, ownerId));
}

/** The groups that a new node of the user, or of the organization (null), has by its owner. */
export async function ownerGroupsOf(
  reader: Reader,
  orgId: number,
  ownerId: number | null,
): Promise<string[]> {
  return ownerId === null ? [] : (await readOwnerGroups(reader, orgId, ownerId))(ownerId);
}

/** Tells of each user which groups the user's nodes have by their owner, sorted. */
export function makeOwnerGroups(
  sources: readonly GroupSource[],
  providerUsers: ProviderUsers,
): (ownerId: number) => string[] {
  const byPeople = Map.groupBy(sources, ({ people }) => people);
  return (ownerId) => {
    /** Those that stand for groups of providers. */
    const ofProviders = [...providerUsers].flatMap(([people, users]) => (users.has(ownerId) ? [people] : []));
    const names = [ownerGroup(ownerId), ...ofProviders]
      .flatMap((people) => byPeople.get(people) ?? [])
      .map(({ name }) => name)
      // Skips reserved names, which groups of earlier versions may have: they would make nodes count as another
      // user's.
      .filter((name) => !isUsersGroup(name));
    return [...new Set([...ofProviders, ...names])].sort();
  };
}

const namedProvider = computed({ id: integer(), name: text() });
export type NamedProvider = ReturnType<typeof namedProvider.parse>;

/** The providers by which members of the organization may sign in: its own, whose name is in `label`, and those of the installation. */
export function readProviders(reader: Reader, orgId: number): Promise<NamedProvider[]> {
  const sql = `SELECT id, coalesce(label, name) AS name FROM identity_providers
    WHERE org_id = $1 OR org_id IS NULL ORDER BY org_id IS NULL, id`;
  return queryAll(reader, namedProvider, sql, [orgId]);
}

const nodeGroupsPick = identityProviders.pick("nodeGroups");

/** Groups of nodes about which providers alone decide for the nodes of this user. */
export async function groupsThatProvidersDecide(
  reader: Reader,
  orgId: number,
  userId: number,
): Promise<ReadonlySet<string>> {
  const sql = `SELECT ${nodeGroupsPick.select()} FROM identity_providers WHERE (org_id IS NULL OR org_id = $1) AND id IN (
    SELECT provider_id FROM identities WHERE user_id = $2
    UNION ALL SELECT provider_id FROM organization_identities WHERE user_id = $2)`;
  const found = await queryAll(reader, nodeGroupsPick, sql, [orgId, userId]);
  const own = found.flatMap(({ nodeGroups }) => nodeGroups).filter((each) => each.orgId === orgId);
  return new Set(own.map(({ nodeGroup }) => nodeGroup));
}
