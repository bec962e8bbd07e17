// The one place that decides whether packets of this machine take a default route into an overlay: by the word that root, or
// the daemon's group, gave on this machine (permissions.json), among the exits that the control plane names. What the
// control plane sends never gives one.

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
import { NodeConfig } from "../../../protocol/stored.ts";
import { listOrganizations } from "../list-organizations.ts";
import { readValidJson } from "../json-file.ts";
import { readResolved } from "./resolved-hosts.ts";
import { readExitState } from "./exit-state.ts";
import { permissionsOrNone, readPermissions, type Permissions } from "../permissions.ts";

/** The mark of the engine's own packets, by which the kernel keeps them out of the exit. Root may set another one. */
export const exitMark = 0x6f76;
export const anyExit = "auto";
/**
 * Exits answer echo requests to this address that come by their tunnel. No host has it (RFC 5737), and the engine of a node lets
 * the answers in only if the exit's certificate permits the internet.
 */
export const insideExit = "192.0.2.83";

/** `via`: where the engine sends packets for the internet. In a sealed network, only this exit has that address. */
export type Exit = { name: string; ip: string; ip6: string | undefined; via?: string };
export type ExitUse = {
  /** The exits that may be used, best first. */
  candidates: readonly Exit[];
  /** The one in use. Undefined: none is known yet. */
  exit: Exit | undefined;
  strict: boolean;
  lan: boolean;
};

/** What blocks all other ways at a boot, as a script of nft. It is there exactly while that is wanted. */
export const blockFile = (directory: string): string => join(directory, "exit-block.nft");

type ExitNames = Pick<NodeConfig, "exits" | "network" | "ip_address6" | "sealed_names">;

/** Only addresses of the overlay: they go into the engine's configuration and into scripts of nft. */
function readExit(
  { name, ip_address, ip_address6 }: NonNullable<NodeConfig["exits"]>[number],
  { network, ip_address6: own6, sealed_names: sealed = {} }: ExitNames,
): Exit[] {
  const [address, overlay] = [parseAddress(ip_address), parseNetwork(network)];
  if (address === undefined || overlay === undefined || !networkContains(overlay, address)) return [];
  const second = own6 == null || ip_address6 === null ? undefined : parseAddress(ip_address6);
  const ip6 = second?.family === 6 ? formatAddress(second) : undefined;
  const [via] = Object.hasOwn(sealed, name) ? (sealed[name] ?? []) : [];
  return [{ name, ip: formatAddress(address), ip6, ...given({ via }) }];
}

/** Undefined: no exit is wanted on this machine. */
export function grantExit(
  { exit: word }: Pick<Permissions, "exit">,
  node: ExitNames | undefined,
  used: string | undefined,
): ExitUse | undefined {
  if (word === undefined) return undefined;
  const exits = node === undefined ? [] : (node.exits ?? []).flatMap((each) => readExit(each, node));
  const candidates = word.use === anyExit ? exits : exits.filter(({ name }) => name === word.use);
  const exit = candidates.find(({ ip }) => ip === used) ?? candidates[0];
  return { candidates, exit, strict: word.strict, lan: word.lan };
}

/** How this machine uses exits, by the files of an organization's directory. */
export function exitUseOf(directory: string): ExitUse | undefined {
  const permissions = permissionsOrNone(directory);
  if (permissions.exit === undefined) return undefined;
  const config = readValidJson(join(directory, "node-config.json"), NodeConfig);
  return grantExit(permissions, config, readExitState(directory)?.exit);
}

/**
 * `--strict` holds without a process of ours, until root says off. A permissions.json that is damaged, or that others can change,
 * says nothing: then the block stays if there is one.
 */
export function staysClosed(directory: string): boolean {
  try {
    return readPermissions(directory).exit?.strict === true;
  } catch {
    return existsSync(blockFile(directory));
  }
}

/** Other organizations of this machine whose exit its packets take. `exit use` admits one: there is one way to the internet. */
export function othersWithExit({ slug, directory }: { slug: string; directory: string }): string[] {
  const root = dirname(directory);
  return listOrganizations(root).filter(
    (each) => each !== slug && permissionsOrNone(join(root, each)).exit !== undefined,
  );
}

/**
 * The engine sends what its interface gets for the internet to the exit. The kernel's routes are the agent's (exit-plan.ts):
 * `install: false`. An engine without marks would send its own packets to the exit, and older ones install the route.
 */
export function withExit(config: YamlMap, directory: string, engine: string | undefined): YamlMap {
  const exit = can(engine, "packet_mark") ? exitUseOf(directory)?.exit : undefined;
  if (exit === undefined) return config;
  const [tun, listen] = [config["tun"], config["listen"]].map((each) => (isMap(each) ? each : {}));
  const routes = ["0.0.0.0/0", ...(exit.ip6 === undefined ? [] : ["::/0"])].map((route) => ({
    route,
    via: exit.via ?? exit.ip,
    install: false,
  }));
  const others = listOf(tun?.["unsafe_routes"]);
  return {
    ...withAddresses(config, directory),
    tun: { ...tun, unsafe_routes: [...others, ...routes] },
    listen: { ...listen, so_mark: exitMark },
  };
}

/** Adds the last known addresses to names of lighthouses and relays: name servers answer only when the exit does. */
function withAddresses(config: YamlMap, directory: string): YamlMap {
  const map = config["static_host_map"];
  const known = readResolved(directory);
  if (!isMap(map) || known.size === 0) return config;
  const beside = (entry: YamlValue) => {
    const [, name = "", port = ""] = (typeof entry === "string" && /^([^:[\]]+):(\d+)$/.exec(entry)) || [];
    return (known.get(name) ?? []).map((address) => joinHostPort(address, Number(port)));
  };
  const all = Object.entries(map).map(([ip, entries]): [string, YamlValue] => {
    const list = listOf(entries);
    return [ip, [...new Set([...list, ...list.flatMap(beside)])]];
  });
  return { ...config, static_host_map: Object.fromEntries(all) };
}

/** The settings of a configuration without those of withExit: they are decided anew. */
export function withoutExit(config: YamlMap): YamlMap {
  const { tun, listen } = config;
  const routes = isMap(tun) ? tun["unsafe_routes"] : undefined;
  const isOurs = (each: YamlValue) =>
    isMap(each) &&
    each["install"] === false &&
    typeof each["route"] === "string" &&
    each["route"].endsWith("/0");
  return {
    ...config,
    ...(isMap(tun) && Array.isArray(routes)
      ? { tun: { ...tun, unsafe_routes: routes.filter((each) => !isOurs(each)) } }
      : {}),
    ...(isMap(listen) && listen["so_mark"] === exitMark ? { listen: without(listen, "so_mark") } : {}),
  };
}

function without({ ...map }: YamlMap, key: string): YamlMap {
  delete map[key];
  return map;
}
