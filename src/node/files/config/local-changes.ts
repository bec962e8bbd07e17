// Changes of config.yml by this machine itself. To heal tunnels: underlay addresses that it denies for a while, how
// soon relayed tunnels try the direct path, and which relays it has chosen. For networks behind nodes: the router that it
// uses. For the time without a lighthouse: underlay addresses of peers. Kept beside the control socket, so that every rewriting of config.yml keeps it.

import { join } from "node:path";
import * as v from "valibot";
import { writeFileAtomic } from "../../../base/files.ts";
import { holdsNetwork, parseAddress, parseNetwork } from "../../../base/ip.ts";
import { makeSocketDirectory, socketDirectory } from "../../../platform/systemd/control-socket.ts";
import { isMap, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { maxKeptPeers, maxRemotes } from "../../../protocol/path-report.ts";
import { readValidJson } from "../json-file.ts";
import { gatewaysKey, keptPeersKey, type Gateway } from "./read-config.ts";

const most = 20;
const Underlay = v.pipe(
  v.string(),
  v.maxLength(45),
  v.check((text) => parseAddress(text) !== undefined, "Enter an IP address."),
);
const maxRelays = 8;
const LocalChanges = v.object({
  denied: v.pipe(v.array(Underlay), v.maxLength(most)),
  try_promote: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000))),
  /** Overlay addresses. */
  relays: v.exactOptional(v.pipe(v.array(Underlay), v.maxLength(maxRelays))),
});
export type LocalChanges = v.InferOutput<typeof LocalChanges>;

const none: LocalChanges = { denied: [] };
export const localChangesPath = (directory: string): string =>
  join(directory, socketDirectory, "local-changes.json");

/** No changes if the file does not exist or is damaged. */
export function readLocalChanges(directory: string): LocalChanges {
  return readValidJson(localChangesPath(directory), LocalChanges) ?? none;
}

export function writeLocalChanges(directory: string, changes: LocalChanges): void {
  makeSocketDirectory(directory);
  writeFileAtomic(localChangesPath(directory), `${JSON.stringify(changes)}\n`, 0o600);
}

export function withLocalChanges(
  config: YamlMap,
  { denied, try_promote: promote, relays }: LocalChanges,
): YamlMap {
  const promoted = promote === undefined ? config : { ...config, counters: { try_promote: promote } };
  const changed = relays === undefined ? promoted : withRelays(promoted, relays);
  if (denied.length === 0) return changed;
  const lighthouse = isMap(config["lighthouse"]) ? config["lighthouse"] : {};
  const present = isMap(lighthouse["remote_allow_list"]) ? lighthouse["remote_allow_list"] : {};
  const list = { ...present };
  for (const address of denied) list[`${address}/${address.includes(":") ? 128 : 32}`] = false;
  for (const [all, mark] of [
    ["0.0.0.0/0", "."],
    ["::/0", ":"],
  ] as const) {
    const family = Object.entries(list).filter(([network]) => network.includes(mark));
    // The engine's own default is the opposite of the values. With both values, it requires one.
    const before = Object.entries(present).filter(([network]) => network.includes(mark));
    if (family.length > 0 && list[all] === undefined)
      list[all] = !before.some(([, allowed]) => allowed === true);
  }
  return { ...changed, lighthouse: { ...lighthouse, remote_allow_list: list } };
}

/** Only the chosen relays that the control plane still names. If it names none of them, its own list holds. */
function withRelays(config: YamlMap, chosen: readonly string[]): YamlMap {
  const relay = isMap(config["relay"]) ? config["relay"] : {};
  const named = Array.isArray(relay["relays"]) ? relay["relays"] : [];
  const map = isMap(config["static_host_map"]) ? config["static_host_map"] : {};
  // Under a seal a relay has two addresses, at one place. The health knows it by the one that the control plane sent.
  const isChosen = (each: string) =>
    chosen.some((one) => one === each || (each in map && Bun.deepEquals(map[one], map[each])));
  const relays = named.filter((each) => typeof each === "string" && isChosen(each));
  return relays.length === 0 ? config : { ...config, relay: { ...relay, relays } };
}

