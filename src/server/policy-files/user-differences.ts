// Computes the changes that make users, and groups of providers, members of the groups that the policy file says: a part of
// differences.ts. `people`, as the database calls it, is the group that stands for one user (`user:id.7`) or for one group of a
// provider. Pure. At each `yield` other requests may run (http/heavy-work.ts).

import { userOfGroup, providerOfGroup } from "../../protocol/users-groups.ts";
import {
  makeOwnerGroups,
  type ProviderUsers,
  type GroupSource,
  type ProviderGroup,
} from "../policy/group-users.ts";
import type { PolicyNode } from "../policy/policy-nodes.ts";
import type { Desired } from "../policy/resolve.ts";

/** The organization as it is. */
export type PolicyUsers = {
  nodes: readonly PolicyNode[];
  people: readonly GroupSource[];
  providerGroups: readonly ProviderGroup[];
  /** What policy files call groups of providers: `idp:Engineering`. By `people`. */
  words: ReadonlyMap<string, string>;
  /** The users in each group of a provider, also of groups that only the file names so far. */
  providerUsers: ProviderUsers;
  /** Members who accepted their invitation, by e-mail address. */
  users: ReadonlyMap<string, number>;
};

/** Whether what the file does not name is removed. If not, a sentence about it is added to `kept`. */
export type Pruning = { readonly prune: boolean; readonly kept: string[] };

export type Delta = { add: string[]; remove: string[] };
/** A change of the groups that a node has by its owner. */
type OwnedChange = { id: number; name: string; groups: Delta };

export type UserChanges = {
  /** Users, and groups of providers, whose nodes join or leave a group. */
  people: { add: GroupSource[]; remove: GroupSource[] };
  /** Groups of providers that the policy names from now on, or no longer. */
  providerGroups: { add: ProviderGroup[]; remove: ProviderGroup[] };
  /** The effect of both on existing nodes. */
  owned: OwnedChange[];
};

/** Only files put users into groups. So with `prune`, a group that the file does not name loses its users. */
export function userChanges(
  current: PolicyUsers,
  { groups }: Desired,
  { prune, kept }: Pruning,
): UserChanges["people"] {
  const result: UserChanges["people"] = { add: [], remove: [] };
  if (groups === undefined) return result;
  const byName = new Map(groups.map((group) => [group.name, group]));
  const memberships = new Set(current.people.map(({ name, people }) => `${name} ${people}`));
  for (const { name, people: desired } of groups)
    for (const people of desired ?? [])
      if (!memberships.has(`${name} ${people}`)) result.add.push({ name, people });
  for (const membership of current.people) {
    const { name, people } = membership;
    const group = byName.get(name);
    // Undefined: the file names the group, but not its members.
    const stays = group !== undefined && (group.people === undefined || group.people.has(people));
    if (stays) continue;
    if (prune) result.remove.push(membership);
    else if (group !== undefined)
      kept.push(
        `${describeUsers(current, people)} is in the group ${name}, not in the file. It stays without --prune.`,
      );
  }
  return result;
}

/** As in a file: `user:ada@example.org`, `idp:Engineering`. */
export function describeUsers(
  { users, words }: Pick<PolicyUsers, "users" | "words">,
  people: string,
): string {
  if (providerOfGroup(people) !== undefined)
    return words.get(people) ?? `idp:#${people.slice("idp:".length)}`;
  const email = [...users].find(([, id]) => id === userOfGroup(people))?.[0];
  return `user:${email ?? `#${userOfGroup(people)}`}`;
}

/** The memberships after the changes. */
export function changedGroupUsers(
  current: readonly GroupSource[],
  { add, remove }: UserChanges["people"],
): readonly GroupSource[] {
  const removed = new Set(remove);
  return [...current.filter((each) => !removed.has(each)), ...add];
}

/** A group of a provider is stored while a rule, a test or a group of nodes names it. `named`: by rules and tests. */
export function* providerChanges(
  { providerGroups: current, people }: PolicyUsers,
  desired: Desired,
  changes: UserChanges["people"],
  named: readonly string[],
): Generator<unknown, UserChanges["providerGroups"]> {
  const known = new Set(current.map((each) => each.people));
  const add = desired.providerGroups.filter((each) => !known.has(each.people));
  yield;
  const used = new Set([...named, ...changedGroupUsers(people, changes).map((each) => each.people)]);
  return { add, remove: current.filter((each) => !used.has(each.people)) };
}

/** What both changes do to the groups of nodes by their owners. */
export function* ownedChanges(
  { people, nodes, providerUsers, providerGroups: current }: PolicyUsers,
  changes: UserChanges["people"],
  ofProviders: UserChanges["providerGroups"],
): Generator<unknown, OwnedChange[]> {
  const lists = [...Object.values(changes), ...Object.values(ofProviders)];
  if (lists.every((list) => list.length === 0)) return [];
  const removed = new Set(ofProviders.remove);
  const groupsAfter = [...current.filter((each) => !removed.has(each)), ...ofProviders.add];
  const usersByGroup = new Map(
    groupsAfter.map((each) => [each.people, providerUsers.get(each.people) ?? new Set<number>()]),
  );
  const groupsOf = makeOwnerGroups(changedGroupUsers(people, changes), usersByGroup);
  const found: OwnedChange[] = [];
  for (const [index, { id, name, ownerId, ownerGroups }] of nodes.entries()) {
    if (index % 100 === 0) yield;
    if (ownerId === null) continue;
    const after = groupsOf(ownerId);
    const add = after.filter((each) => !ownerGroups.includes(each));
    const remove = ownerGroups.filter((each) => !after.includes(each));
    if (add.length + remove.length > 0) found.push({ id, name, groups: { add, remove } });
  }
  return found;
}
