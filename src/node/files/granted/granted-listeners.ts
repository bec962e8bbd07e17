// The part of grants.ts about listeners: where the engine of an organization may bind, and where it may send metrics and
// handshakes. `result.kept` collects settings that stay only because they were in force before: a new one would need the permission
// that stands beside each.

import {
  canonicalAddress,
  networkContains,
  parseAddress,
  parseNetworks,
  portOf,
  specialHost,
  withoutPort,
  type Address,
} from "../../../base/ip.ts";
import { defaultOverlayPort } from "../../../api/values.ts";
import { isMap, valueAt, type YamlValue } from "../../../base/yaml.ts";
import type { LeftOut } from "../../../engine/left-out.ts";
import { dropSection, leaveOut, setKeys, type Asked } from "./grant-asked.ts";
import { ownNetworks, takenPort, type Tenant } from "./machine-facts.ts";

// Listeners of the engine itself

const isEverywhere = (host: string) => ["::", "[::]", "0.0.0.0"].includes(host);

/** Where the engine binds its UDP socket: all addresses, or one of this machine's own. */
export function decideListenHost(asked: Asked): void {
  const { inForce, machine, result, permissions } = asked;
  const host = valueAt(result.granted, "listen.host");
  if (typeof host !== "string") return;
  // Such a kernel refuses the socket for both families, so the engine would not start.
  if (isEverywhere(host) && !machine.hasIpv6) return setKeys(asked, "listen", { host: "0.0.0.0" });
  if (isEverywhere(host)) return;
  const address = canonicalAddress(host);
  /** The machine's interfaces, without those of overlays. */
  const devices = new Set(ownNetworks(machine).attached.map(({ device }) => device));
  const isThere = machine.addresses.some((own) => devices.has(own.device) && isAddress(own.address, address));
  const isAllowed = permissions.listeners.some((entry) => withoutPort(entry) === address);
  if (isThere || isAllowed) return;
  if (host === inForce.listen?.host && !isSpecialHost(host)) {
    // Any port of the address is enough.
    const entry = entryOf(address, inForce.listen.port || defaultOverlayPort);
    result.kept.push({ key: `listen.host ${host}`, flag: "allow-listeners", entry });
    return;
  }
  leaveOut(asked, "listen.host", "it is not an address of this machine's interfaces");
  setKeys(asked, "listen", { host: undefined });
}

/** The engine's UDP port. If another one is refused, the one in force stays. */
export function decideListenPort(asked: Asked): void {
  const { inForce, others, permissions, machine, result } = asked;
  const port = valueAt(result.granted, "listen.port");
  if (typeof port !== "number" || port === 0) return;
  const portInForce = inForce.listen?.port;
  const isAllowed = port >= firstFreePort || permissions.listeners.includes(`:${port}`);
  if (port === portInForce) {
    if (!isAllowed)
      result.kept.push({ key: `listen.port ${port}`, flag: "allow-listeners", entry: `:${port}` });
    return;
  }
  const owner = ownerOf(port, others);
  const isTaken = machine.sockets().some((socket) => socket.protocol === "udp" && socket.port === port);
  if (owner === undefined && isAllowed && !isTaken) return;
  if (owner !== undefined) leaveOut(asked, "listen.port", usedBy(owner));
  else if (!isAllowed) leaveOut(asked, "listen.port", "ports below 1024 need --allow-listeners");
  else {
    leaveOut(asked, "listen.port", `another program of this machine has taken UDP port ${port}`);
    // Decided again once the port is free.
    result.waiting.push(takenPort(port));
  }
  setKeys(asked, "listen", { port: portInForce ?? 0 });
}

/** Ports below it belong to the system's services. */
const firstFreePort = 1024;
const dnsPort = 53;

function ownerOf(port: number, others: readonly Tenant[]): string | undefined {
  return others.find(({ inForce }) => inForce.listen?.port === port || inForce.dns?.port === port)?.slug;
}

const usedBy = (slug: string) => `the organization "${slug}" uses this port on this machine`;

