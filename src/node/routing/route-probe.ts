// Echo requests by which nodes ask a router whether a network behind it is reached. They carry a mark of the network. The
// kernel of the router answers; while the network is not reached, a rule of the router drops them (router-table.ts). So other nodes
// notice that without the control plane, and without a program that answers.

import { sha256Hex } from "../../base/sha256.ts";

/** "OAR1" and four bytes that name the network, as hex. A rule of nftables compares them. */
export function probeMark(network: string): string {
  const name = sha256Hex(network).slice(0, 8);
  return `4f415231${name}`;
}
