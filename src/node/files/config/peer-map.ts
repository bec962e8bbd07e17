// peer-map.json: underlay addresses of peers, as the engine had them (health/paths/kept-peers.ts). With them in config.yml, this node
// still reaches its peers while no lighthouse answers. The file is beside the control socket.

import * as v from "valibot";
import { boundedText } from "../../../base/text.ts";
import { isWithin, parseNetworks } from "../../../base/ip.ts";
import { isMap, listOf, type YamlMap } from "../../../base/yaml.ts";
import { maxKeptPeers, maxRemotes } from "../../../protocol/path-report.ts";
import { indexHosts, readAllHosts } from "../hosts.ts";
import { stateFile } from "../json-file.ts";
import { IpAddress } from "./local-changes.ts";
import { keptPeersKey } from "./read-config.ts";

/** The underlay addresses with ports of peers ("192.0.2.1:4242"), by overlay address, as the engine had them. */
const PeerMap = v.pipe(
  v.record(IpAddress, v.pipe(v.array(boundedText(64)), v.maxLength(maxRemotes))),
  v.maxEntries(maxKeptPeers),
);
export type PeerMap = v.InferOutput<typeof PeerMap>;

/** Readable for root alone: the map shows which peers this node knows. */
const file = stateFile("peer-map.json", PeerMap, 0o600);
export const { path: peerMapPath, write: writePeerMap } = file;

/** Empty if the file does not exist or is damaged. */
export const readPeerMap = (directory: string): PeerMap => file.read(directory) ?? {};

/**
 * The map with an entry for each address that hosts.json, or the seal, knows of a peer, within these networks: the engine looks up the
 * one that a packet goes to.
 */
export function byEachAddress(map: PeerMap, directory: string, networks: readonly string[]): PeerMap {
  const peers = Object.entries(map);
  const hosts = peers.length === 0 ? undefined : readAllHosts(directory);
  if (hosts === undefined) return map;
  const index = indexHosts(hosts, "");
  const inside = parseNetworks(networks);
  const others = peers.flatMap(([peer, remotes]) =>
    (index.byAddress(peer)?.addresses ?? [])
      .filter((address) => isWithin(address, inside))
      .map((address): [string, string[]] => [address, remotes]),
  );
  return { ...Object.fromEntries(others), ...map };
}

/**
 * With the kept peers in static_host_map: the engine sends handshakes to these addresses also while no lighthouse answers. For
 * lighthouses and relays the control plane's addresses stay. A lighthouse needs no kept peers: nodes contact it.
 */
export function withPeerMap(config: YamlMap, map: PeerMap): YamlMap {
  const { static_host_map: sent, lighthouse, listen } = config;
  const hubs = isMap(sent) ? sent : {};
  if (isMap(lighthouse) && lighthouse["am_lighthouse"] === true) return config;
  // An engine that listens on an IPv4 address reaches no IPv6 address. Those of peers begin with a bracket.
  const hasIpv6 = isMap(listen) && typeof listen["host"] === "string" && listen["host"].includes(":");
  const kept = Object.entries(map).flatMap(([peer, remotes]): [string, string[]][] => {
    const usable = remotes.filter((remote) => hasIpv6 || !remote.startsWith("["));
    return Object.hasOwn(hubs, peer) || usable.length === 0 ? [] : [[peer, usable]];
  });
  if (kept.length === 0) return config;
  return {
    ...config,
    static_host_map: { ...hubs, ...Object.fromEntries(kept) },
    // Readers of config.yml tell them from lighthouses and relays by it. Engines ignore it.
    [keptPeersKey]: kept.map(([peer]) => peer),
  };
}

/** A configuration without the kept peers. A later hosts.json may name more addresses of them, and is no reason to write it anew. */
export function withoutKeptPeers({
  [keptPeersKey]: kept,
  static_host_map: hosts,
  ...rest
}: YamlMap): YamlMap {
  const peers = new Set(listOf(kept));
  const entries = Object.entries(isMap(hosts) ? hosts : {}).filter(([peer]) => !peers.has(peer));
  return { ...rest, static_host_map: Object.fromEntries(entries) };
}
