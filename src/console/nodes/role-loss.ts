// What a network loses without nodes with a role: lighthouses, relays, routers. Pure.

import type { Node } from "../../protocol/node.ts";

export type Roles = Pick<Node, "id" | "name" | "state" | "online" | "is_lighthouse" | "is_relay" | "subnets">;

/** A role by the field of a node, its word, and what no longer works without any node of it. */
const roles = [
  ["is_lighthouse", "lighthouse", "nodes that are not connected yet do not find each other"],
  ["is_relay", "relay", "nodes whose networks let no direct path through do not reach each other"],
] as const;

const listed = (names: readonly string[]) => names.join(", ");

/** Sentences about what ends with the given nodes. `all`: those that the page knows, with them. */
export function lossWith(ending: readonly Pick<Roles, "id">[], all: readonly Roles[]): string[] {
  const ids = new Set(ending.map(({ id }) => id));
  const active = all.filter(({ state }) => state === "active");
  const staying = active.filter(({ id }) => !ids.has(id));
  const lost = roles.flatMap(([key, word, effect]) => {
    const names = active.filter((each) => ids.has(each.id) && each[key]).map(({ name }) => name);
    if (names.length === 0) return [];
    const others = staying.filter((each) => each[key] && each.online);
    const is = `${listed(names)} ${names.length === 1 ? `is a ${word}` : `are ${word}s`}`;
    return others.length === 0
      ? [`${is}, and no other ${word} is online: ${effect}.`]
      : [`${is}. Other ${word}s that are online: ${listed(others.map(({ name }) => name))}.`];
  });
  const networks = active
    .filter(({ id, subnets }) => ids.has(id) && subnets.length > 0)
    .map(({ name, subnets }) => `Networks behind ${name} are not reached any more: ${listed(subnets)}.`);
  return [...lost, ...networks];
}
