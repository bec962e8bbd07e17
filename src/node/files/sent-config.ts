// Filters the configuration that a control plane sent: first by the allow-list of both sides, then by what only this
// machine knows. Settings that are left out are named. The rest, above all the blocklist, is applied.

import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { deviceName, isOverlayDevice, readableDeviceName } from "../../device-name.ts";
import { allowedConfig } from "../../engine-config.ts";
import { readTextIfThere } from "../../files.ts";
import { joinHostPort, parseAddress, parseNetwork, withoutPort } from "../../ip.ts";
import { describeLeftOut, type LeaveOut, type LeftOut } from "../../left-out.ts";
import type { Log } from "../../log.ts";
import type { AttachedNetwork } from "../../platform/attached-networks.ts";
import { kernelHasIpv6 } from "../../platform/kernel-ipv6.ts";
import { quoteWord } from "../../plan.ts";
import { isMap, type YamlMap, type YamlValue } from "../../yaml.ts";
import { readOwnYaml, readYaml } from "./read-yaml.ts";
import { doOverlap, isWithin, maskedNetworks, networksIn, overlayNetworks } from "./networks.ts";
import { rulesVersion, type SyncState } from "./generations.ts";
import { listOrganizations } from "./list-organizations.ts";
import { readAllowedRoutes } from "./permissions.ts";
import { hostNetwork, networkNames, reservedNetworks, type Reserved } from "./reserved-networks.ts";
import { refusedNetworks, refusedRoutes, takesInternet } from "./routes.ts";

export type SentConfig = {
  config: YamlMap;
  leftOut: LeftOut[];
  /** Networks that the routes were compared with; undefined where the control plane sent no routes. */
  surroundings: string[] | undefined;
};

/** The organization's directory, and the certificates that belong to the configuration. */
export type Place = {
  directory: string;
  slug: string;
  hostCrt: string;
  /** The networks of this machine now. */
  attached: readonly AttachedNetwork[];
  /** The control plane's URL, where credentials.json does not exist yet. */
  apiBase?: string;
  /** The directory of permissions.json, if it is another one. */
  allowedIn?: string;
  /** Whether this machine can open IPv6 sockets; tests replace it. */
  hasIpv6?: () => boolean;
};

type CheckedPlace = Place & { reserved: readonly Reserved[] };

/** The status answers of all organizations share one line of 64 KiB. */
const mostLeftOut = 20;
/** Limit the work of comparing each route with the networks of this machine, and with lighthouses. */
const mostRoutes = 4096;
const mostLighthouses = 1024;

/** Throws bad_configuration for invalid YAML, untrusted_answer for a configuration that no engine could run. */
export function readSent(text: string, place: Place): SentConfig {
  const parsed = readYaml(text, "The configuration that the control plane sent");
  if (!isMap(parsed["pki"])) {
    throw new AppError(
      "untrusted_answer",
      "The configuration that the control plane sent has no pki section",
    );
  }
  const leftOut: LeftOut[] = [];
  let more = 0;
  const leaveOut: LeaveOut = (key, reason) => {
    if (leftOut.length < mostLeftOut) leftOut.push({ key: short(key, 80), reason: short(reason, 160) });
    else more++;
  };
  const allowed = allowedConfig(parsed, leaveOut);
  const reserved = reservedNetworks(place, place.attached);
  const config = filterForMachine(allowed, { ...place, reserved }, leaveOut);
  if (more > 0) leftOut.push({ key: "…", reason: `${more} more settings are left out` });
  const sentRoutes = isMap(allowed["tun"]) ? allowed["tun"]["unsafe_routes"] : undefined;
  const hasRoutes = Array.isArray(sentRoutes) && sentRoutes.length > 0;
  return { config, leftOut, surroundings: hasRoutes ? networkNames(reserved) : undefined };
}

/** What sync.json keeps of the check. */
export function checkedState({
  leftOut,
  surroundings,
  unresolved = [],
}: Pick<SentConfig, "leftOut" | "surroundings"> & { unresolved?: string[] }): Pick<
  SyncState,
  "rules" | "left_out" | "surroundings" | "unresolved"
> {
  const kept = unresolved.length === 0 ? undefined : unresolved;
  return { rules: rulesVersion, left_out: leftOut, surroundings, unresolved: kept };
}

/** Warns only when the settings change, not with every configuration. */
export function warnOfLeftOut(
  slug: string,
  before: readonly LeftOut[],
  now: readonly LeftOut[],
  log: Log,
): void {
  if (now.length === 0 || Bun.deepEquals(before, now)) return;
  log.warn("Some settings of the control plane are left out", {
    team: slug,
    what: describeLeftOut(now),
  });
}

