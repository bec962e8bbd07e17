// Which sides of a seal's rules a party (a node, a network behind one, a group: seal-parties.ts) may be. A sealed node has its
// certificate from an offline CA, whose key no server has. Only such a CA gives a privileged group. The control plane decides about all
// other nodes: they are unprivileged. `anyone` is a thief who has the control plane.

import { isWithin, networksOverlap, parseNetwork, type Network } from "../../base/ip.ts";
import type { SealedNode, SealedRule, SealedState } from "../../protocol/seals/seal.ts";
import { networkOfGroup } from "../../protocol/users-groups.ts";
import type { Party } from "./seal-parties.ts";

/** `owner`: the group of an owner: of the nodes that the side names, those of this owner. */
export type RuleSide = { as: "peer" | "target"; side: SealedRule["peer"]; owner?: string };

/** What a party is in a state. `isClosed`: it has tunnels with sealed nodes alone. `mayBe`: it may be this side of a rule. */
export type Standing = { isSealed: boolean; isClosed: boolean; mayBe(side: RuleSide): boolean };

/** The standing of a party that is not there, or of one that is not sealed, without its sides. */
const nowhere: Standing = { isSealed: false, isClosed: false, mayBe: () => false };

/** `state`: undefined before the first seal, where no party is. */
export function standingsIn(state: SealedState | undefined): (party: Party) => Standing {
  if (state === undefined) return () => nowhere;
  const nodes = new Map(state.nodes.map((node) => [node.name, node]));
  const isSealed = (name: string) => nodes.get(name)?.identity !== undefined;
  const anyone: Standing = {
    ...nowhere,
    mayBe: sidesOfAnyone(new Set(state.sealing?.privileged), isSealed),
  };
  const networks = state.networks.flatMap((each) => parseNetwork(each) ?? []);
  return (party) => {
    if (party.kind === "anyone") return anyone;
    const node = "name" in party ? nodes.get(party.name) : undefined;
    // In this state the node does not route the network.
    if (party.kind === "behind" && node?.routes.includes(party.network) !== true) return nowhere;
    const identity = node?.identity;
    if (node === undefined || identity === undefined)
      return { ...nowhere, mayBe: sidesOfUnprivileged(party, networks) };
    const network = party.kind === "behind" ? party.network : undefined;
    const { kind, groups } = identity;
    const mayBe = sidesOfSealed(node, groups, network);
    return { isSealed: true, isClosed: kind === "closed", mayBe };
  };
}

/** The control plane gives anyone each unprivileged group, the name of each node that is not sealed, and any address. */
const sidesOfAnyone =
  (privileged: ReadonlySet<string>, isSealed: (name: string) => boolean): Standing["mayBe"] =>
  ({ as, side, owner }) => {
    // Other nodes cannot rely on what the machine of `anyone` lets in.
    if (as === "target" || (owner !== undefined && privileged.has(owner))) return false;
    if ("group" in side) return !privileged.has(side.group);
    return "node" in side ? !isSealed(side.node) : true;
  };

/** `networks`: of the organization. The node may have any address in them. */
const sidesOfUnprivileged =
  (party: Party, networks: readonly Network[]): Standing["mayBe"] =>
  ({ side, owner }) => {
    const isIn = (group: string) => party.kind === "group" && party.group === group;
    if (owner !== undefined && !isIn(owner)) return false;
    if ("any" in side) return true;
    if ("group" in side) return isIn(side.group);
    if ("node" in side) return "name" in party && party.name === side.node;
    const network = parseNetwork(side.cidr);
    return network !== undefined && networks.some((each) => networksOverlap(each, network));
  };

/** `behind`: the party is this network, not the node itself. */
const sidesOfSealed =
  (node: SealedNode, groups: readonly string[], behind: string | undefined): Standing["mayBe"] =>
  ({ as, side, owner }) => {
    if (owner !== undefined && !groups.includes(owner)) return false;
    if ("any" in side) return true;
    if ("node" in side) return side.node === node.name;
    if ("cidr" in side) return isInside(parseNetwork(side.cidr), behind, node.addresses);
    // A target group `network:…` means the network behind the node, and not the node.
    const network = as === "target" ? networkOfGroup(side.group) : undefined;
    return network === undefined ? groups.includes(side.group) : network === behind;
  };

function isInside(
  network: Network | undefined,
  behind: string | undefined,
  addresses: readonly string[],
): boolean {
  if (network === undefined) return false;
  const own = behind === undefined ? undefined : parseNetwork(behind);
  if (own !== undefined) return networksOverlap(network, own);
  return addresses.some((each) => isWithin(each, [network]));
}
