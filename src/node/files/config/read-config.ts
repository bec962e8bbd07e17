// Reads a config.yml in force. Loaded by commands that run every minute: no schemas and no certificates here.

import { AppError } from "../../../base/errors.ts";
import { textOrEmpty } from "../../../base/files.ts";
import { withoutPort } from "../../../base/ip.ts";
import { listenPlaceIn } from "../../../engine/listen-place.ts";
import { isMap, listOf, valueAt, type YamlMap } from "../../../base/yaml.ts";
import { readOwnYaml, readYaml } from "./read-yaml.ts";

/**
 * Whether the log level of a config.yml hides the engine's messages that it is ready or has reloaded. False for a damaged
 * configuration: the code that applies it reports the damage.
 */
export function isSilent(configYml: string): boolean {
  try {
    return isSilentLevel(valueAt(readOwnYaml(configYml, "config.yml"), "logging.level"));
  } catch (error) {
    if (error instanceof AppError) return false;
    throw error;
  }
}

/** Whether the level is above info, at which the engine says that it is ready or has reloaded. */
export function isSilentLevel(level: unknown): boolean {
  return typeof level === "string" && /^(warn|warning|error|fatal|panic)$/i.test(level);
}

/**
 * Call it before a change of config.yml, whose text `configText` reads. Returns a function for after the change: whether the log level
 * hides the engine's messages, in the text before or in the one after. The engine may log with either level meanwhile.
 */
export function rememberSilence(configText: () => string): () => boolean {
  // An unreadable file must not prevent the engine from being stopped.
  const text = () => {
    try {
      return configText();
    } catch {
      return "";
    }
  };
  // Read the text now, but parse it only on demand: most commands change nothing.
  const before = text();
  return () => isSilent(before) || isSilent(text());
}

/** The UDP port that an organization's engine binds; 0 if it takes any free port, or if config.yml is damaged. */
export function listenPort(directory: string): number {
  return listenPlace(directory).port;
}

/** Where the engine binds its UDP socket. `port`: 0: any free one. `host`: undefined: all addresses. */
export function listenPlace(directory: string): { port: number; host: string | undefined } {
  try {
    const text = textOrEmpty(directory, "config.yml");
    const { host, port = 0 } = listenPlaceIn(readOwnYaml(text, "config.yml"));
    return { port, host };
  } catch {
    // Other code reports the damage, and no engine runs with such a file.
    return { port: 0, host: undefined };
  }
}

/**
 * Whether the engine is a relay, which forwards packets between other nodes. True for a damaged file, so that no relayed connection
 * is closed because of it (report-relayed.ts): other code reports the damage.
 */
export function isForwarding(configYml: string): boolean {
  try {
    return valueAt(readOwnYaml(configYml, "config.yml"), "relay.am_relay") === true;
  } catch {
    return true;
  }
}

/** The overlay addresses of the lighthouses in a configuration. */
export function lighthouseHosts(configYml: string): string[] {
  const hosts = listOf(valueAt(readYaml(configYml, "config.yml"), "lighthouse.hosts"));
  return hosts.filter((host) => typeof host === "string");
}

/** The interface that a configuration names. Undefined for a name that Linux would refuse or cut off. */
export function tunnelDevice(configYml: string): string | undefined {
  const device = valueAt(readYaml(configYml, "config.yml"), "tun.dev");
  return typeof device === "string" && /^(?!\.{1,2}$)[\w.-]{1,15}$/.test(device) ? device : undefined;
}

/** In config.yml: the entries of static_host_map that are no lighthouses and relays (peer-map.ts). Engines ignore it. */
export const keptPeersKey = "kept_peers";

/** In config.yml: the addresses in static_host_map that are this node's own forwarders (tcp-state.ts). Engines ignore it. */
export const tcpAddressesKey = "tcp_addresses";

/** static_host_map without what this machine has added: the underlay of lighthouses and relays, by overlay address. */
function hubsIn(config: YamlMap): YamlMap {
  const map = config["static_host_map"];
  const kept = new Set(listOf(config[keptPeersKey]));
  const forwarders = new Set(listOf(config[tcpAddressesKey]));
  const hubs = Object.entries(isMap(map) ? map : {}).filter(([overlay]) => !kept.has(overlay));
  return Object.fromEntries(
    hubs.map(([overlay, entries]) => [overlay, listOf(entries).filter((entry) => !forwarders.has(entry))]),
  );
}

