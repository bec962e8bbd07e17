// Which certificates and facts a node takes under a seal that is enforced. What the seal refuses is left out, and what was in
// force takes its place: an earlier file that the seal permits. Pure.

import * as v from "valibot";
import { AppError } from "../../../base/errors.ts";
import { maskNetwork } from "../../../base/ip.ts";
import { decodeBundle, encodePem } from "../../../pki/bundle.ts";
import type { NebulaCertificate } from "../../../pki/certificate.ts";
import { fingerprint } from "../../../pki/nebula.ts";
import type { ConfigFiles } from "../../../protocol/download.ts";
import { mostTcpWays, NodeConfig } from "../../../protocol/stored.ts";
import type { SealedNode } from "../../../protocol/seals/seal.ts";
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

/** `present`: those in force, of which a file stands in for a refused one. Throws untrusted_answer if none is permitted. */
export function sealedFiles(
  state: EnforcedState,
  sent: ConfigFiles,
  present: Partial<ConfigFiles> = {},
): ConfigFiles {
  const refusal = bundleRefusal(state, sent["host.crt"]);
  const isUsable = bundleRefusal(state, present["host.crt"] ?? "") === undefined;
  if (refusal !== undefined && !isUsable) throw refuse(refusal);
  // A refused certificate is not taken by halves: name, address and X.509 certificate belong to it.
  const chosen: ConfigFiles =
    refusal === undefined
      ? sent
      : {
          ...sent,
          "host.crt": present["host.crt"] ?? "",
          "node-config.json": present["node-config.json"] ?? "",
          ...(present["node.crt"] === undefined ? {} : { "node.crt": present["node.crt"] }),
        };
  return {
    ...chosen,
    "ca.crt": authorities(state, chosen["host.crt"], [sent["ca.crt"], present["ca.crt"] ?? ""]),
    "node-config.json": sealedFacts(state, chosen),
  };
}

/** Undefined: the seal permits all certificates of the bundle. */
function bundleRefusal(state: EnforcedState, hostCrt: string): string | undefined {
  if (hostCrt === "") return "there is none";
  const all = decodeBundle(hostCrt);
  const reason = all.map((each) => certificateRefusal(state, each)).find((each) => each !== undefined);
  return reason ?? missingAddress(state, all);
}

/** Without its sealed address, an open node would have rules and peers by IPv4 again: an old certificate must not do that. */
export function missingAddress(
  state: EnforcedState,
  bundle: readonly NebulaCertificate[],
): string | undefined {
  const [first] = bundle;
  const { name, identity } = (first && identified(state, first.publicKey)) ?? {};
  const address6 = identity?.address6;
  const isThere = bundle.some(({ networks }) => networks.some((each) => each.split("/")[0] === address6));
  return address6 === undefined || isThere ? undefined : `${name} lacks its sealed address ${address6}`;
}

/** Why a node must not have this certificate. Its times are those that its CA may give. */
export function certificateRefusal(state: EnforcedState, certificate: NebulaCertificate): string | undefined {
  const { issuer, name, groups, networks, unsafeNetworks } = certificate;
  if (!state.authorities.includes(issuer)) return `the seal does not have its CA ${issuer.slice(0, 16)}`;
  const own = identified(state, certificate.publicKey);
  const reason =
    own === undefined ? unprivilegedRefusal(state, certificate) : sealedRefusal(state, own, certificate);
  if (reason !== undefined) return reason;
  const permitted = own?.identity?.groups;
  const group = groups.find((each) =>
    permitted === undefined ? state.sealing.privileged.includes(each) : !permitted.includes(each),
  );
  if (group !== undefined) return `the seal does not give ${name} the group ${group}`;
  const behind = unsafeNetworks.find((each) => !mayRoute(own, each));
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
  const known = networksOf(state, own);
  const strange = networks.find((each) => !known.includes(each));
  return strange === undefined ? undefined : `the seal does not give ${name} the address ${strange}`;
}

