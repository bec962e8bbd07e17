// What a seal in force says of this node: who it is, and whose nodes it trusts. The input of sealed-files.ts, which decides
// about certificates, and of sealed-config.ts, which renders (docs/design/sealed.md). Pure.
//
// Only signers have the key of an offline CA. A node with a certificate of it is sealed: it has an identity in the seal. Privileged
// groups are those that an offline CA alone gives.

import { networkContains, parseAddress, parseNetworks } from "../../../base/ip.ts";
import { decodeBundle } from "../../../pki/bundle.ts";
import type { SealedNode, SealedState, Sealing } from "../../../protocol/seals/seal.ts";
import { sha256Hex } from "../../../base/sha256.ts";

/** The state of a seal that is enforced. */
export type EnforcedState = SealedState & { sealing: Sealing };

/** This node under the seal. */
export type SealedSelf = {
  state: EnforcedState;
  name: string;
  /** Its entry in the seal: the one with its host key, else the one with its name that has no key (an unprivileged node). */
  own: SealedNode | undefined;
  /** It trusts the offline CAs alone, and has tunnels only with nodes that have their certificates. */
  isClosed: boolean;
  /** Without privileged groups that its certificate does not prove. */
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

/** `hostCrt`: its certificates, which sealed-files.ts has accepted. */
export function sealedSelf(state: EnforcedState, hostCrt: string): SealedSelf {
  const certificates = decodeBundle(hostCrt);
  const [first] = certificates;
  const name = first?.name ?? "";
  const sealed = first === undefined ? undefined : identified(state, first.publicKey);
  const own = sealed ?? state.nodes.find((node) => node.identity === undefined && node.name === name);
  const certified = [...new Set(certificates.flatMap((certificate) => certificate.groups))];
  const groups = certified.filter(
    (group) => sealed !== undefined || !state.sealing.privileged.includes(group),
  );
  const { kind, address6 } = sealed?.identity ?? {};
  return { state, name, own, isClosed: kind === "closed", groups, address6 };
}

/**
 * The overlay address by which this node reaches another: the one in the sealed network if both have one, since no online CA
 * certifies those addresses.
 */
export function addressFor(
  { address6 }: Pick<SealedSelf, "address6">,
  { addresses, identity }: SealedNode,
): string | undefined {
  return (address6 === undefined ? undefined : identity?.address6) ?? addresses[0];
}

/** The nodes that this one may have as lighthouse, relay or router: a closed node only sealed ones. */
export const nodesFor = ({ state, own, isClosed }: SealedSelf): SealedNode[] =>
  state.nodes.filter((node) => node !== own && (!isClosed || node.identity !== undefined));

/** All overlay addresses of a node. */
export const addressesOf = ({ addresses, identity }: SealedNode): string[] =>
  identity?.address6 === undefined ? addresses : [...addresses, identity.address6];

/** The addresses of a sealed node as its certificate has them: "10.77.0.5/16". */
export function networksOf({ networks, sealing }: EnforcedState, node: SealedNode): string[] {
  const overlays = parseNetworks([
    ...networks,
    ...(sealing.network6 === undefined ? [] : [sealing.network6]),
  ]);
  return addressesOf(node).flatMap((text) => {
    const address = parseAddress(text);
    const network = address && overlays.find((overlay) => networkContains(overlay, address));
    return network === undefined ? [] : [`${text}/${network.prefix}`];
  });
}

const isDefault = (network: string) => network === "0.0.0.0/0" || network === "::/0";

/** Whether the seal makes the node a router of this network or, for a default route, an exit. */
export function mayRoute(node: SealedNode | undefined, network: string): boolean {
  if (node === undefined) return false;
  return isDefault(network) ? node.exit.length > 0 : node.routes.includes(network);
}
