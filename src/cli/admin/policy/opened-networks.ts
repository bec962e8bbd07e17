// The networks behind nodes that a firewall rule opens, for `agent admin rule create` and `update`: a rule that lets packets
// pass to a router also lets them pass to the networks behind it.

import type { ItemOf } from "../../../api/endpoint.ts";
import { nodesApi } from "../../../api/nodes.ts";
import type { rulesApi } from "../../../api/rules.ts";
import { routersOf, type Router } from "../../../protocol/networks-behind.ts";
import { certifiedGroups, networkOfGroup, selfGroup } from "../../../protocol/users-groups.ts";
import type { Api } from "../api.ts";

type Rule = ItemOf<typeof rulesApi.list>;
type Side = Rule["peer"];
type Node = ItemOf<typeof nodesApi.list>;
/** The part of a rule that decides what it opens. */
export type Opening = Pick<Rule, "direction" | "peer" | "target">;

/** The side of a rule that receives packets by it. */
const reachedSide = ({ direction, peer, target }: Opening): Side => (direction === "inbound" ? target : peer);

const groupOf = ({ group }: Side): string | undefined => (typeof group === "string" ? group : undefined);

/** The network that a rule opens without the nodes that route it; undefined: the rule opens nodes. */
const networkAlone = (rule: Opening): string | undefined => networkOfGroup(groupOf(reachedSide(rule)) ?? "");

/** A router, and those of its networks that a rule opens. */
export type Opened = Pick<Router, "name" | "subnets">;

/** The routers that a rule lets packets pass to. None if the caller may not list nodes. */
export async function openedNetworks(api: Api, slug: string, rule: Opening): Promise<readonly Opened[]> {
  const side = reachedSide(rule);
  if ("cidr" in side) return [];
  const nodes = await api.all(nodesApi.list, { slug }).catch(() => []);
  const network = networkAlone(rule);
  if (network !== undefined)
    return nodes
      .filter(({ subnets }) => subnets.includes(network))
      .map(({ name }) => ({ name, subnets: [network] }));
  return routersOf(sideWord(side, nodes), nodes.map(routerOf));
}

function routerOf({ name, subnets, groups, owner_id = null, owner_groups = [] }: Node): Router {
  const certified = certifiedGroups({ groups, ownerGroups: owner_groups, ownerId: owner_id });
  // A rule for `self` reaches every node with an owner.
  return { name, subnets, groups: owner_id === null ? certified : [...certified, selfGroup] };
}

/** A side of a rule as routersOf reads it. */
function sideWord(side: Side, nodes: readonly Node[]): string {
  if ("any" in side) return "any";
  if ("node" in side) return `node:${nodes.find(({ id }) => id === side["node"])?.name}`;
  return `group:${groupOf(side)}`;
}

/** For each router a line: "gateway: 192.168.7.0/24, 10.1.0.0/16". */
export const linesOf = (opened: readonly Opened[]): string[] =>
  opened.map(({ name, subnets }) => `${name}: ${subnets.join(", ")}`);

/** Whole lines, or "": whether the rule opens nodes with the networks behind them, or a network alone. */
export function openedText(opened: readonly Opened[], rule: Opening): string {
  const isNetwork = networkAlone(rule) !== undefined;
  if (opened.length === 0) return isNetwork ? "No node routes this network yet\n" : "";
  const lines = linesOf(opened)
    .map((line) => `  ${line}\n`)
    .join("");
  if (isNetwork) return `It opens the network behind these nodes, and not the nodes themselves:\n${lines}`;
  const flag = rule.direction === "inbound" ? "--target network:" : "--peer ";
  return `It also opens the networks behind these nodes:\n${lines}For one of these networks alone: ${flag}${opened[0]?.subnets[0]}\n`;
}
