// The one place that decides whether packets of this machine take a default route into an overlay. Root, or the daemon's group,
// chooses that on this machine (`agent exit use`, in permissions.json), among the exits that the control plane names. The control
// plane alone cannot bring it about.

import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  formatAddress,
  joinHostPort,
  networkContains,
  parseAddress,
  parseNetwork,
} from "../../../base/ip.ts";
import { isMap, listOf, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { given } from "../../../base/given.ts";
import { can } from "../../../engine/features.ts";
import { NodeConfig } from "../../../protocol/organization-files.ts";
import { listOrganizations } from "../list-organizations.ts";
import { readValidJson } from "../json-file.ts";
import { readResolved } from "./resolved-hosts.ts";
import { readExitState } from "./exit-state.ts";
import { permissionsOrNone, readPermissions, type Permissions } from "../permissions.ts";

/**
 * The mark of the engine's own packets, by which the kernel keeps them out of the exit. Root may set another one
 * (`listen.so_mark` in overrides.yml).
 */
export const exitMark = 0x6f76;
/** In permissions.json, instead of the name of an exit: the best one. */
export const anyExit = "auto";
/**
 * Exits answer echo requests to this address that come by their tunnel. No host has it (RFC 5737), and the engine of a node lets
 * the answers in only if the exit's certificate permits the internet.
 */
export const insideExit = "192.0.2.83";

/**
 * `ip`, `ip6`: overlay addresses. `via`: where the engine sends packets for the internet, if not to `ip`: an address in a sealed
 * network, which only this exit has.
 */
export type Exit = { name: string; ip: string; ip6: string | undefined; via?: string };
export type ExitUse = {
  /** The exits that may be used, best first. */
  candidates: readonly Exit[];
  /** The one in use. Undefined: none is known yet. */
  exit: Exit | undefined;
  /** Packets for the internet are blocked while the exit is away. */
  strict: boolean;
  /** The local network stays reachable beside the exit. */
  lan: boolean;
};

/** The script of nft that blocks all other ways from the boot on. It exists exactly while `strict` is chosen. */
export const blockFile = (directory: string): string => join(directory, "exit-block.nft");

type ExitNames = Pick<NodeConfig, "exits" | "network" | "ip_address6" | "sealed_names">;

/** Only addresses of the overlay: they go into the engine's configuration and into scripts of nft. */
function readExit(
  { name, ip_address, ip_address6 }: NonNullable<NodeConfig["exits"]>[number],
  { network, ip_address6: own6, sealed_names: sealed = {} }: ExitNames,
): Exit[] {
  const address = parseAddress(ip_address);
  const overlay = parseNetwork(network);
  if (address === undefined || overlay === undefined || !networkContains(overlay, address)) return [];
  // Without an IPv6 address of its own, this node cannot use that of the exit.
  const address6 = own6 == null || ip_address6 === null ? undefined : parseAddress(ip_address6);
  const ip6 = address6?.family === 6 ? formatAddress(address6) : undefined;
  const [via] = Object.hasOwn(sealed, name) ? (sealed[name] ?? []) : [];
  return [{ name, ip: formatAddress(address), ip6, ...given({ via }) }];
}

/** `usedIp`: of the exit in use until now. Undefined: no exit is chosen on this machine. */
export function grantExit(
  { exit: choice }: Pick<Permissions, "exit">,
  node: ExitNames | undefined,
  usedIp: string | undefined,
): ExitUse | undefined {
  if (choice === undefined) return undefined;
  const exits = node === undefined ? [] : (node.exits ?? []).flatMap((sent) => readExit(sent, node));
  const candidates = choice.use === anyExit ? exits : exits.filter(({ name }) => name === choice.use);
  const exit = candidates.find(({ ip }) => ip === usedIp) ?? candidates[0];
  return { candidates, exit, strict: choice.strict, lan: choice.lan };
}

/** How this machine uses exits, by the files of an organization's directory. */
export function exitUseOf(directory: string): ExitUse | undefined {
  const permissions = permissionsOrNone(directory);
  if (permissions.exit === undefined) return undefined;
  const config = readValidJson(join(directory, "node-config.json"), NodeConfig);
  return grantExit(permissions, config, readExitState(directory)?.exit);
}

/**
 * Whether other ways stay blocked: `--strict` holds without a running agent, until `agent exit use off`. If permissions.json is
 * damaged, or others can change it, a block that exists stays.
 */
export function staysClosed(directory: string): boolean {
  try {
    return readPermissions(directory).exit?.strict === true;
  } catch {
    return existsSync(blockFile(directory));
  }
}

/** Other organizations of this machine that have an exit chosen. `exit use` permits one alone: there is one way to the internet. */
export function othersWithExit({ slug, directory }: { slug: string; directory: string }): string[] {
  const root = dirname(directory);
  return listOrganizations(root).filter(
    (other) => other !== slug && permissionsOrNone(join(root, other)).exit !== undefined,
  );
}

/**
 * Makes the engine send to the exit what its interface gets for the internet. `install: false`: this program sets the kernel's
 * routes (exit-plan.ts). Engines that cannot mark packets get no exit: they would send their own packets to it, and install the
 * route all the same.
 */
export function withExit(config: YamlMap, directory: string, engine: string | undefined): YamlMap {
  const exit = can(engine, "packet_mark") ? exitUseOf(directory)?.exit : undefined;
  if (exit === undefined) return config;
  const section = (name: "tun" | "listen"): YamlMap => {
    const found = config[name];
    return isMap(found) ? found : {};
  };
  const routes = ["0.0.0.0/0", ...(exit.ip6 === undefined ? [] : ["::/0"])].map((route) => ({
    route,
    via: exit.via ?? exit.ip,
    install: false,
  }));
  const otherRoutes = listOf(section("tun")["unsafe_routes"]);
  return {
    ...withResolvedAddresses(config, directory),
    tun: { ...section("tun"), unsafe_routes: [...otherRoutes, ...routes] },
    listen: { ...section("listen"), so_mark: exitMark },
  };
}

/**
 * Adds the last known addresses to the names of lighthouses and relays: name servers may be reached by the exit alone, and the exit
 * by a lighthouse alone.
 */
function withResolvedAddresses(config: YamlMap, directory: string): YamlMap {
  const map = config["static_host_map"];
  const resolved = readResolved(directory);
  if (!isMap(map) || resolved.size === 0) return config;
  const addressesFor = (entry: YamlValue) => {
    const [, name = "", port = ""] = (typeof entry === "string" && /^([^:[\]]+):(\d+)$/.exec(entry)) || [];
    return (resolved.get(name) ?? []).map((address) => joinHostPort(address, Number(port)));
  };
  const widened = Object.entries(map).map(([ip, entries]): [string, YamlValue] => {
    const list = listOf(entries);
    return [ip, [...new Set([...list, ...list.flatMap(addressesFor)])]];
  });
  return { ...config, static_host_map: Object.fromEntries(widened) };
}

/** The settings of a configuration without those that `withExit` added, which can then be decided again. */
export function withoutExit({ ...config }: YamlMap): YamlMap {
  const { tun, listen } = config;
  const routes = isMap(tun) ? tun["unsafe_routes"] : undefined;
  if (isMap(tun) && Array.isArray(routes))
    config["tun"] = { ...tun, unsafe_routes: routes.filter((route) => !isRouteOfExit(route)) };
  if (isMap(listen) && listen["so_mark"] === exitMark) {
    const { so_mark: _, ...rest } = listen;
    config["listen"] = rest;
  }
  return config;
}

function isRouteOfExit(entry: YamlValue): boolean {
  if (!isMap(entry) || entry["install"] !== false) return false;
  return typeof entry["route"] === "string" && entry["route"].endsWith("/0");
}
