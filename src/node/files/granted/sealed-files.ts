// Which certificates and facts of node-config.json a node accepts under a seal that is enforced. For what the seal refuses, the
// file in force stays, if the seal permits that one. Pure.

import * as v from "valibot";
import { AppError } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { maskNetwork } from "../../../base/ip.ts";
import { decodeBundle, encodePem } from "../../../pki/bundle.ts";
import type { NebulaCertificate } from "../../../pki/certificate.ts";
import { fingerprint } from "../../../pki/nebula.ts";
import type { ConfigFiles } from "../../../protocol/download.ts";
import { mostTcpWays, NodeConfig } from "../../../protocol/organization-files.ts";
import type { SealedNode } from "../../../protocol/seals/seal.ts";
import { ignoringDamage } from "./machine-facts.ts";
import {
  addressesOf,
  addressFor,
  identified,
  mayRoute,
  networksOf,
  sealedSelf,
  type EnforcedState,
  type SealedSelf,
} from "./sealed-node.ts";

/** The sent files with those in force instead of refused ones. Throws untrusted_answer if the seal permits neither. */
export function sealedFiles(
  state: EnforcedState,
  sent: ConfigFiles,
  inForce: Partial<ConfigFiles> = {},
): ConfigFiles {
  const hostCrtInForce = inForce["host.crt"] ?? "";
  const [ofSent, ofInForce] = [certificatesIn(sent["host.crt"]), certificatesIn(hostCrtInForce)];
  const refusal = bundleRefusal(state, ofSent);
  // A node that registers again with another key must not begin with a certificate that is not for it.
  const isSameKey = Bun.deepEquals(ofInForce[0]?.publicKey, ofSent[0]?.publicKey);
  const mayStay = isSameKey && bundleRefusal(state, ofInForce) === undefined;
  if (refusal !== undefined && !mayStay) throw refuse(refusal);
  // With a refused certificate go the files that belong to it: name, address and X.509 certificate, also where none is in force.
  const { "node.crt": _, ...others } = sent;
  const chosen: ConfigFiles =
    refusal === undefined
      ? sent
      : {
          ...others,
          "host.crt": hostCrtInForce,
          "node-config.json": inForce["node-config.json"] ?? "",
          ...given({ "node.crt": inForce["node.crt"] }),
        };
  return {
    ...chosen,
    "ca.crt": authorities(state, chosen["host.crt"], [sent["ca.crt"], inForce["ca.crt"] ?? ""]),
    "node-config.json": sealedFacts(state, chosen),
  };
}

/** None for a damaged file: one in force must not keep a good one out. */
const certificatesIn = (bundle: string) => ignoringDamage(() => decodeBundle(bundle)) ?? [];

/** Why the seal refuses a bundle of certificates. Undefined: it permits all of them. */
function bundleRefusal(state: EnforcedState, certificates: readonly NebulaCertificate[]): string | undefined {
  if (certificates.length === 0) return "there is none";
  const [reason] = certificates.flatMap((certificate) => certificateRefusal(state, certificate) ?? []);
  return reason ?? missingAddress(state, certificates);
}

/**
 * Why a bundle lacks the sealed address of its node. By an old certificate without it, an open node would have rules and peers by
 * IPv4 again. Open: it also has tunnels with nodes that an online CA certifies; a closed one has not (sealed-node.ts).
 */
export function missingAddress(
  state: EnforcedState,
  bundle: readonly NebulaCertificate[],
): string | undefined {
  const [first] = bundle;
  const node = first && identified(state, first.publicKey);
  const address6 = node?.identity?.address6;
  const isThere = bundle.some(({ networks }) =>
    networks.some((network) => network.split("/")[0] === address6),
  );
  return address6 === undefined || isThere ? undefined : `${node?.name} lacks its sealed address ${address6}`;
}

/** Why a node must not have this certificate. Its times do not count: each CA limits those. */
export function certificateRefusal(state: EnforcedState, certificate: NebulaCertificate): string | undefined {
  const { issuer, name, groups, networks, unsafeNetworks } = certificate;
  if (!state.authorities.includes(issuer)) return `the seal does not have its CA ${issuer.slice(0, 16)}`;
  // Undefined: the node is not named by its key in the seal, so it may have nothing that is privileged.
  const own = identified(state, certificate.publicKey);
  const reason =
    own === undefined ? unprivilegedRefusal(state, certificate) : sealedRefusal(state, own, certificate);
  if (reason !== undefined) return reason;
  const sealedGroups = own?.identity?.groups;
  const refusedGroup = groups.find((group) =>
    sealedGroups === undefined ? state.sealing.privileged.includes(group) : !sealedGroups.includes(group),
  );
  if (refusedGroup !== undefined) return `the seal does not give ${name} the group ${refusedGroup}`;
  const behind = unsafeNetworks.find((network) => !mayRoute(own, network));
  if (behind !== undefined) return `the seal does not give ${name} the network ${behind}`;
  return networks.length === 0 ? "it has no address" : undefined;
}

function sealedRefusal(
  state: EnforcedState,
  own: SealedNode,
  { issuer, name, networks }: NebulaCertificate,
): string | undefined {
  if (!state.sealing.offline.includes(issuer))
    return `no offline CA of the seal has signed it for ${own.name}`;
  if (name !== own.name) return `the seal names this node ${own.name}, not ${name}`;
  const sealedNetworks = networksOf(state, own);
  const refused = networks.find((network) => !sealedNetworks.includes(network));
  return refused === undefined ? undefined : `the seal does not give ${name} the address ${refused}`;
}