/** A key may contain any characters, and a schema's message may repeat it. */
function short(text: string, longest: number): string {
  const cut = text.length <= longest ? text : `${text.slice(0, longest)}…`;
  return cut.replace(/[^\x20-\x7e…]/g, "?");
}

function filterForMachine(config: YamlMap, place: CheckedPlace, leaveOut: LeaveOut): YamlMap {
  const { hasIpv6 = kernelHasIpv6 } = place;
  const others = readOthers(place);
  const present = readInUse(place.directory);
  const { tun, stats, listen, lighthouse, pki } = config;
  const kept: YamlMap = {
    ...config,
    // Without this, an engine below 1.8 keeps the tunnel of a revoked peer.
    pki: { ...(isMap(pki) ? pki : {}), disconnect_invalid: true },
    sshd: { enabled: false },
  };
  if (isMap(tun)) {
    const reserved = [...place.reserved, ...lighthousesIn(config)];
    kept["tun"] = filterTun(tun, { ...place, reserved }, present, others, leaveOut);
  }
  if (isMap(stats) && !isOwnAddress(stats["listen"], place)) {
    delete kept["stats"];
    leaveOut("stats.listen", "metrics may listen on loopback or on this node's overlay address only");
  }
  const ownerOf = (port: YamlValue | undefined, own: number | undefined) =>
    typeof port === "number" && port > 0 && port !== own
      ? others.find((each) => each.listenPort === port || each.dnsPort === port)?.slug
      : undefined;
  const listener = isMap(listen) ? ownerOf(listen["port"], present.listenPort) : undefined;
  // Such a kernel refuses the socket for both families, so the engine would not start.
  const socket = isMap(listen) && isAnyVersion6(listen["host"]) && !hasIpv6() ? { host: "0.0.0.0" } : {};
  if (isMap(listen)) kept["listen"] = { ...listen, ...socket };
  if (isMap(listen) && listener !== undefined) {
    kept["listen"] = { ...listen, ...socket, port: present.listenPort ?? 0 };
    leaveOut("listen.port", `the organization "${listener}" uses this port on this machine`);
  }
  const dns = isMap(lighthouse) ? lighthouse["dns"] : undefined;
  const resolver = isMap(dns) ? ownerOf(dns["port"], present.dnsPort) : undefined;
  if (isMap(lighthouse) && resolver !== undefined) {
    const { dns: _, serve_dns: __, ...rest } = lighthouse;
    kept["lighthouse"] = rest;
    leaveOut("lighthouse.dns.port", `the organization "${resolver}" uses this port on this machine`);
  } else if (isMap(lighthouse) && !isOwnResolver(lighthouse, place)) {
    const { dns: _, serve_dns: __, ...rest } = lighthouse;
    kept["lighthouse"] = rest;
    leaveOut("lighthouse.dns.host", "DNS may listen on loopback or on this node's overlay address only");
  }
  return withStaticLighthouses(withoutOverlayHosts(kept, maskedNetworks(place.hostCrt), leaveOut));
}

const isAnyVersion6 = (host: YamlValue | undefined) => host === "::" || host === "[::]";

/** A route over one of these addresses would send the packets to the lighthouse into the overlay. */
function lighthousesIn({ static_host_map: map }: YamlMap): Reserved[] {
  const entries = isMap(map) ? Object.values(map).flatMap((each) => (Array.isArray(each) ? each : [])) : [];
  const addresses = entries
    .slice(0, mostLighthouses)
    .map((each) => (typeof each === "string" ? withoutPort(each) : ""));
  return addresses.flatMap((address) => {
    const network = hostNetwork(address);
    const name = "the address of a lighthouse or relay";
    return network === undefined ? [] : [{ network, name, isAttached: false }];
  });
}

function filterTun(
  tun: YamlMap,
  place: CheckedPlace,
  present: InUse,
  others: readonly Other[],
  leaveOut: LeaveOut,
): YamlMap {
  const kept = { ...tun };
  const { dev, unsafe_routes: routes } = tun;
  if (dev === deviceName(place.slug)) kept["dev"] = ownDevice(place.slug, present, others);
  else if (typeof dev === "string") {
    const reason = deviceRefusal(dev, present, others);
    if (reason !== undefined) {
      leaveOut("tun.dev", reason);
      // macOS numbers its devices itself.
      if (dev.startsWith("utun")) delete kept["dev"];
      else kept["dev"] = ownDevice(place.slug, present, others);
    }
  }
  if (Array.isArray(routes)) kept["unsafe_routes"] = filterRoutes(routes, place, others, leaveOut);
  return kept;
}