/** A mark chooses among the machine's routing tables. An organization could lead packets around a VPN with it, for example. */
export function decideMark(asked: Asked): void {
  const mark = valueAt(asked.result.granted, "listen.so_mark");
  if (mark === undefined || mark === 0 || mark === asked.inForce.listen?.so_mark) return;
  leaveOut(asked, "listen.so_mark", "only overrides.yml of this machine may set it");
  setKeys(asked, "listen", { so_mark: undefined });
}

// Other listeners of the engine: its name server, and its metrics

/** Where a lighthouse answers questions for names. */
export function decideDns(asked: Asked): void {
  const { inForce, others, result } = asked;
  const host = valueAt(result.granted, "lighthouse.dns.host");
  const port = valueAt(result.granted, "lighthouse.dns.port");
  // Without a host the engine answers on every interface. Without serve_dns it does not answer.
  const isMeant = host !== undefined || valueAt(result.granted, "lighthouse.serve_dns") === true;
  const owner = typeof port === "number" && port !== inForce.dns?.port ? ownerOf(port, others) : undefined;
  if (owner === undefined && !isMeant) return;
  const listener = { host, port: typeof port === "number" ? port : dnsPort };
  const refusal =
    owner === undefined
      ? listenerRefusal(asked, "lighthouse.dns", "udp", listener, inForce.dns)
      : { key: "lighthouse.dns.port", reason: usedBy(owner) };
  if (refusal === undefined) return;
  leaveOut(asked, refusal.key, refusal.reason);
  setKeys(asked, "lighthouse", { dns: undefined, serve_dns: undefined });
}

/** Where the engine offers its metrics. */
export function decideMetrics(asked: Asked): void {
  const listen = valueAt(asked.result.granted, "stats.listen");
  if (listen === undefined) return;
  const listenerInForce = hostPort(asked.inForce.stats?.listen);
  const refusal = listenerRefusal(asked, "stats", "tcp", hostPort(listen), listenerInForce);
  if (refusal === undefined) return;
  leaveOut(asked, "stats.listen", refusal.reason);
  dropSection(asked, "stats");
}

type Listener = { host?: YamlValue | undefined; port?: number | undefined };

function hostPort(text: YamlValue | undefined): Listener {
  if (typeof text !== "string") return {};
  return { host: withoutPort(text), port: portOf(text) };
}

/** Why a listener is refused. An organization may listen on its overlay addresses; root must allow any other one. */
function listenerRefusal(
  { addresses, permissions, machine, result }: Asked,
  key: string,
  protocol: "udp" | "tcp",
  { host, port }: Listener,
  listenerInForce: Listener | undefined,
): LeftOut | undefined {
  const address = typeof host === "string" ? canonicalAddress(host.replace(/^\[(.*)\]$/, "$1")) : "";
  const entry = entryOf(address, port);
  const isOwn = addresses.some((own) => canonicalAddress(own) === address);
  const isAllowed = address !== "" && permissions.listeners.includes(entry);
  if (!isOwn && !isAllowed) {
    const reason = "it may listen only on this node's overlay address, or where --allow-listeners says";
    return { key: `${key}.host`, reason };
  }
  const isForNames = key === "lighthouse.dns" && port === dnsPort;
  const needsPermission = !isAllowed && !isForNames && (port ?? 0) < firstFreePort;
  if (listenerInForce?.host === host && listenerInForce?.port === port) {
    if (needsPermission) result.kept.push({ key: `${key} ${entry}`, flag: "allow-listeners", entry });
    return undefined;
  }
  if (needsPermission) return { key: `${key}.port`, reason: "ports below 1024 need --allow-listeners" };
  const isTaken = machine.sockets().some((socket) => {
    const isAtAddress = socket.address === undefined || socket.address === address;
    return socket.protocol === protocol && socket.port === port && isAtAddress;
  });
  if (!isTaken) return undefined;
  const reason = `another program of this machine has taken ${protocol.toUpperCase()} port ${port ?? 0}`;
  return { key: `${key}.port`, reason };
}

