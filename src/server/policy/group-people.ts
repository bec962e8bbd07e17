// Which groups the nodes of a user are in because the policy names the user as a member. A user's nodes have a group of their
// own (owner-group.ts): the policy puts that one into others.

import { ownerGroup, ownerOf, selfGroup } from "../../owner-group.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { groupPeople } from "../store/tables/group-people.ts";

/** `people`: the group of a user's nodes. */
export type GroupPerson = { name: string; people: string };

const pick = groupPeople.pick("name", "people");

export function readGroupPeople(reader: Pick<Reader, "all">, orgId: number): Promise<GroupPerson[]> {
  const sql = `SELECT ${pick.select()} FROM group_people WHERE org_id = $1 ORDER BY name, people`;
  return queryAll(reader, pick, sql, [orgId]);
}

/** The groups that a new node of the user, or of the organization (null), has by its owner. */
export async function ownerGroupsOf(
  reader: Pick<Reader, "all">,
  orgId: number,
  ownerId: number | null,
): Promise<string[]> {
  return ownerId === null ? [] : makeOwnerGroups(await readGroupPeople(reader, orgId))(ownerId);
}

/** The groups of a user's nodes, sorted. */
export function makeOwnerGroups(people: readonly GroupPerson[]): (ownerId: number) => string[] {
  const byPeople = Map.groupBy(people, (each) => each.people);
  return (ownerId) =>
    (byPeople.get(ownerGroup(ownerId)) ?? [])
      .map(({ name }) => name)
      // Groups of earlier versions may have such a name, which would make them the nodes of another user.
      .filter((name) => name !== selfGroup && ownerOf(name) === undefined)
      .sort();
}
