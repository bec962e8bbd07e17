// peer-map.json: underlay addresses of peers, as the engine had them (health/paths/kept-peers.ts). With them in config.yml, this node
// still reaches its peers while no lighthouse answers. The file is beside the control socket.

import { join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../../base/text.ts";
import { writeFileAtomic } from "../../../base/files.ts";
import { isMap, type YamlMap } from "../../../base/yaml.ts";
import { makeSocketDirectory, socketDirectory } from "../../../platform/systemd/control-socket.ts";
import { maxKeptPeers, maxRemotes } from "../../../protocol/path-report.ts";
import { readValidJson } from "../json-file.ts";
import { IpAddress } from "./local-changes.ts";
import { keptPeersKey } from "./read-config.ts";

/** The underlay addresses with ports of peers ("192.0.2.1:4242"), by overlay address, as the engine had them. */
const PeerMap = v.pipe(
  v.record(IpAddress, v.pipe(v.array(boundedText(64)), v.maxLength(maxRemotes))),
  v.maxEntries(maxKeptPeers),
);
export type PeerMap = v.InferOutput<typeof PeerMap>;

export const peerMapPath = (directory: string) => join(directory, socketDirectory, "peer-map.json");

/** Empty if the file does not exist or is damaged. */
export function readPeerMap(directory: string): PeerMap {
  return readValidJson(peerMapPath(directory), PeerMap) ?? {};
}

/** Readable for root alone: the map shows which peers this node knows. */
export function writePeerMap(directory: string, map: PeerMap): void {
  makeSocketDirectory(directory);
  writeFileAtomic(peerMapPath(directory), `${JSON.stringify(map)}\n`, 0o600);
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