function unprivilegedRefusal(
  state: EnforcedState,
  { name, networks }: NebulaCertificate,
): string | undefined {
  const sealed = state.nodes.filter(({ identity }) => identity !== undefined);
  if (sealed.some((each) => each.name === name)) return `${name} is a sealed node with another key`;
  const taken = new Set(sealed.flatMap((each) => networksOf(state, each)));
  for (const each of networks) {
    // A wider prefix would be a route of the kernel.
    if (!state.networks.includes(maskNetwork(each) ?? "")) return `the seal has no network ${each}`;
    if (taken.has(each)) return `${each} is the address of a sealed node`;
  }
  return undefined;
}

/** The CAs that the seal has this node trust. One that the control plane no longer sends stays. */
function authorities(state: EnforcedState, hostCrt: string, bundles: readonly string[]): string {
  const { isClosed } = sealedSelf(state, hostCrt);
  const trusted = isClosed ? state.sealing.offline : state.authorities;
  const known = new Map(
    bundles
      .filter((each) => each !== "")
      .flatMap(decodeBundle)
      .map((each) => [fingerprint(each), each] as const)
      .filter(([print]) => trusted.includes(print)),
  );
  for (const { issuer } of decodeBundle(hostCrt))
    if (!known.has(issuer)) throw refuse(`the CA ${issuer.slice(0, 16)} of its certificate was not sent`);
  return [...known.values()].map(encodePem).join("");
}

/** node-config.json with the roles, the order key and the exits of the seal. */
function sealedFacts(
  state: EnforcedState,
  { "node-config.json": text, "host.crt": hostCrt }: ConfigFiles,
): string {
  const config = v.parse(v.pipe(v.string(), v.parseJson(), NodeConfig), text);
  const self = sealedSelf(state, hostCrt);
  const { own, address6 } = self;
  const { exits, is_exit: _, tcp, sealed_names: __, ...rest } = config;
  const kept = (exits ?? []).filter((each) => isSealedExit(state, each));
  const sealed: NodeConfig = {
    ...rest,
    ...(tcp === undefined ? {} : { tcp: waysFor(self, tcp) }),
    ...(address6 === undefined ? {} : insideOf(self, rest, address6)),
    is_lighthouse: own?.lighthouse === true,
    is_relay: own?.relay === true,
    order_key: state.order_key,
    ...(kept.length === 0 ? {} : { exits: kept }),
    ...(own === undefined || own.exit.length === 0 ? {} : { is_exit: true }),
  };
  return `${JSON.stringify(sealed, null, 2)}\n`;
}

/** By each address that this node has for a lighthouse or relay. */
function waysFor(self: SealedSelf, tcp: NonNullable<NodeConfig["tcp"]>): NonNullable<NodeConfig["tcp"]> {
  const more = self.state.nodes.flatMap((each) => {
    const [way] = addressesOf(each).flatMap((address) => tcp[address] ?? []);
    const own = addressFor(self, each);
    return way === undefined || own === undefined ? [] : [[own, way] as const];
  });
  return Object.fromEntries([...Object.entries(tcp), ...more].slice(0, mostTcpWays));
}

/** What the file of a node in the sealed network has: its address there, and the addresses of all sealed nodes by their names. */
function insideOf(
  self: SealedSelf,
  { ip_address6: present }: Pick<NodeConfig, "ip_address6">,
  address6: string,
): Pick<NodeConfig, "ip_address6" | "sealed_names"> {
  const named = self.state.nodes.flatMap((node): [string, string[]][] => {
    const own = addressFor(self, node);
    if (node.identity === undefined || own === undefined) return [];
    return [[node.name, [...new Set([own, ...node.addresses])]]];
  });
  return { ip_address6: present ?? address6, sealed_names: Object.fromEntries(named) };
}

export function isSealedExit(
  { nodes }: Pick<EnforcedState, "nodes">,
  { name, ip_address: address, ip_address6: address6 }: NonNullable<NodeConfig["exits"]>[number],
): boolean {
  return nodes.some(
    (each) =>
      each.name === name &&
      each.exit.length > 0 &&
      each.addresses.includes(address) &&
      (address6 === null || each.addresses.includes(address6)),
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
