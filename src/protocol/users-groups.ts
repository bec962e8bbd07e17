// Groups that no administrator fills: a node is in one by its owner or its owner's provider of identities, and one form means
// no nodes at all. Rules, certificates and engines have these forms:
// - `user:id.17`: the nodes of user 17. By id, so that a later user with the same e-mail address inherits nothing.
// - `user:self`: the nodes with the same owner as the node that has the rule.
// - `network:192.168.7.0-24`: no nodes, but a network behind nodes, as the target of a rule.
// - `idp:3.<32 hex>`: the nodes of the users in a group of provider 3. A digest, because a provider may call a group anything.

const ownerForm = /^user:id\.([1-9]\d{0,15})$/;
const providerForm = /^idp:([1-9]\d{0,15})\.[0-9a-f]{32}$/;

export const ownerGroup = (userId: number) => `user:id.${userId}`;

/** The user whose nodes are the group; undefined for all other groups. */
export const userOfGroup = (group: string): number | undefined => idIn(ownerForm, group);

/** The id of the provider whose group this is; undefined for all other groups. */
export const providerOfGroup = (group: string): number | undefined => idIn(providerForm, group);

function idIn(form: RegExp, group: string): number | undefined {
  const [, id] = form.exec(group) ?? [];
  return id === undefined ? undefined : Number(id);
}

/**
 * Stored as a group's name, so that earlier releases on the same database can read the rule. No node is in the group, so
 * for them it permits nothing.
 */
export const selfGroup = "user:self";

/** Stored as a group's name, like `selfGroup`, and for the same reason. */
export const networkGroup = (network: string): string => `network:${network.replace("/", "-")}`;

/** The network behind nodes that a target means; undefined for all groups of nodes. */
export const networkOfGroup = (group: string): string | undefined =>
  /^network:([0-9a-f.:]{2,43})-(\d{1,3})$/.test(group)
    ? group.slice("network:".length).replace("-", "/")
    : undefined;

/** Whether the group has one of these forms: no administrator may put a node into it. */
export const isUsersGroup = (group: string): boolean =>
  group === selfGroup ||
  [userOfGroup, providerOfGroup, networkOfGroup].some((read) => read(group) !== undefined);

/** The group of the owner among a node's groups. */
export function ownerGroupIn(groups: readonly string[]): string | undefined {
  return groups.find((group) => userOfGroup(group) !== undefined);
}

/** `ownerGroups`: those that the policy gives to all nodes of the owner. */
type Owned = { groups: readonly string[]; ownerGroups: readonly string[]; ownerId: number | null };

/** The groups in the node's certificate: those that it was given, those of its owner's nodes, and that of its owner. */
export function certifiedGroups({ groups, ownerGroups, ownerId }: Owned): string[] {
  // Releases that did not reserve the prefix let administrators choose such a name.
  const given = groups.filter((group) => !isUsersGroup(group));
  return ownerId === null ? given : [...new Set([...given, ...ownerGroups, ownerGroup(ownerId)])];
}
