// The part of grants.ts about listeners: where the engine of an organization may bind, and where it may send metrics and
// handshakes.

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
import { isMap, valueAt, type YamlValue } from "../../../base/yaml.ts";
import { dropSection, leaveOut, setKeys, type Asked } from "./grant-asked.ts";
import { ownNetworks, takenPort, type Tenant } from "./machine-facts.ts";

// Listeners of the engine itself

const isEverywhere = (host: string) => ["::", "[::]", "0.0.0.0"].includes(host);

export function decideListenHost(asked: Asked): void {
  const { inForce, machine, result, permissions } = asked;
  const host = valueAt(result.granted, "listen.host");
  if (typeof host !== "string") return;
  // Such a kernel refuses the socket for both families, so the engine would not start.
  if (isEverywhere(host) && !machine.hasIpv6) return setKeys(asked, "listen", { host: "0.0.0.0" });
  if (isEverywhere(host)) return;
  const address = canonicalAddress(host);
  const { attached } = ownNetworks(machine);
  const ours = new Set(attached.map(({ device }) => device));
  const isThere = machine.addresses.some((each) => ours.has(each.device) && isAddress(each.address, address));
  const isAllowed = permissions.listeners.some((each) => withoutPort(each) === address);
  if (isThere || isAllowed || (host === inForce.listen?.host && !isLoopback(host))) return;
  leaveOut(asked, "listen.host", "it is not an address of this machine's interfaces");
  setKeys(asked, "listen", { host: undefined });
}

export function decideListenPort(asked: Asked): void {
  const { inForce, others, permissions, machine, result } = asked;
  const port = valueAt(result.granted, "listen.port");
  if (typeof port !== "number" || port === 0) return;
  const present = inForce.listen?.port;
  const isAllowed = port >= firstFreePort || permissions.listeners.includes(`:${port}`);
  if (port === present) {
    if (!isAllowed)
      result.kept.push({ key: `listen.port ${port}`, flag: "allow-listeners", entry: `:${port}` });
    return;
  }
  const owner = ownerOf(port, others);
  const isTaken = machine.sockets().some((each) => each.protocol === "udp" && each.port === port);
  if (owner === undefined && isAllowed && !isTaken) return;
  if (owner !== undefined) leaveOut(asked, "listen.port", usedBy(owner));
  else if (!isAllowed) leaveOut(asked, "listen.port", "ports below 1024 need --allow-listeners");
  else {
    leaveOut(asked, "listen.port", `another program of this machine has taken UDP port ${port}`);
    result.waiting.push(takenPort(port));
  }
  setKeys(asked, "listen", { port: present ?? 0 });
}

/** Ports below it belong to the system's services. */
const firstFreePort = 1024;

function ownerOf(port: number, others: readonly Tenant[]): string | undefined {
  return others.find(({ inForce }) => inForce.listen?.port === port || inForce.dns?.port === port)?.slug;
}

const usedBy = (slug: string) => `the organization "${slug}" uses this port on this machine`;

/** The mark chooses among the machine's routing tables, around a VPN for example. */
export function decideMark(asked: Asked): void {
  const mark = valueAt(asked.result.granted, "listen.so_mark");
  if (mark === undefined || mark === 0 || mark === asked.inForce.listen?.so_mark) return;
  leaveOut(asked, "listen.so_mark", "only overrides.yml of this machine may set it");
  setKeys(asked, "listen", { so_mark: undefined });
}

// Listeners beside it

export function decideDns(asked: Asked): void {
  const { inForce, others, result } = asked;
  const [host, port] = ["host", "port"].map((key) => valueAt(result.granted, `lighthouse.dns.${key}`));
  // Without a host the engine answers on every interface. Without serve_dns it does not answer.
  const isMeant = host !== undefined || valueAt(result.granted, "lighthouse.serve_dns") === true;
  const owner = typeof port === "number" && port !== inForce.dns?.port ? ownerOf(port, others) : undefined;
  if (owner === undefined && !isMeant) return;
  const listener = { host, port: typeof port === "number" ? port : 53 };
  const refusal =
    owner === undefined
      ? listenerRefusal(asked, "lighthouse.dns", "udp", listener, inForce.dns)
      : (["lighthouse.dns.port", usedBy(owner)] as const);
  if (refusal === undefined) return;
  leaveOut(asked, ...refusal);
  setKeys(asked, "lighthouse", { dns: undefined, serve_dns: undefined });
}

export function decideMetrics(asked: Asked): void {
  const listen = valueAt(asked.result.granted, "stats.listen");
  if (listen === undefined) return;
  const refusal = listenerRefusal(
    asked,
    "stats",
    "tcp",
    hostPort(listen),
    hostPort(asked.inForce.stats?.listen),
  );
  if (refusal === undefined) return;
  leaveOut(asked, "stats.listen", refusal[1]);
  dropSection(asked, "stats");
}

