// The nodes of a user are a group: rules, certificates and engines name it `user:id.17`. Ownership alone decides which nodes
// are in it. It is stored by the user's id, so that a later user with the same e-mail address inherits nothing.

const form = /^user:id\.([1-9]\d{0,15})$/;

export const ownerGroup = (userId: number) => `user:id.${userId}`;

/** The user whose nodes are the group; undefined for all other groups. */
export function ownerOf(group: string): number | undefined {
  const [, id] = form.exec(group) ?? [];
  return id === undefined ? undefined : Number(id);
}

type Owned = { groups: readonly string[]; ownerId: number | null };

/** The groups in the node's certificate: those that it was given, and that of its owner. */
export function certifiedGroups({ groups, ownerId }: Owned): string[] {
  // Releases that did not reserve the prefix let administrators choose such a name.
  const given = groups.filter((group) => ownerOf(group) === undefined);
  return ownerId === null ? given : [...given, ownerGroup(ownerId)];
}