/** A node's roles, and its lighthouses. */
export function overlayRoles(configYml: string): {
  lighthouses: string[];
  relays: string[];
  /** Underlay addresses and names of lighthouses and relays. */
  underlays: string[];
  isLighthouse: boolean;
  isRelay: boolean;
} {
  const config = readOwnYaml(configYml, "config.yml");
  const texts = (path: string) => listOf(valueAt(config, path)).filter((value) => typeof value === "string");
  return {
    lighthouses: texts("lighthouse.hosts"),
    relays: texts("relay.relays"),
    underlays: Object.values(hubsIn(config))
      .flatMap(listOf)
      .flatMap((entry) => (typeof entry === "string" ? [withoutPort(entry)] : [])),
    isLighthouse: valueAt(config, "lighthouse.am_lighthouse") === true,
    isRelay: valueAt(config, "relay.am_relay") === true,
  };
}

/** The underlay addresses, with ports, that the node tells lighthouses itself. */
export function advertisedAddresses(configYml: string): string[] {
  const addresses = listOf(valueAt(readOwnYaml(configYml, "config.yml"), "lighthouse.advertise_addrs"));
  return addresses.filter((address) => typeof address === "string");
}

/** Settings for the health of an organization beside the roles. `mtu`: undefined for the engine's default. */
export function overlaySettings(configYml: string): {
  mtu: number | undefined;
  /** Fingerprints of revoked certificates. */
  blocklist: ReadonlySet<string>;
} {
  const config = readOwnYaml(configYml, "config.yml");
  const mtu = valueAt(config, "tun.mtu");
  const blocked = listOf(valueAt(config, "pki.blocklist")).filter((entry) => typeof entry === "string");
  return { mtu: typeof mtu === "number" ? mtu : undefined, blocklist: new Set(blocked) };
}

/** The addresses or names, with ports, at which lighthouses and relays are reached. */
export function staticHosts(configYml: string): { overlay: string; host: string; port: number }[] {
  return Object.entries(hubsIn(readOwnYaml(configYml, "config.yml"))).flatMap(([overlay, entries]) =>
    listOf(entries).flatMap((entry) => {
      const [, bracketed, host = bracketed, port] =
        (typeof entry === "string" && /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(entry)) || [];
      return host === undefined ? [] : [{ overlay, host, port: Number(port) }];
    }),
  );
}

/** The same of lighthouses only. */
export function underlayOf(configYml: string): { lighthouse: string; host: string; port: number }[] {
  const hosts = staticHosts(configYml);
  return overlayRoles(configYml).lighthouses.flatMap((lighthouse) =>
    hosts.flatMap(({ overlay, host, port }) => (overlay === lighthouse ? [{ lighthouse, host, port }] : [])),
  );
}

/** In config.yml: all routers of the networks that have several (route-choice.ts). Engines ignore it. */
export const gatewaysKey = "route_gateways";

/** A router of a network: its overlay address, and its cost. */
export type Gateway = { via: string; metric: number };

/** The networks with several routers, each with those in the order of the control plane, the preferred one first. */
export const routeGateways = (configYml: string): Map<string, Gateway[]> =>
  gatewaysOf(readOwnYaml(configYml, "config.yml"));

/** Whether a network of this organization has several routers. */
export const hasSeveralRouters = (directory: string): boolean =>
  routeGateways(textOrEmpty(directory, "config.yml")).size > 0;

function gatewaysOf({ [gatewaysKey]: byNetwork }: YamlMap): Map<string, Gateway[]> {
  return new Map(
    Object.entries(isMap(byNetwork) ? byNetwork : {}).map(([network, routers]) => [
      network,
      listOf(routers).flatMap((router) =>
        isMap(router) && typeof router["via"] === "string"
          ? [{ via: router["via"], metric: Number(router["metric"] ?? 0) }]
          : [],
      ),
    ]),
  );
}

/**
 * The subnets that this node reaches through others, each with the overlay addresses of its routers, the one in use first. Without
 * the routes of an exit (`install: false`).
 */
export function unsafeRoutes(configYml: string): { network: string; routers: string[] }[] {
  const config = readOwnYaml(configYml, "config.yml");
  const gateways = gatewaysOf(config);
  return listOf(valueAt(config, "tun.unsafe_routes")).flatMap((entry) => {
    if (!isMap(entry) || typeof entry["route"] !== "string" || entry["install"] === false) return [];
    const { route: network, via } = entry;
    const gatewaysInUse = Array.isArray(via)
      ? via.map((way) => (isMap(way) ? way["gateway"] : undefined))
      : [via];
    const used = gatewaysInUse.filter((router) => typeof router === "string");
    const others = gateways.get(network)?.map((gateway) => gateway.via) ?? [];
    return [{ network, routers: [...new Set([...used, ...others])] }];
  });
}