/** The underlay addresses and ports of peers, by overlay address, as the engine has them. */
const PeerMap = v.pipe(
  v.record(Underlay, v.pipe(v.array(v.pipe(v.string(), v.maxLength(64))), v.maxLength(maxRemotes))),
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
 * The engine sends handshakes to these addresses also without a lighthouse. What the control plane says of lighthouses and
 * relays stands above them. A lighthouse needs none: the nodes come to it.
 */
export function withPeerMap(config: YamlMap, map: PeerMap): YamlMap {
  const { static_host_map: sent, lighthouse, listen } = config;
  const hubs = isMap(sent) ? sent : {};
  if (isMap(lighthouse) && lighthouse["am_lighthouse"] === true) return config;
  const hasIpv6 = isMap(listen) && typeof listen["host"] === "string" && listen["host"].includes(":");
  const kept = Object.entries(map).flatMap(([peer, remotes]): [string, string[]][] => {
    const usable = remotes.filter((each) => hasIpv6 || !each.startsWith("["));
    return Object.hasOwn(hubs, peer) || usable.length === 0 ? [] : [[peer, usable]];
  });
  if (kept.length === 0) return config;
  return {
    ...config,
    static_host_map: { ...hubs, ...Object.fromEntries(kept) },
    [keptPeersKey]: kept.map(([peer]) => peer),
  };
}

const Via = v.pipe(v.record(v.pipe(v.string(), v.maxLength(64)), Underlay), v.maxEntries(4096));
/** By network: the router in use. `kept`: hosts whose flows stay with another router until they end. */
const RouteChoice = v.object({ via: Via, kept: Via });
export type RouteChoice = v.InferOutput<typeof RouteChoice>;

const routeChoicePath = (directory: string) => join(directory, socketDirectory, "route-choice.json");

/** Empty if the file does not exist or is damaged. */
export function readRouteChoice(directory: string): RouteChoice {
  return readValidJson(routeChoicePath(directory), RouteChoice) ?? { via: {}, kept: {} };
}

export function writeRouteChoice(directory: string, choice: RouteChoice): void {
  makeSocketDirectory(directory);
  writeFileAtomic(routeChoicePath(directory), `${JSON.stringify(choice)}\n`, 0o600);
}

/**
 * The control plane sends one entry for each router of a network, the preferred one last. The engine gets one of them, and
 * `route_gateways` names them all. A chosen router that the control plane no longer names does not count.
 */
export function withRouteChoice(config: YamlMap, { via: chosen, kept }: RouteChoice): YamlMap {
  const sent = valueAt(config, "tun.unsafe_routes");
  if (!Array.isArray(sent)) return config;
  const byNetwork = Map.groupBy(sent, (each) =>
    isMap(each) && typeof each["route"] === "string" ? each["route"] : "",
  );
  const gateways = new Map<string, Gateway[]>();
  const routes = [...byNetwork].flatMap(([network, entries]): YamlValue[] => {
    const last = entries.at(-1);
    if (entries.length === 1 || !isMap(last)) return entries;
    const all = entries.flatMap((each): Gateway[] => {
      if (!isMap(each) || typeof each["via"] !== "string") return [];
      const { via, metric } = each;
      return [{ via, metric: typeof metric === "number" ? metric : 0 }];
    });
    gateways.set(network, all.toReversed());
    const { metric: _, ...rest } = last;
    const own = chosen[network];
    const isKnown = own !== undefined && all.some(({ via }) => via === own);
    const hosts = Object.entries(kept).filter(
      ([host, router]) => isInNetwork(host, network) && all.some(({ via }) => via === router),
    );
    return [
      isKnown ? { ...rest, via: own } : rest,
      ...hosts.map(([host, router]) => ({ ...rest, route: host, via: router })),
    ];
  });
  if (gateways.size === 0) return config;
  const tun = isMap(config["tun"]) ? config["tun"] : {};
  return {
    ...config,
    tun: { ...tun, unsafe_routes: routes },
    [gatewaysKey]: Object.fromEntries(gateways),
  };
}

/** Whether the host lies in the network. False if one of the two texts is no network. */
export function isInNetwork(host: string, network: string): boolean {
  const [inner, outer] = [parseNetwork(host), parseNetwork(network)];
  return inner !== undefined && outer !== undefined && holdsNetwork(outer, inner);
}
