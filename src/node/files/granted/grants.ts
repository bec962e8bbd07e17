// The one place that decides what an organization may take of this machine: its interface, its listeners, the hosts that it
// writes to, routes and overlay networks. It decides by allowing, from the machine's state, its administrator's permissions,
// and the seal that is enforced. Registration, every later configuration, `start` and `doctor` ask it. Pure: reads and writes
// nothing.

import {
  deviceName,
  isOurDevice,
  isOverlayDevice,
  readableDeviceName,
} from "../../../engine/interface-names.ts";
import {
  holdsNetwork,
  parseNetworks,
  parseNetwork,
  providerAddresses,
  withoutPort,
  networkTextsOverlap,
} from "../../../base/ip.ts";
import { isMap, listOf, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { networkOfHost, ownNetworks, type Machine, type OfMachine } from "./machine-facts.ts";
import { leaveOut, setKeys, type Asked, type Granted, type Situation } from "./grant-asked.ts";
import {
  decideDns,
  decideGraphite,
  decideHubs,
  decideListenHost,
  decideListenPort,
  decideMark,
  decideMetrics,
  isSpecialHost,
} from "./granted-listeners.ts";
import { sealedConfig } from "./sealed-config.ts";
import type { Permissions } from "../permissions.ts";
import { checkRoutes, overlapsOf, refusedNetworks, type Overlap, type RouteRules } from "./routes.ts";
import { takesInternet } from "./internet-share.ts";

/**
 * The settings that take something of the machine, each with its decision. A test proves that no other setting of the
 * allow-list in engine/allowed-settings.ts does.
 */
export const takings: Readonly<Record<string, (asked: Asked) => void>> = {
  // Lighthouses and relays. Decided first, because routes must not cover the hosts that remain.
  static_host_map: decideHubs,
  "tun.dev": decideDevice,
  "tun.unsafe_routes": decideRoutes,
  "listen.host": decideListenHost,
  "listen.port": decideListenPort,
  "listen.so_mark": decideMark,
  "lighthouse.dns": decideDns,
  "lighthouse.serve_dns": decideDns,
  "stats.listen": decideMetrics,
  "stats.host": decideGraphite,
};

/** The configuration that was sent, without what this machine does not give. grant-asked.ts explains the fields of the result. */
export function grant(sent: YamlMap, situation: Situation): Granted {
  const { machine, slug, seal } = situation;
  // A seal says what the organization wants; the machine's rules hold for that too.
  const wanted = seal === undefined ? sent : sealedConfig(sent, seal.self, seal.engine);
  // `tenants`: the organizations of this machine.
  const own = machine.tenants.find((tenant) => tenant.slug === slug);
  const others = machine.tenants.filter((tenant) => tenant.slug !== slug);
  const result: Granted = { granted: wanted, leftOut: [], kept: [], here: new Map(), waiting: [] };
  // A set: decideDns has two settings.
  for (const decide of new Set(Object.values(takings)))
    decide({ ...situation, inForce: own?.inForce ?? {}, others, result });
  return result;
}

// Interfaces

function decideDevice(asked: Asked): void {
  const { slug, result, machine } = asked;
  const dev = valueAt(result.granted, "tun.dev");
  if (typeof dev === "string" && dev !== deviceName(slug)) {
    const reason = deviceRefusal(dev, asked);
    if (reason === undefined) return;
    leaveOut(asked, "tun.dev", reason);
  }
  // Without a name the kernel assigns tun0, which other programs use.
  if (machine.namesInterfaces) setKeys(asked, "tun", { dev: ownDevice(asked) });
  else if (dev !== undefined) setKeys(asked, "tun", { dev: undefined });
}

/**
 * A node of an earlier version keeps the name of `deviceName`, since firewall rules of this machine may contain it. All others have
 * the readable one, unless another interface of this machine has it. `device` is undefined for a damaged config.yml, too: then an
 * interface with this node's address is its own.
 */
function ownDevice({ slug, inForce: { device }, machine, others }: Asked): string {
  const name = readableDeviceName(slug);
  if (name === undefined || device === deviceName(slug)) return deviceName(slug);
  if (device === name) return name;
  const own = machine.tenants.find((tenant) => tenant.slug === slug)?.addresses ?? [];
  const isOwn = machine.addresses.some(
    (each) => each.device === name && own.includes(each.address.replace(/\/\d+$/, "")),
  );
  const isFree = isOwn || !machine.interfaces.includes(name);
  return isFree && !others.some((other) => other.inForce.device === name) ? name : deviceName(slug);
}

/**
 * Why the interface must not have this name, undefined if it may: a name is ours by its prefix, allowed by root, or in force already.
 * A name that deviceName makes (isOverlayDevice) belongs to the organization whose slug it is made of.
 */
function deviceRefusal(
  dev: string,
  { inForce, machine, others, permissions, result }: Asked,
): string | undefined {
  const other = others.find(({ inForce: used }) => used.device === dev);
  if (other !== undefined) return `${dev} is the interface of the organization "${other.slug}"`;
  if (isOverlayDevice(dev)) return `${dev} is the name of another organization's interface`;
  if (permissions.interfaces.includes(dev) || isOurDevice(dev)) {
    const isThere = machine.interfaces.includes(dev) && inForce.device !== dev;
    return isThere ? `${dev} is another interface of this machine` : undefined;
  }
  if (inForce.device !== dev) return `${dev} is not a name that an organization may give to an interface`;
  result.kept.push({ key: `tun.dev ${dev}`, flag: "allow-interfaces", entry: dev });
  return undefined;
}

// Routes and overlay networks

/** These limit the work of comparing each route with the networks of this machine, and with lighthouses. */
const mostRoutes = 4096;
const mostLighthouses = 1024;

function decideRoutes(asked: Asked): void {
  const { result } = asked;
  const sent = valueAt(result.granted, "tun.unsafe_routes");
  if (!Array.isArray(sent)) return;
  const routes = sent.slice(0, mostRoutes);
  if (routes.length < sent.length)
    leaveOut(asked, "tun.unsafe_routes", `only the first ${mostRoutes} routes are applied`);
  const networkOf = (route: YamlValue) =>
    isMap(route) && typeof route["route"] === "string" ? (parseNetwork(route["route"])?.text ?? "") : "";
  const needed = [...neededOf(asked.machine), ...lighthousesIn(result.granted)];
  const { refused, here } = checkRoutes(routes.map(networkOf), { ...rulesOf(asked), needed });
  // Routes to networks that this machine reaches without the overlay: they are not set, and it keeps its own way.
  result.here = here;
  const kept = routes.filter((route) => {
    const network = networkOf(route);
    const reason = refused.get(network);
    if (reason !== undefined) leaveOut(asked, `tun.unsafe_routes ${network}`, reason);
    return reason === undefined && !here.has(network);
  });
  for (const network of new Set(kept.map(networkOf)))
    if (needsPermission(network, asked.permissions))
      result.kept.push({ key: `tun.unsafe_routes ${network}`, flag: "allow-routes", entry: network });
  setKeys(asked, "tun", { unsafe_routes: kept });
}

/** Whether a granted route leads to a part of the internet, and stays only because it was in force before. */
function needsPermission(text: string, { routes, former_routes: former }: Permissions): boolean {
  const network = former.includes(text) ? parseNetwork(text) : undefined;
  return network !== undefined && !parseNetworks(routes).some((allowed) => holdsNetwork(allowed, network));
}

function rulesOf({ slug, machine, networks, permissions }: Situation): RouteRules {
  const others = machine.tenants.filter((tenant) => tenant.slug !== slug);
  const { attached, routes } = ownNetworks(machine);
  return {
    slug,
    ownOverlay: networks,
    otherOverlays: others.flatMap((tenant) =>
      tenant.networks.map((network) => ({ slug: tenant.slug, network })),
    ),
    attached,
    machineRoutes: named(routes),
    otherRoutes: others.flatMap((tenant) => tenant.routes.map((network) => ({ slug: tenant.slug, network }))),
    inForce: machine.tenants.find((tenant) => tenant.slug === slug)?.routes ?? [],
    needed: neededOf(machine),
    allowed: permissions.routes,
    formerlyRouted: permissions.former_routes,
  };
}

const named = (routes: readonly OfMachine[]): RouteRules["machineRoutes"] =>
  routes.map(({ network, device }) => ({ network, name: `a route of this machine through ${device}` }));

/** Addresses that must stay reachable outside of overlays. */
function neededOf({ hosts, gateways, nameServers }: Machine): RouteRules["needed"] {
  return [
    ...hosts,
    ...hostsNamed(gateways, "a gateway of this machine"),
    ...hostsNamed(nameServers, "a name server of this machine"),
    ...hostsNamed(providerAddresses, "an address by which a provider steers its machines"),
  ];
}

function hostsNamed(addresses: readonly string[], name: string): RouteRules["needed"] {
  return addresses.flatMap((address) => {
    const network = isSpecialHost(address) ? undefined : networkOfHost(address);
    return network === undefined ? [] : [{ network, name }];
  });
}

/** Lighthouses and relays: a route over one of their addresses would send the packets to them into the overlay. */
function lighthousesIn({ static_host_map: map }: YamlMap): RouteRules["needed"] {
  const entries = isMap(map) ? Object.values(map).flatMap(listOf) : [];
  return entries.slice(0, mostLighthouses).flatMap((entry) => {
    const network = typeof entry === "string" ? networkOfHost(withoutPort(entry)) : undefined;
    return network === undefined ? [] : [{ network, name: "the address of a lighthouse or relay" }];
  });
}

/** Why certificates are refused as a whole: their networks cannot be left out. */
export type Refusal = { code: "untrusted_answer" | "collision"; network: string; reason: string };

/** The first reason against networks of certificates that this organization did not have before. */
export function networkRefusal(situation: Situation): Refusal | undefined {
  const { slug, machine, networks, permissions } = situation;
  if (takesInternet(networks))
    return {
      code: "untrusted_answer",
      network: networks.join(", "),
      reason: "it takes most of the internet",
    };
  /** None: the organization is being registered. */
  const networksBefore = machine.tenants.find((tenant) => tenant.slug === slug)?.networks ?? [];
  const newNetworks = networks.filter((network) => !networksBefore.includes(network));
  const isRegistration = networksBefore.length === 0;
  const { otherOverlays, ...rules } = rulesOf(situation);
  for (const other of isRegistration ? [] : otherOverlays) {
    const colliding = newNetworks.find((network) => networkTextsOverlap(network, other.network));
    const reason = `the organization "${other.slug}" uses ${other.network} on this machine`;
    if (colliding !== undefined) return { code: "collision", network: colliding, reason };
  }
  // At the registration the user accepts the overlay's networks, except hosts that other organizations need.
  const slugs = machine.tenants.map((tenant) => tenant.slug);
  const ofOthers = machine.hosts.filter(({ of }) => slugs.includes(of));
  const atRegistration = { attached: [], machineRoutes: [], otherRoutes: [], needed: ofOthers };
  const [refused] = refusedNetworks(newNetworks, {
    ...rules,
    ownOverlay: networksBefore,
    ...(isRegistration ? atRegistration : {}),
    allowed: [...permissions.routes, ...permissions.overlaps],
    isSpecialAllowed: isRegistration,
  });
  if (refused !== undefined) {
    const [network, reason] = refused;
    return { code: "untrusted_answer", network, reason };
  }
  return isRegistration ? overlapRefusal(situation) : undefined;
}

/** Why an engine with these networks must not start here: it would take a network of this machine over. */
export function overlapRefusal(situation: Situation): Refusal | undefined {
  const taken = overlapsWithMachine(situation).find(({ isWider }) => !isWider);
  if (taken === undefined) return undefined;
  return { code: "collision", network: taken.overlay, reason: `it takes over ${taken.with}, ${taken.name}` };
}

/** The networks of this machine that the overlay overlaps, without those that root permits. */
export function overlapsWithMachine({ machine, permissions, networks }: Situation): Overlap[] {
  const { attached, routes } = ownNetworks(machine);
  return overlapsOf(networks, {
    attached,
    machineRoutes: named(routes),
    needed: hostsNamed(machine.nameServers, "a name server of this machine"),
    allowed: permissions.overlaps,
  });
}
