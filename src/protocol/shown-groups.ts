// The groups of a node as the API shows it, for lists, the map and its sums.

import { isUsersGroup } from "./users-groups.ts";

type Shown = { groups: readonly string[]; owner_groups?: readonly string[] | undefined };

/** The groups that a node has because of its owner. Owner and provider groups are not shown. */
export function groupsByOwner({ owner_groups }: Pick<Shown, "owner_groups">): string[] {
  return (owner_groups ?? []).filter((group) => !isUsersGroup(group));
}

/** All groups that a node has: those that it was given, and those because of its owner. */
export function shownGroups(node: Shown): string[] {
  return [...new Set([...node.groups, ...groupsByOwner(node)])];
}

/** The one group in which the map and its sums count a node: its first. Null: it is in none. */
export function mapGroup(node: Shown): string | null {
  return shownGroups(node)[0] ?? null;
}
