// Echo requests by which nodes ask a router whether a network behind it is reached. They carry a mark of the network. The
// kernel of the router answers; while what is behind is gone, a rule of the router drops them (router.ts). So neither a
// control plane nor a program on the router has to say anything.

/** "OAR1" and four bytes that name the network, as hex. A rule of nftables compares them. */
export function probeMark(network: string): string {
  const name = new Bun.CryptoHasher("sha256").update(network).digest("hex").slice(0, 8);
  return `4f415231${name}`;
}
