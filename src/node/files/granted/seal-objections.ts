// What a seal of the organization objects to in a configuration: everything by which a control plane could let other machines
// in, or lead packets elsewhere (docs/design/sealed.md). Only for reports: sealed-config.ts and sealed-files.ts keep things out.
// Decides by allowing, as grants.ts does: what the seal does not name is an objection. Pure.

import { maskNetwork } from "../../../base/ip.ts";
import { isMap, listOf, valueAt, type YamlValue } from "../../../base/yaml.ts";
import type { LeftOut } from "../../../engine/left-out.ts";
import { decodeBundle } from "../../../pki/bundle.ts";
import { fingerprint } from "../../../pki/nebula.ts";
import type { SealedState } from "../../../protocol/seals/seal.ts";
import { checkFirewall, checkFlowTimes } from "./firewall-objections.ts";
import { textOf, type AddObjection, type Asked, type SentParts } from "./objection-input.ts";
import { certificateRefusal, isSealedExit, missingAddress } from "./sealed-files.ts";
import { addressesOf, mayRoute } from "./sealed-node.ts";

/** Objections that are listed: as many as `status` can show. */
const mostObjections = 20;

/** All that the seal objects to, at most `mostObjections` and a line with the number of others. */
export function objectionsOf(sealed: SealedState, sent: SentParts): LeftOut[] {
  const own = sealed.nodes.find(({ name }) => name === sent.node.name);
  const groups = [...new Set(decodeBundle(sent.hostCrt).flatMap((certificate) => certificate.groups))];
  const asked: Asked = { ...sent, sealed, own, groups };
  const listed: LeftOut[] = [];
  let more = 0;
  const addObjection: AddObjection = (key, reason) => {
    if (listed.length < mostObjections) listed.push({ key: printable(key), reason });
    else more++;
  };
  checkTrust(asked, addObjection);
  checkCertificate(asked, addObjection);
  checkHubs(asked, addObjection);
  checkRoutes(asked, addObjection);
  checkFirewall(asked, addObjection);
  checkFlowTimes(asked, addObjection);
  checkExits(asked, addObjection);
  return more === 0 ? listed : [...listed, { key: "…", reason: `${more} more` }];
}

const printable = (key: string) => key.slice(0, 120).replace(/[^\x20-\x7e]/g, "?");

function checkTrust({ sealed, caCrt, node }: Asked, addObjection: AddObjection): void {
  for (const ca of decodeBundle(caCrt)) {
    const print = fingerprint(ca);
    if (!sealed.authorities.includes(print))
      addObjection(`the CA ${print.slice(0, 16)}`, "the seal has no such CA");
  }
  if (node.order_key !== undefined && node.order_key.x !== sealed.order_key.x)
    addObjection("the order key", "the seal has another one");
}

/**
 * A wider prefix would be a route of the kernel, and a network behind this node opens it to packets for that network. A seal
 * that can be enforced (`sealing`) knows exact addresses and keys; an older one only names networks and routers.
 */
function checkCertificate({ sealed, hostCrt, own }: Asked, addObjection: AddObjection): void {
  const { sealing } = sealed;
  if (sealing !== undefined) {
    const certificates = decodeBundle(hostCrt);
    for (const certificate of certificates) {
      const reason = certificateRefusal({ ...sealed, sealing }, certificate);
      if (reason !== undefined) addObjection(`the certificate of ${certificate.name}`, reason);
    }
    const missing = missingAddress({ ...sealed, sealing }, certificates);
    if (missing !== undefined) addObjection(`the certificate of ${certificates[0]?.name}`, missing);
    return;
  }
  for (const { networks, unsafeNetworks } of decodeBundle(hostCrt)) {
    for (const network of networks)
      if (!sealed.networks.includes(maskNetwork(network) ?? ""))
        addObjection(`the certificate's network ${network}`, "the seal has another network");
    for (const behind of unsafeNetworks)
      if (!mayRoute(own, behind))
        addObjection(`the certificate's network ${behind}`, "the seal has no such router");
  }
}

function checkHubs({ sealed, config, own }: Asked, addObjection: AddObjection): void {
  const addressesWith = (role: "lighthouse" | "relay") =>
    new Set(sealed.nodes.filter((node) => node[role]).flatMap(addressesOf));
  const lighthouses = addressesWith("lighthouse");
  const relays = addressesWith("relay");
  const refuse = (
    section: string,
    values: readonly YamlValue[],
    known: ReadonlySet<string>,
    role: string,
  ) => {
    for (const address of values)
      if (typeof address !== "string" || !known.has(address))
        addObjection(`${section} ${textOf(address)}`, `the seal has no such ${role}`);
  };
  const map = config["static_host_map"];
  refuse("lighthouse.hosts", listOf(valueAt(config, "lighthouse.hosts")), lighthouses, "lighthouse");
  refuse("relay.relays", listOf(valueAt(config, "relay.relays")), relays, "relay");
  refuse(
    "static_host_map",
    isMap(map) ? Object.keys(map) : [],
    lighthouses.union(relays),
    "lighthouse or relay",
  );
  if (valueAt(config, "lighthouse.am_lighthouse") === true && own?.lighthouse !== true)
    addObjection("lighthouse.am_lighthouse", "by the seal this node is no lighthouse");
  if (valueAt(config, "relay.am_relay") === true && own?.relay !== true)
    addObjection("relay.am_relay", "by the seal this node is no relay");
}

function checkRoutes({ sealed, config }: Asked, addObjection: AddObjection): void {
  for (const entry of listOf(valueAt(config, "tun.unsafe_routes"))) {
    const { route, via } = isMap(entry) ? entry : {};
    const network = typeof route === "string" ? route : "";
    // One address, or a list with weights.
    const gateways = Array.isArray(via) ? via.map((way) => (isMap(way) ? way["gateway"] : undefined)) : [via];
    const routers = sealed.nodes.filter((node) => mayRoute(node, network)).flatMap(addressesOf);
    for (const gateway of gateways)
      if (typeof gateway !== "string" || !routers.includes(gateway))
        addObjection(`tun.unsafe_routes ${network} via ${textOf(gateway)}`, "the seal has no such router");
  }
}

function checkExits({ sealed, node }: Asked, addObjection: AddObjection): void {
  for (const exit of node.exits ?? []) {
    if (!isSealedExit(sealed, exit)) addObjection(`the exit ${exit.name}`, "the seal has no such exit");
  }
}
