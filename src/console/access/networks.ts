// Networks that stand in rules, and the nodes in front of them. Pure.

import type { Router } from "../../protocol/networks-behind.ts";

/** What an administrator can do to open one network to one group. */
export const gatewayWords =
  "What reaches a node reaches all networks behind it. A rule opens one network alone if its To is that network.";

/** The node in front of an IPv4 address, or of a network. */
export function routerTo<T extends Router>(text: string, nodes: readonly T[]): T | undefined {
  const bitsOf = (address: string) =>
    address.replaceAll(/(\d+)(\.|\/.*|$)/g, (_, part) => Number(part).toString(2).padStart(8, "0"));
  const isIn = (network: string) =>
    /^(\d+\.){3}\d+(\/|$)/.test(text) &&
    bitsOf(text).startsWith(bitsOf(network).slice(0, Number(network.split("/")[1])));
  return nodes.find(({ subnets }) => subnets.some(isIn));
}

/** As the target of a rule, a network is one behind nodes. */
export const targetOf = (word: string): string =>
  /^[\d.a-f:]+\/\d{1,3}$/i.test(word) ? `network:${word.toLowerCase()}` : word;

/** As the peer of a rule, it is the network alone: a changed direction makes a target the peer. */
export const peerOf = (word: string): string => word.replace(/^network:/, "");
