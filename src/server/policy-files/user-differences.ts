// The changes that make the membership of users, and of providers' groups, match the policy file. Pure.

import { userOfGroup, providerOfGroup } from "../../protocol/users-groups.ts";
import {
  makeOwnerGroups,
  type Carriers,
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
  /** The words of files for these, `idp:Engineering`. */
  words: ReadonlyMap<string, string>;
  /** For the groups of providers that there are, and those that the file names. */
  carriers: Carriers;
  /** Members who accepted their invitation, by e-mail address. */
  users: ReadonlyMap<string, number>;
};

export type Delta = { add: string[]; remove: string[] };
/** The groups that a node has by its owner. */
type OwnedChange = { id: number; name: string; groups: Delta };

export type UserChanges = {
  /** Users, and groups of providers, whose nodes join or leave a group. */
  people: { add: GroupSource[]; remove: GroupSource[] };
  /** Groups of providers that the policy names from now on, or no longer. */
  providerGroups: { add: ProviderGroup[]; remove: ProviderGroup[] };
  /** The effect of both on existing nodes. */
  owned: OwnedChange[];
};

/** Users are in a group by files alone. So a group that the file does not name loses them. */
export function userChanges(
  current: PolicyUsers,
  { groups }: Desired,
  prune: boolean,
  kept: string[],
): UserChanges["people"] {
  const result: UserChanges["people"] = { add: [], remove: [] };
  if (groups === undefined) return result;
  const byName = new Map(groups.map((group) => [group.name, group]));
  const present = new Set(current.people.map(({ name, people }) => `${name} ${people}`));
  for (const { name, people: wanted } of groups)
    for (const people of wanted ?? [])
      if (!present.has(`${name} ${people}`)) result.add.push({ name, people });
  for (const each of current.people) {
    const { name, people } = each;
    const group = byName.get(name);
    const isLeft = group !== undefined && (group.people === undefined || group.people.has(people));
    if (isLeft) continue;
    if (prune) result.remove.push(each);
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

export function changedGroupUsers(
  present: readonly GroupSource[],
  { add, remove }: UserChanges["people"],
): readonly GroupSource[] {
  const removed = new Set(remove);
  return [...present.filter((each) => !removed.has(each)), ...add];
}

/** A group of a provider is stored while a rule, a test or a group of nodes names it. `named`: by rules and tests. */
export function* providerChanges(
  { providerGroups: present, people }: PolicyUsers,
  desired: Desired,
  changes: UserChanges["people"],
  named: readonly string[],
): Generator<unknown, UserChanges["providerGroups"]> {
  const known = new Set(present.map((each) => each.people));
  const add = desired.providerGroups.filter((each) => !known.has(each.people));
  yield;
  const used = new Set([...named, ...changedGroupUsers(people, changes).map((each) => each.people)]);
  return { add, remove: present.filter((each) => !used.has(each.people)) };
}

export function* ownedChanges(
  { people, nodes, carriers, providerGroups: present }: PolicyUsers,
  changes: UserChanges["people"],
  ofProviders: UserChanges["providerGroups"],
): Generator<unknown, OwnedChange[]> {
  const lists = [...Object.values(changes), ...Object.values(ofProviders)];
  if (lists.every((list) => list.length === 0)) return [];
  const removed = new Set(ofProviders.remove);
  const kept = [...present.filter((each) => !removed.has(each)), ...ofProviders.add];
  const stored = new Map(kept.map((each) => [each.people, carriers.get(each.people) ?? new Set<number>()]));
  const groupsOf = makeOwnerGroups(changedGroupUsers(people, changes), stored);
  const found: OwnedChange[] = [];
  for (const [at, { id, name, ownerId, ownerGroups }] of nodes.entries()) {
    if (at % 100 === 0) yield;
    if (ownerId === null) continue;
    const after = groupsOf(ownerId);
    const add = after.filter((each) => !ownerGroups.includes(each));
    const remove = ownerGroups.filter((each) => !after.includes(each));
    if (add.length + remove.length > 0) found.push({ id, name, groups: { add, remove } });
  }
  return found;
}