/**
 * A node keeps the name that its interface has, since firewall rules of this machine may contain it. A new node takes the
 * readable one, unless another interface of this machine has it.
 */
function ownDevice(slug: string, present: InUse, others: readonly Other[]): string {
  const name = readableDeviceName(slug);
  if (name === undefined || present.device === name) return name ?? deviceName(slug);
  const isFree = !others.some(({ device }) => device === name) && !existsSync(`/sys/class/net/${name}`);
  return present.device === undefined && isFree ? name : deviceName(slug);
}

/**
 * Names that a kernel or other software gives to interfaces of its own. Such a one may come later, when a container engine
 * starts or a device is plugged in, and would find its name taken.
 */
const foreignDevice =
  /^(lo|eth\d.*|en[opsx].*|wl[aopsx].*|ww[aopsx].*|usb\d.*|(docker|podman|virbr|vmbr|vnet|cni|lxcbr|lxdbr|incusbr|tailscale|bond|team|ppp|wg)\d.*|(br-|veth|cali|cilium|flannel|kube|vxlan).*)$/;

/** The interface name that this organization already uses stays allowed. */
function deviceRefusal(dev: string, present: InUse, others: readonly Other[]): string | undefined {
  const other = others.find(({ device }) => device === dev);
  if (other !== undefined) return `${dev} is the interface of the organization "${other.slug}"`;
  if (isOverlayDevice(dev)) return `${dev} is the name of another organization's interface`;
  if (present.device === dev) return undefined;
  if (foreignDevice.test(dev)) return `${dev} is a name that other software gives to its interfaces`;
  // On systems without this directory an engine cannot take over an existing interface.
  const isThere = existsSync(`/sys/class/net/${dev}`);
  return isThere ? `${dev} is another interface of this machine` : undefined;
}

function filterRoutes(
  sent: readonly YamlValue[],
  { directory, hostCrt, reserved, allowedIn = directory }: CheckedPlace,
  others: readonly Other[],
  leaveOut: LeaveOut,
): YamlValue[] {
  const routes = sent.slice(0, mostRoutes);
  if (routes.length < sent.length)
    leaveOut("tun.unsafe_routes", `only the first ${mostRoutes} routes are applied`);
  let allowed: string[] = [];
  try {
    allowed = readAllowedRoutes(allowedIn);
  } catch {
    leaveOut(
      "permissions.json",
      "it is damaged, or others than root can change it, so it allows nothing; write it again with sync-config --allow-routes",
    );
  }
  const networkOf = (route: YamlValue) =>
    isMap(route) && typeof route["route"] === "string" ? (parseNetwork(route["route"])?.text ?? "") : "";
  const refused = refusedRoutes(routes.map(networkOf), {
    own: maskedNetworks(hostCrt),
    others: others.flatMap(({ slug, networks }) => networks.map((network) => [slug, network] as const)),
    reserved,
    allowed,
  });
  return routes.filter((route) => {
    const network = networkOf(route);
    const reason = refused.get(network);
    if (reason !== undefined) leaveOut(`tun.unsafe_routes ${network}`, reason);
    return reason === undefined;
  });
}

function isOwnAddress(listen: YamlValue | undefined, { hostCrt }: Pick<Place, "hostCrt">): boolean {
  if (typeof listen !== "string") return true;
  const host = withoutPort(listen);
  const address = parseAddress(host);
  if (address === undefined) return host === "localhost";
  const isLoopback = address.family === 4 ? address.value >> 24n === 127n : address.value === 1n;
  return isLoopback || networksIn(hostCrt).some((each) => each.split("/")[0] === host);
}

/** Without a host the engine answers on every interface. Without serve_dns it does not answer. */
function isOwnResolver({ dns, serve_dns: serves }: YamlMap, place: Pick<Place, "hostCrt">): boolean {
  const host = isMap(dns) ? dns["host"] : undefined;
  if (host === undefined) return serves !== true;
  return typeof host === "string" && isOwnAddress(joinHostPort(host, 0), place);
}

