// tcp.json: this node reaches lighthouses and relays by TCP because UDP is blocked (TCP fallback). `status` shows it, and config.yml
// gets the forwarders' addresses from it. It survives a restart and a reboot, as the engine's configuration does.

import { networkInterfaces } from "node:os";
import * as v from "valibot";
import { Port } from "../../protocol/values.ts";
import { boundedText } from "../../base/text.ts";
import { parseAddress, withoutPort } from "../../base/ip.ts";
import { isMap, listOf, type YamlMap } from "../../base/yaml.ts";
import { mostTcpWays, type TcpWay } from "../../protocol/organization-files.ts";
import { tcpAddressesKey } from "./config/read-config.ts";
import type { Organization } from "./organizations.ts";
import { stateFile } from "./json-file.ts";
import { permissionsOrNone } from "./permissions.ts";
import { isHub } from "../../protocol/routing/roles.ts";

const OverlayAddress = v.pipe(
  v.string(),
  v.maxLength(45),
  v.check((text) => parseAddress(text) !== undefined),
);
const TcpState = v.object({
  /** RFC 3339. */
  since: boundedText(64),
  /** The other end of the TCP connection: "control.example.org:443". */
  at: boundedText(270),
  /**
   * The ports of this node's forwarders on loopback, by the overlay address of a lighthouse or relay. Empty: UDP was found to be
   * blocked, and no forwarder runs yet.
   */
  ports: v.pipe(v.record(OverlayAddress, Port), v.maxEntries(mostTcpWays)),
});
export type TcpState = v.InferOutput<typeof TcpState>;

/** Without the file, this node goes by UDP. `status` of users reads it. */
export const { read: readTcpState, write: writeTcpState } = stateFile("tcp.json", TcpState, 0o644);

type Place = Pick<Organization, "directory" | "config">;

/** How lighthouses and relays are reached by TCP, by overlay address. Empty if root does not permit TCP fallback. */
export function tcpWaysOf(place: Place): Record<string, TcpWay> {
  return isTcpOff(place) ? {} : (place.config.tcp ?? {});
}

export function isTcpOff({ directory }: Pick<Place, "directory">): boolean {
  return permissionsOrNone(directory).tcp_fallback.includes("off");
}

/** Where root lets the agent of a lighthouse or relay listen: "192.0.2.1:443", ":443". */
export function tcpListenersOf({ directory, config }: Place): string[] {
  if (!isHub(config)) return [];
  return permissionsOrNone(directory).tcp_fallback.filter((entry) => entry !== "off");
}

export const tcpPortOf = (listener: string): number => Number(/:(\d+)$/.exec(listener)?.[1] ?? 0);

const loopback = "127.0.0.1";

/**
 * Adds the forwarders to static_host_map: the engine tries them beside the addresses that the control plane sent. `tcp_addresses`
 * lists them for this program, which must not take them for addresses of lighthouses (read-config.ts); engines ignore it.
 */
export function withTcpAddresses(config: YamlMap, state: TcpState | undefined): YamlMap {
  const { static_host_map: map } = config;
  if (state === undefined || !isMap(map)) return config;
  const added = Object.entries(state.ports).flatMap(([peer, port]): [string, string][] =>
    Object.hasOwn(map, peer) ? [[peer, `${loopback}:${port}`]] : [],
  );
  if (added.length === 0) return config;
  const widened = added.map(([peer, forwarder]) => [peer, [...listOf(map[peer]), forwarder]]);
  return {
    ...config,
    static_host_map: { ...map, ...Object.fromEntries(widened) },
    [tcpAddressesKey]: added.map(([, forwarder]) => forwarder),
  };
}

/**
 * How the engine's address of a peer is shown: "TCP 443" for a forwarder of this node, and "TCP" on a lighthouse for a node that
 * comes by a forwarder of its machine (datagrams/forwarder.ts).
 */
export function remoteLabels(directory: string): (remote: string) => string {
  const state = readTcpState(directory);
  const interfaces = Object.values(networkInterfaces()).flatMap((addresses = []) => addresses);
  const ownAddresses = new Set(interfaces.flatMap(({ address, internal }) => (internal ? [] : [address])));
  const forwarders = new Set(Object.values(state?.ports ?? {}).map((port) => `${loopback}:${port}`));
  return (remote) => {
    if (forwarders.has(remote)) return `TCP ${tcpPortOf(state?.at ?? "")}`;
    return ownAddresses.has(withoutPort(remote)) ? "TCP" : remote;
  };
}

/** The TCP fallback as `status` shows it. */
export function tcpShown(directory: string): Pick<TcpState, "since" | "at"> | undefined {
  const state = readTcpState(directory);
  return state === undefined ? undefined : { at: state.at, since: state.since };
}