type Listener = { host?: YamlValue | undefined; port?: number | undefined };

function hostPort(text: YamlValue | undefined): Listener {
  if (typeof text !== "string") return {};
  return { host: withoutPort(text), port: portOf(text) };
}

/** The organization may listen on its overlay addresses. Root must allow any other address. */
function listenerRefusal(
  { addresses, permissions, machine, result }: Asked,
  key: string,
  protocol: "udp" | "tcp",
  { host, port }: Listener,
  present: Listener | undefined,
): readonly [key: string, reason: string] | undefined {
  const address = typeof host === "string" ? canonicalAddress(host.replace(/^\[(.*)\]$/, "$1")) : "";
  const isOwn = addresses.some((each) => canonicalAddress(each) === address);
  const isAllowed = address !== "" && permissions.listeners.includes(entryOf(address, port));
  if (!isOwn && !isAllowed)
    return [
      `${key}.host`,
      "it may listen only on this node's overlay address, or where --allow-listeners says",
    ];
  const isForNames = key === "lighthouse.dns" && port === 53;
  const needsPermission = !isAllowed && !isForNames && (port ?? 0) < firstFreePort;
  const entry = entryOf(address, port);
  if (present?.host === host && present?.port === port) {
    if (needsPermission) result.kept.push({ key: `${key} ${entry}`, flag: "allow-listeners", entry });
    return undefined;
  }
  if (needsPermission) return [`${key}.port`, "ports below 1024 need --allow-listeners"];
  const taken = machine
    .sockets()
    .some(
      (each) =>
        each.protocol === protocol &&
        each.port === port &&
        (each.address === undefined || each.address === address),
    );
  if (!taken) return undefined;
  return [
    `${key}.port`,
    `another program of this machine has taken ${protocol.toUpperCase()} port ${port ?? 0}`,
  ];
}

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

function graphiteRefusal(
  target: string,
  { addresses, inForce, machine, others, permissions, result }: Asked,
): string | undefined {
  const host = withoutPort(target);
  const address = parseAddress(host);
  const entry = address === undefined ? target : entryOf(canonicalAddress(host), hostPort(target).port);
  if (permissions.listeners.includes(entry)) return undefined;
  if (address === undefined) {
    if (target !== inForce.stats?.host || isLoopback(host))
      return "a name may lead to a service of this machine: enter an address";
    result.kept.push({ key: `stats.host ${target}`, flag: "allow-listeners", entry: target });
    return undefined;
  }
  const own = [...machine.addresses.map((each) => each.address), ...addresses];
  const isOurs = isLoopback(host) || own.some((each) => isAddress(each, canonicalAddress(host)));
  return isOurs ? "it is an address of this machine" : inNetworkOf(others, address);
}

const isAddress = (withPrefix: string, address: string) =>
  canonicalAddress(withPrefix.replace(/\/\d+$/, "")) === address;

/** Addresses that only another organization's tunnels reach. */
function inNetworkOf(others: Asked["others"], address: Address): string | undefined {
  const other = others.find(({ networks, routes }) =>
    parseNetworks([...networks, ...routes]).some((each) => networkContains(each, address)),
  );
  return other && `it is in the network of the organization "${other.slug}"`;
}

/**
 * Where the engine sends its handshakes: lighthouses and relays outside of any overlay. The engine does not start with one
 * that is reachable through its own tunnels only, and through another organization's it would write to that one's hosts.
 */
export function decideHubs(asked: Asked): void {
  const { inForce, networks, others, permissions, result } = asked;
  const map = result.granted["static_host_map"];
  if (!isMap(map)) return;
  const own = parseNetworks(networks);
  const refusal = (entry: string): string | undefined => {
    const host = withoutPort(entry);
    if (isLoopback(host)) return `${host} leads this machine to itself, its own link or nowhere`;
    const address = parseAddress(host);
    if (address === undefined) return undefined;
    if (own.some((each) => networkContains(each, address)))
      return `${host} is an address of the overlay itself`;
    const target = entryOf(canonicalAddress(host), hostPort(entry).port);
    const foreign = permissions.listeners.includes(target) ? undefined : inNetworkOf(others, address);
    if (foreign === undefined || inForce.hubs?.includes(entry) !== true)
      return foreign && `${host}: ${foreign}`;
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

/** Includes names of this machine, "any address", link-local addresses, and those that no host has. */
export const isLoopback = (host: string): boolean => host === "" || specialHost(host) !== undefined;
