// The nodes of a user are a group: rules, certificates and engines name it `user:id.17`. Ownership alone decides which nodes
// are in it. It is stored by the user's id, so that a later user with the same e-mail address inherits nothing.

const form = /^user:id\.([1-9]\d{0,15})$/;

export const ownerGroup = (userId: number) => `user:id.${userId}`;

/** The user whose nodes are the group; undefined for all other groups. */
export function ownerOf(group: string): number | undefined {
  const [, id] = form.exec(group) ?? [];
  return id === undefined ? undefined : Number(id);
}

/**
 * The peer of a rule that means: the nodes with the same owner as the node that has the rule. The name of a group, so that
 * earlier releases on the same database read the rule; no node is in it, so they permit nothing by it.
 */
export const selfGroup = "user:self";

const providerForm = /^idp:([1-9]\d{0,15})\.[0-9a-f]{32}$/;

/**
 * The provider of identities whose group the group stands for: the nodes of the users who have it there. Its name ends in a
 * digest, because a provider may call a group anything.
 */
export function providerOf(group: string): number | undefined {
  const [, id] = providerForm.exec(group) ?? [];
  return id === undefined ? undefined : Number(id);
}

/** Owners and providers decide who is in the group, so nothing else puts a node into it. */
export const isUsersGroup = (group: string): boolean =>
  group === selfGroup || ownerOf(group) !== undefined || providerOf(group) !== undefined;

/** The group of the owner among a node's groups. */
export function ownerGroupIn(groups: readonly string[]): string | undefined {
  return groups.find((group) => ownerOf(group) !== undefined);
}

/** `ownerGroups`: those that the policy gives to all nodes of the owner. */
type Owned = { groups: readonly string[]; ownerGroups: readonly string[]; ownerId: number | null };

/** The groups in the node's certificate: those that it was given, those of its owner's nodes, and that of its owner. */
export function certifiedGroups({ groups, ownerGroups, ownerId }: Owned): string[] {
  // Releases that did not reserve the prefix let administrators choose such a name.
  const given = groups.filter((group) => !isUsersGroup(group));
  return ownerId === null ? given : [...new Set([...given, ...ownerGroups, ownerGroup(ownerId)])];
}

/** The groups of nodes that a node is in by its owner, as the API shows it: without those of providers. */
export function groupsByOwner({ owner_groups }: { owner_groups?: readonly string[] | undefined }): string[] {
  return (owner_groups ?? []).filter((group) => !isUsersGroup(group));
}

/** The groups of nodes that a node is in, as the API shows it, with those that it has by its owner. */
export function shownGroups(node: {
  groups: readonly string[];
  owner_groups?: readonly string[] | undefined;
}): string[] {
  return [...new Set([...node.groups, ...groupsByOwner(node)])];
}

/**
 * The group of a node where each node counts once, on the map and in its sums: the first of its groups, in the order that
 * the node has them. Null: it is in none.
 */
export function mapGroup(node: Parameters<typeof shownGroups>[0]): string | null {
  return shownGroups(node)[0] ?? null;
}