/** How permissions.json writes a listener: "10.77.0.5:8080". */
const entryOf = (address: string, port: number | undefined) =>
  `${address.includes(":") ? `[${address}]` : address}:${port ?? 0}`;

/** Where the engine sends its metrics: not into services of this machine, nor of its other organizations. */
export function decideGraphite(asked: Asked): void {
  const target = valueAt(asked.result.granted, "stats.host");
  if (typeof target !== "string") return;
  const reason = graphiteRefusal(target, asked);
  if (reason === undefined) return;
  leaveOut(asked, "stats.host", reason);
  dropSection(asked, "stats");
}

/** Why metrics must not go there; undefined if they may. A name stays if it is in force from before. */
function graphiteRefusal(
  target: string,
  { addresses, inForce, machine, others, permissions, result }: Asked,
): string | undefined {
  const host = withoutPort(target);
  const address = parseAddress(host);
  const entry = address === undefined ? target : entryOf(canonicalAddress(host), hostPort(target).port);
  if (permissions.listeners.includes(entry)) return undefined;
  if (address === undefined) {
    if (target !== inForce.stats?.host || isSpecialHost(host))
      return "a name may lead to a service of this machine: enter an address";
    result.kept.push({ key: `stats.host ${target}`, flag: "allow-listeners", entry: target });
    return undefined;
  }
  const own = [...machine.addresses.map((attached) => attached.address), ...addresses];
  const isOurs = isSpecialHost(host) || own.some((text) => isAddress(text, canonicalAddress(host)));
  return isOurs ? "it is an address of this machine" : inNetworkOf(others, address);
}

/** Whether a text such as "10.77.0.5/16", or without the prefix length, is this address. */
const isAddress = (withPrefix: string, address: string) =>
  canonicalAddress(withPrefix.replace(/\/\d+$/, "")) === address;

/** Why an address is refused that only another organization's tunnels reach. */
function inNetworkOf(others: Asked["others"], address: Address): string | undefined {
  const other = others.find(({ networks, routes }) =>
    parseNetworks([...networks, ...routes]).some((network) => networkContains(network, address)),
  );
  return other && `it is in the network of the organization "${other.slug}"`;
}

/**
 * Where the engine sends its handshakes: lighthouses and relays, whose addresses must be outside of any overlay. The engine refuses
 * an address of its own overlay. At one of another organization's overlay, it would send packets to that organization's hosts.
 */
export function decideHubs(asked: Asked): void {
  const { inForce, networks, others, permissions, result } = asked;
  const map = result.granted["static_host_map"];
  if (!isMap(map)) return;
  const own = parseNetworks(networks);
  const refusal = (entry: string): string | undefined => {
    const host = withoutPort(entry);
    if (isSpecialHost(host)) return `${host} leads this machine to itself, its own link or nowhere`;
    const address = parseAddress(host);
    if (address === undefined) return undefined;
    if (own.some((network) => networkContains(network, address)))
      return `${host} is an address of the overlay itself`;
    const target = entryOf(canonicalAddress(host), hostPort(entry).port);
    const reason = permissions.listeners.includes(target) ? undefined : inNetworkOf(others, address);
    if (reason === undefined) return undefined;
    if (inForce.hubs?.includes(entry) !== true) return `${host}: ${reason}`;
    result.kept.push({ key: `static_host_map ${entry}`, flag: "allow-listeners", entry: target });
    return undefined;
  };
  const kept = Object.entries(map).map(([ip, entries]): [string, YamlValue] => {
    if (!Array.isArray(entries)) return [ip, entries];
    const usable = entries.filter((entry) => {
      const reason = refusal(typeof entry === "string" ? entry : "");
      if (reason !== undefined) leaveOut(asked, `static_host_map ${ip}`, reason);
      return reason === undefined;
    });
    return [ip, usable];
  });
  result.granted = { ...result.granted, static_host_map: Object.fromEntries(kept) };
}

/** No address of another machine: loopback and its names, "any address", link-local addresses, and those that no host has. */
export const isSpecialHost = (host: string): boolean => host === "" || specialHost(host) !== undefined;
