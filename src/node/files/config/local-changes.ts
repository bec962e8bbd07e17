// Changes of config.yml by this machine itself. To heal tunnels: underlay addresses that it denies for a while, how soon
// relayed tunnels try the direct path, and which relays it has chosen. For networks behind nodes: the router that it uses. For
// the time without a lighthouse: underlay addresses of peers. Each is a file beside the control socket, from which every
// rewriting of config.yml adds it again.

import { join } from "node:path";
import * as v from "valibot";
import { writeFileAtomic } from "../../../base/files.ts";
import { holdsNetwork, parseAddress, parseNetwork } from "../../../base/ip.ts";
import { makeSocketDirectory, socketDirectory } from "../../../platform/systemd/control-socket.ts";
import { isMap, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { maxKeptPeers, maxRemotes } from "../../../protocol/path-report.ts";
import { readValidJson } from "../json-file.ts";
import { gatewaysKey, keptPeersKey, type Gateway } from "./read-config.ts";

const maxDenied = 20;
const IpAddress = v.pipe(
  v.string(),
  v.maxLength(45),
  v.check((text) => parseAddress(text) !== undefined, "Enter an IP address."),
);
const maxRelays = 8;
/** To heal tunnels. */
const LocalChanges = v.object({
  /** Underlay addresses. */
  denied: v.pipe(v.array(IpAddress), v.maxLength(maxDenied)),
  /** `counters.try_promote`: after how many packets a relayed tunnel tries the direct path. */
  try_promote: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000))),
  /** Overlay addresses. */
  relays: v.exactOptional(v.pipe(v.array(IpAddress), v.maxLength(maxRelays))),
});
export type LocalChanges = v.InferOutput<typeof LocalChanges>;

const noChanges: LocalChanges = { denied: [] };
export const localChangesPath = (directory: string): string =>
  join(directory, socketDirectory, "local-changes.json");

/** No changes if the file does not exist or is damaged. */
export function readLocalChanges(directory: string): LocalChanges {
  return readValidJson(localChangesPath(directory), LocalChanges) ?? noChanges;
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
  const sentList = isMap(lighthouse["remote_allow_list"]) ? lighthouse["remote_allow_list"] : {};
  return { ...changed, lighthouse: { ...lighthouse, remote_allow_list: withDenied(sentList, denied) } };
}

/**
 * An allow-list of the engine (network to true or false) that also denies these addresses. Without an entry for all addresses of
 * a family, the engine takes the opposite of the entries that are there; with both values it demands one. So the entry that keeps
 * what the sent list means is added.
 */
function withDenied(sentList: YamlMap, denied: readonly string[]): YamlMap {
  const list = { ...sentList };
  for (const address of denied) list[`${address}/${isIpv6(address) ? 128 : 32}`] = false;
  for (const all of ["0.0.0.0/0", "::/0"]) {
    const isOfFamily = (network: string) => isIpv6(network) === isIpv6(all);
    if (list[all] !== undefined || !Object.keys(list).some(isOfFamily)) continue;
    const permitsSome = Object.entries(sentList).some(
      ([network, isAllowed]) => isOfFamily(network) && isAllowed === true,
    );
    list[all] = !permitsSome;
  }
  return list;
}

const isIpv6 = (text: string) => text.includes(":");

/** With only those of the chosen relays that the control plane still names. If it names none of them, its own list stays. */
function withRelays(config: YamlMap, chosen: readonly string[]): YamlMap {
  const relay = isMap(config["relay"]) ? config["relay"] : {};
  const named = Array.isArray(relay["relays"]) ? relay["relays"] : [];
  const map = isMap(config["static_host_map"]) ? config["static_host_map"] : {};
  // Under a seal a relay has two overlay addresses with the same underlay. It was chosen by the one that the control plane sent.
  const isChosen = (address: string) =>
    chosen.some((other) => other === address || (address in map && Bun.deepEquals(map[other], map[address])));
  const relays = named.filter((address) => typeof address === "string" && isChosen(address));
  return relays.length === 0 ? config : { ...config, relay: { ...relay, relays } };
}

/** The underlay addresses with ports of peers ("192.0.2.1:4242"), by overlay address, as the engine had them. */
const PeerMap = v.pipe(
  v.record(IpAddress, v.pipe(v.array(v.pipe(v.string(), v.maxLength(64))), v.maxLength(maxRemotes))),
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
  const hasIpv6 = isMap(listen) && typeof listen["host"] === "string" && isIpv6(listen["host"]);
  const kept = Object.entries(map).flatMap(([peer, remotes]): [string, string[]][] => {
    const usable = remotes.filter((remote) => hasIpv6 || !remote.startsWith("["));
    return Object.hasOwn(hubs, peer) || usable.length === 0 ? [] : [[peer, usable]];
  });
  if (kept.length === 0) return config;
  return {
    ...config,
    static_host_map: { ...hubs, ...Object.fromEntries(kept) },
    [keptPeersKey]: kept.map(([peer]) => peer),
  };
}

/** The overlay address of a router, by network. */
const Routers = v.pipe(v.record(v.pipe(v.string(), v.maxLength(64)), IpAddress), v.maxEntries(4096));
/** `via`: the routers in use. `kept`: hosts ("10.9.0.7/32") whose flows stay with another router until they end. */
const RouteChoice = v.object({ via: Routers, kept: Routers });
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
 * The control plane sends one entry for each router of a network, the preferred one last. The engine gets one of them: the chosen
 * one, if the control plane still names it, else the preferred one. `route_gateways` names them all, the preferred one first.
 */
export function withRouteChoice(config: YamlMap, { via: chosen, kept }: RouteChoice): YamlMap {
  const sent = valueAt(config, "tun.unsafe_routes");
  if (!Array.isArray(sent)) return config;
  const byNetwork = Map.groupBy(sent, (entry) =>
    isMap(entry) && typeof entry["route"] === "string" ? entry["route"] : "",
  );
  const gateways = new Map<string, Gateway[]>();
  const routes = [...byNetwork].flatMap(([network, entries]): YamlValue[] => {
    const preferred = entries.at(-1);
    if (entries.length === 1 || !isMap(preferred)) return entries;
    const routers = entries.flatMap((entry): Gateway[] => {
      if (!isMap(entry) || typeof entry["via"] !== "string") return [];
      const { via, metric } = entry;
      return [{ via, metric: typeof metric === "number" ? metric : 0 }];
    });
    gateways.set(network, routers.toReversed());
    const isNamed = (router: string) => routers.some(({ via }) => via === router);
    const { metric: _, ...route } = preferred;
    const choice = chosen[network];
    const hosts = Object.entries(kept).filter(
      ([host, router]) => isInNetwork(host, network) && isNamed(router),
    );
    return [
      choice !== undefined && isNamed(choice) ? { ...route, via: choice } : route,
      ...hosts.map(([host, router]) => ({ ...route, route: host, via: router })),
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
  const inner = parseNetwork(host);
  const outer = parseNetwork(network);
  return inner !== undefined && outer !== undefined && holdsNetwork(outer, inner);
}
