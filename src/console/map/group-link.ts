// Groups as links to their nodes.

import { pathOf } from "../frame/router.ts";
import { groupKey, groupWord, kindsOf, onlineIn, type Group } from "./groups.ts";

/** The list of the nodes of a group. */
export const groupLink = (slug: string, name: Group["name"]): string =>
  `${pathOf(slug, "nodes")}?group=${encodeURIComponent(groupKey(name))}`;

/** Groups as `Fleet` draws them: a square a node. `cut`: how many paths have no other way than a relay that is away. */
export const fleetOf = (slug: string, groups: readonly Group[], cut: number) =>
  groups.map((group) => ({
    name: groupWord(group.name),
    href: groupLink(slug, group.name),
    online: onlineIn(group),
    ...kindsOf(group, cut),
  }));