function unprivilegedRefusal(
  state: EnforcedState,
  { name, networks }: NebulaCertificate,
): string | undefined {
  const sealed = state.nodes.filter(({ identity }) => identity !== undefined);
  if (sealed.some((node) => node.name === name)) return `${name} is a sealed node with another key`;
  const taken = new Set(sealed.flatMap((node) => networksOf(state, node)));
  for (const network of networks) {
    // A wider prefix would be a route of the kernel.
    if (!state.networks.includes(maskNetwork(network) ?? "")) return `the seal has no network ${network}`;
    if (taken.has(network)) return `${network} is the address of a sealed node`;
  }
  return undefined;
}

/** ca.crt with the CAs that the seal lets this node trust. A CA that is in force stays if the control plane no longer sends it. */
function authorities(state: EnforcedState, hostCrt: string, bundles: readonly string[]): string {
  const { isClosed } = sealedSelf(state, hostCrt);
  const trusted = isClosed ? state.sealing.offline : state.authorities;
  const byFingerprint = new Map(
    bundles
      .flatMap(certificatesIn)
      .map((ca) => [fingerprint(ca), ca] as const)
      .filter(([print]) => trusted.includes(print)),
  );
  for (const { issuer } of decodeBundle(hostCrt))
    if (!byFingerprint.has(issuer))
      throw refuse(`the CA ${issuer.slice(0, 16)} of its certificate was not sent`);
  return [...byFingerprint.values()].map(encodePem).join("");
}

/** node-config.json with the roles, the order key and the exits of the seal. */
function sealedFacts(
  state: EnforcedState,
  { "node-config.json": text, "host.crt": hostCrt }: ConfigFiles,
): string {
  const config = v.parse(v.pipe(v.string(), v.parseJson(), NodeConfig), text);
  const self = sealedSelf(state, hostCrt);
  const { own, address6 } = self;
  // A file in force was rendered here before: what the seal decides is made anew.
  const { exits, is_exit: _, tcp, sealed_names: __, ...rest } = config;
  const sealedExits = (exits ?? []).filter((exit) => isSealedExit(state, exit));
  const sealed: NodeConfig = {
    ...rest,
    ...(tcp === undefined ? {} : { tcp: waysFor(self, tcp) }),
    ...(address6 === undefined ? {} : insideOf(self, rest, address6)),
    is_lighthouse: own?.lighthouse === true,
    is_relay: own?.relay === true,
    order_key: state.order_key,
    ...(sealedExits.length === 0 ? {} : { exits: sealedExits }),
    ...(own === undefined || own.exit.length === 0 ? {} : { is_exit: true }),
  };
  return `${JSON.stringify(sealed, null, 2)}\n`;
}

/**
 * The ways of the TCP fallback, by the overlay address of a lighthouse or relay: also by the address that this node has for it
 * under the seal.
 */
function waysFor(self: SealedSelf, tcp: NonNullable<NodeConfig["tcp"]>): NonNullable<NodeConfig["tcp"]> {
  const added = self.state.nodes.flatMap((node) => {
    const [way] = addressesOf(node).flatMap((address) => tcp[address] ?? []);
    const overlay = addressFor(self, node);
    return way === undefined || overlay === undefined ? [] : [[overlay, way] as const];
  });
  // Each address once, those of the seal first: a control plane that sends as many as there may be must not crowd them out.
  const ways = { ...Object.fromEntries(added), ...tcp };
  return Object.fromEntries(Object.entries(ways).slice(0, mostTcpWays));
}

/**
 * What node-config.json of a node in the sealed network has beside: the addresses of all sealed nodes by their names, and, if it
 * has no other IPv6 address, its own one there.
 */
function insideOf(
  self: SealedSelf,
  { ip_address6: sentAddress6 }: Pick<NodeConfig, "ip_address6">,
  address6: string,
): Pick<NodeConfig, "ip_address6" | "sealed_names"> {
  const named = self.state.nodes.flatMap((node): [string, string[]][] => {
    const overlay = addressFor(self, node);
    if (node.identity === undefined || overlay === undefined) return [];
    return [[node.name, [...new Set([overlay, ...node.addresses])]]];
  });
  return { ip_address6: sentAddress6 ?? address6, sealed_names: Object.fromEntries(named) };
}

/** Whether the seal has this exit, with these addresses. */
export function isSealedExit(
  { nodes }: Pick<EnforcedState, "nodes">,
  { name, ip_address: address, ip_address6: address6 }: NonNullable<NodeConfig["exits"]>[number],
): boolean {
  return nodes.some(
    (node) =>
      node.name === name &&
      node.exit.length > 0 &&
      node.addresses.includes(address) &&
      (address6 === null || node.addresses.includes(address6)),
  );
}

function refuse(reason: string): AppError {
  return new AppError(
    "untrusted_answer",
    `The seal of the organization cannot be put into force: ${reason}`,
    {
      hint: "This node stays as it is. Ask a signer of the organization to sign its certificate, or the next seal.",
    },
  );
}