/** An engine cannot reach a lighthouse through its own tunnels, and refuses a configuration that says so. */
function withoutOverlayHosts(config: YamlMap, own: readonly string[], leaveOut: LeaveOut): YamlMap {
  const { static_host_map: map } = config;
  if (!isMap(map)) return config;
  const kept = Object.entries(map).map(([ip, entries]): [string, YamlValue] => {
    if (!Array.isArray(entries)) return [ip, entries];
    const usable = entries.filter((entry) => {
      const host = typeof entry === "string" ? withoutPort(entry) : "";
      if (!isWithin(host, own)) return true;
      leaveOut(`static_host_map ${ip}`, `${host} is an address of the overlay itself`);
      return false;
    });
    return [ip, usable];
  });
  return { ...config, static_host_map: Object.fromEntries(kept) };
}

/** Removes lighthouses without a static address: the engine would not start with them. */
function withStaticLighthouses(config: YamlMap): YamlMap {
  const { static_host_map: map, lighthouse } = config;
  if (!isMap(lighthouse) || !Array.isArray(lighthouse["hosts"])) return config;
  const known = isMap(map)
    ? Object.entries(map).filter(([, each]) => Array.isArray(each) && each.length > 0)
    : [];
  const names = new Set(known.map(([ip]) => ip));
  const hosts = lighthouse["hosts"].filter((ip) => typeof ip === "string" && names.has(ip));
  return { ...config, static_host_map: Object.fromEntries(known), lighthouse: { ...lighthouse, hosts } };
}

/** The interface and ports that an organization uses by its configuration in force. */
type InUse = { device: string | undefined; listenPort: number | undefined; dnsPort: number | undefined };
type Other = InUse & { slug: string; networks: string[] };

const Listeners = v.object({
  tun: v.optional(v.object({ dev: v.optional(v.string()) })),
  listen: v.optional(v.object({ port: v.optional(v.number()) })),
  lighthouse: v.optional(v.object({ dns: v.optional(v.object({ port: v.optional(v.number()) })) })),
});

function readOthers({ directory, slug }: Pick<Place, "directory" | "slug">): Other[] {
  const root = dirname(directory);
  return listOrganizations(root)
    .filter((each) => each !== slug)
    .map((each) => {
      const path = join(root, each);
      return { slug: each, networks: ignoringDamage(() => overlayNetworks(path)) ?? [], ...readInUse(path) };
    });
}

function readInUse(directory: string): InUse {
  const found = ignoringDamage(() => {
    const path = join(directory, "config.yml");
    return v.parse(Listeners, readOwnYaml(readTextIfThere(path) ?? "", path));
  });
  return {
    device: found?.tun?.dev,
    listenPort: found?.listen?.port,
    dnsPort: found?.lighthouse?.dns?.port,
  };
}

/** Damage of another organization must not affect this one. */
function ignoringDamage<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/**
 * Throws untrusted_answer if the certificates' networks take most of the internet, or if a new one takes over a network of
 * this machine or the address of a control plane, and collision if a new one overlaps another organization's.
 */
export function refuseNetworks(place: Place): void {
  const { directory, slug, hostCrt } = place;
  const networks = maskedNetworks(hostCrt);
  if (takesInternet(networks)) {
    throw new AppError(
      "untrusted_answer",
      `The certificate's network takes most of the internet: ${networks.join(", ")}`,
    );
  }
  const present = ignoringDamage(() => overlayNetworks(directory)) ?? [];
  const fresh = networks.filter((each) => !present.includes(each));
  if (fresh.length === 0) return;
  for (const other of present.length === 0 ? [] : readOthers({ directory, slug })) {
    const taken = fresh.find((each) => other.networks.some((network) => doOverlap(each, network)));
    if (taken === undefined) continue;
    throw new AppError(
      "collision",
      `The certificate moves to the network ${taken}, which the organization "${other.slug}" uses on this machine`,
    );
  }
  refuseTakenOver(fresh, present, place);
}

/** Whoever registers this machine accepts the overlay's networks, but not for the control planes of other organizations. */
function refuseTakenOver(fresh: readonly string[], present: readonly string[], place: Place): void {
  const isRegistration = present.length === 0;
  const { directory, slug, attached, allowedIn = directory } = place;
  const refused = refusedNetworks(fresh, {
    own: present,
    reserved: reservedNetworks({ directory }, isRegistration ? [] : attached),
    allowed: ignoringDamage(() => readAllowedRoutes(allowedIn)) ?? [],
    isSpecialAllowed: isRegistration,
  });
  for (const [network, reason] of refused) {
    const allow = `${brand.executable} sync-config --org-slug ${quoteWord(slug)} --allow-routes ${network}`;
    throw new AppError("untrusted_answer", `The certificate's network ${network} is refused: ${reason}`, {
      hint: `To allow it all the same: \`${allow}\`.`,
    });
  }
}
