// What a seal in force says of this node: who it is, and whose nodes it trusts. The input of sealed-files.ts, which decides
// about certificates, and of sealed-config.ts, which renders (docs/design/sealed.md). Pure.

import { networkContains, parseAddress, parseNetworks } from "../../../base/ip.ts";
import { decodeBundle } from "../../../pki/bundle.ts";
import type { SealedNode, SealedState, Sealing } from "../../../protocol/seals/seal.ts";
import { sha256Hex } from "../../../base/sha256.ts";

/** The state of a seal that is enforced. */
export type EnforcedState = SealedState & { sealing: Sealing };

export type SealedSelf = {
  state: EnforcedState;
  name: string;
  /** By its host key, if it has an identity; else by its name, for the roles of an unprivileged node. */
  own: SealedNode | undefined;
  /** Trusts the offline CAs alone. */
  isClosed: boolean;
  groups: readonly string[];
  /** Its own address in the sealed network. Undefined: it has none, and finds all nodes by their other addresses. */
  address6: string | undefined;
};

export const keyHash = (publicKey: Uint8Array): string => sha256Hex(publicKey);

/** The node with this host key; undefined for an unprivileged node. */
export const identified = ({ nodes }: SealedState, publicKey: Uint8Array): SealedNode | undefined => {
  const key = keyHash(publicKey);
  return nodes.find(({ identity }) => identity?.key === key);
};

/** `hostCrt`: examined by sealed-files.ts. Groups that the certificate does not prove count for nothing. */
export function sealedSelf(state: EnforcedState, hostCrt: string): SealedSelf {
  const certificates = decodeBundle(hostCrt);
  const [first] = certificates;
  const name = first?.name ?? "";
  const sealed = first === undefined ? undefined : identified(state, first.publicKey);
  const own = sealed ?? state.nodes.find((each) => each.identity === undefined && each.name === name);
  const given = [...new Set(certificates.flatMap(({ groups }) => groups))];
  const groups = given.filter((each) => sealed !== undefined || !state.sealing.privileged.includes(each));
  const { kind, address6 } = sealed?.identity ?? {};
  return { state, name, own, isClosed: kind === "closed", groups, address6 };
}

/** Its address for this node. Nodes in the sealed network find each other there: no online CA has these addresses. */
export function addressFor(
  { address6 }: Pick<SealedSelf, "address6">,
  { addresses, identity }: SealedNode,
): string | undefined {
  return (address6 === undefined ? undefined : identity?.address6) ?? addresses[0];
}

/** The nodes that this one may have as lighthouse, relay or router: a closed one has no tunnel with others. */
export const nodesFor = ({ state, own, isClosed }: SealedSelf): SealedNode[] =>
  state.nodes.filter((each) => each !== own && (!isClosed || each.identity !== undefined));

export const addressesOf = ({ addresses, identity }: SealedNode): string[] =>
  identity?.address6 === undefined ? addresses : [...addresses, identity.address6];

/** The addresses of a sealed node as its certificate has them: "10.77.0.5/16". */
export function networksOf({ networks, sealing }: EnforcedState, node: SealedNode): string[] {
  const all = parseNetworks([...networks, ...(sealing.network6 === undefined ? [] : [sealing.network6])]);
  return addressesOf(node).flatMap((text) => {
    const address = parseAddress(text);
    const network = address && all.find((each) => networkContains(each, address));
    return network === undefined ? [] : [`${text}/${network.prefix}`];
  });
}

const isDefault = (network: string) => network === "0.0.0.0/0" || network === "::/0";

export function mayRoute(node: SealedNode | undefined, network: string): boolean {
  if (node === undefined) return false;
  return isDefault(network) ? node.exit.length > 0 : node.routes.includes(network);
}
