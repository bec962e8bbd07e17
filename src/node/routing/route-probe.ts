// Echo requests by which nodes ask a router whether a network behind it is reached. They carry a mark of the network. The
// kernel of the router answers; while what is behind is gone, a rule of the router drops them (router.ts). So neither a
// control plane nor a program on the router has to say anything.

import { sha256Hex } from "../../base/sha256.ts";

/** "OAR1" and four bytes that name the network, as hex. A rule of nftables compares them. */
export function probeMark(network: string): string {
  const name = sha256Hex(network).slice(0, 8);
  return `4f415231${name}`;
}
