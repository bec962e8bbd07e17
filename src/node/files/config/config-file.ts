// config.yml of this machine: the filtered configuration of the control plane (sent-config.ts), with this machine's paths
// and its administrator's overrides.yml merged over it. Writes nothing.

import { join } from "node:path";
import * as v from "valibot";
import { joinHostPort, parseNetwork } from "../../../base/ip.ts";
import { brand } from "../../../brand.ts";
import { AppError, hasCode } from "../../../base/errors.ts";
import { readTextIfThere } from "../../../base/files.ts";
import { cutText } from "../../../base/text.ts";
import { controlSocket } from "../../../platform/systemd/control-socket.ts";
import {
  isMap,
  listOf,
  mergeYaml,
  stringifyYaml,
  valueAt,
  type YamlMap,
  type YamlValue,
} from "../../../base/yaml.ts";
import { withDataPlane, type DataPlane } from "./data-plane.ts";
import { readLocalChanges, withLocalChanges } from "./local-changes.ts";
import { byEachAddress, readPeerMap, withPeerMap } from "./peer-map.ts";
import { readRouteChoice, withRouteChoice } from "./route-choice.ts";
import { withExit } from "../granted/exits.ts";
import { ignoringDamage } from "../granted/machine-facts.ts";
import { maskedNetworks } from "../granted/networks.ts";
import { refuseForeignFiles } from "../own-files.ts";
import { readMappingState, withMapping } from "../mapping-state.ts";
import { readTcpState, withTcpAddresses } from "../tcp-state.ts";
import { Overrides } from "./override-settings.ts";
import { readOwnYaml, readYaml } from "./read-yaml.ts";

/** By DNS name: the addresses that config.yml has instead (host-names.ts). An empty list for an unresolved name. */
export type HostNames = Record<string, string[]>;

const overridable = Object.keys(Overrides.entries);

export type Finish = {
  /** Replaces DNS names for an engine that is too old for them. */
  names: HostNames | undefined;
  /** Whether the engine gets a control socket. */
  localApi: boolean;
  /** Offloads and buffers; undefined: not decided yet. */
  dataPlane: DataPlane | undefined;
  /** Where the engine finds the certificates. Default: the organization's directory. Else a staged generation. */
  filesIn?: string;
  /** Replaces overrides.yml: to find the faulty key, or to keep what is in force of it. */
  overrides?: YamlMap;
};

/**
 * The text of config.yml, from the configuration that readSent returned. Throws bad_configuration, naming a key that
 * overrides.yml may not set.
 */
export function finishConfig(
  config: YamlMap,
  directory: string,
  { names, localApi, dataPlane, filesIn = directory, overrides = readOverrides(directory) }: Finish,
): string {
  const { pki } = config;
  const paths = {
    ca: join(filesIn, "ca.crt"),
    cert: join(filesIn, "host.crt"),
    key: join(directory, "host.key"),
  };
  // What this machine changes by itself, in this order: later steps read what earlier ones wrote.
  let own = withRouteChoice(config, readRouteChoice(directory));
  // Without the control socket nothing heals tunnels, so nothing would end these changes.
  if (localApi) own = withLocalChanges(own, readLocalChanges(directory));
  // A damaged host.crt must not keep the configuration out that comes with another one.
  const networks = ignoringDamage(() => maskedNetworks(readTextIfThere(paths.cert) ?? "")) ?? [];
  own = withPeerMap(own, byEachAddress(readPeerMap(directory), directory, networks));
  own = withTcpAddresses(own, readTcpState(directory));
  own = withMapping(own, readMappingState(directory));
  own = withDataPlane(own, dataPlane);
  // The engine version: one that cannot mark its packets gets no exit.
  own = withExit(own, directory, dataPlane?.engine);
  own = { ...own, pki: { ...(isMap(pki) ? pki : {}), ...paths } };
  if (localApi) own = { ...own, local_api: localApiSection(directory) };
  const merged = mergeYaml(own, overrides);
  return stringifyYaml(names === undefined ? merged : withAddresses(merged, names));
}

/** No group is set, which could use the socket: it gives full control of the engine. */
export function localApiSection(directory: string): YamlMap {
  const socket = controlSocket(directory);
  return { control: socket === undefined ? { enabled: false } : { enabled: true, socket } };
}

/** Whether a config.yml has exactly this program's section about the control socket, so that the engine has one. */
export function hasLocalApi(configYml: string, directory: string): boolean {
  return Bun.deepEquals(readOwnYaml(configYml, "config.yml")["local_api"], localApiSection(directory));
}

/**
 * overrides.yml; empty if the file does not exist. Throws bad_configuration for a file that is not valid or sets what is not allowed
 * (override-settings.ts), and if others than root can change the organization's files.
 */
export function readOverrides(directory: string): YamlMap {
  refuseForeignFiles(directory);
  const path = join(directory, "overrides.yml");
  const text = readTextIfThere(path);
  if (text === undefined || text.trim() === "") return {};
  const overrides = readYaml(text, path);
  const foreign = Object.keys(overrides).find((key) => !overridable.includes(key));
  if (foreign !== undefined)
    throw new AppError(
      "bad_configuration",
      `${path} sets "${foreign}", which may not be overridden on this machine`,
      { hint: `Only these keys may: ${overridable.join(", ")}.` },
    );
  const parsed = v.safeParse(Overrides, overrides);
  if (!parsed.success) throw notAllowed(path, parsed.issues[0]);
  const route = defaultRouteIn(overrides);
  if (route === undefined) return parsed.output;
  throw new AppError(
    "bad_configuration",
    `${path} sets tun.unsafe_routes ${route}, which would replace this machine's default route for good`,
    {
      hint: `Remove it. To use an exit: \`${brand.executable} exit use NODE\`. Else route two halves: ${halves(route)}.`,
    },
  );
}

function notAllowed(path: string, issue: v.BaseIssue<unknown>): AppError {
  const value = cutText(JSON.stringify(issue.path?.at(-1)?.value ?? null), 60);
  return new AppError(
    "bad_configuration",
    `${path} sets ${v.getDotPath(issue)} to ${value}. Allowed is ${issue.message}`,
    {
      hint: `Correct it, then run: \`${brand.executable} sync-config\`. Until then the configuration in force stays.`,
    },
  );
}

/**
 * The first default route that the engine would install. The kernel has only one: the engine would replace it, and nothing restores
 * it when the engine ends.
 */
function defaultRouteIn(overrides: YamlMap): string | undefined {
  for (const entry of listOf(valueAt(overrides, "tun.unsafe_routes"))) {
    const { route, install } = isMap(entry) ? entry : {};
    if (install === false || typeof route !== "string") continue;
    if (parseNetwork(route)?.prefix === 0) return route;
  }
  return undefined;
}

const halves = (route: string) => (route.includes(":") ? "::/1 and 8000::/1" : "0.0.0.0/1 and 128.0.0.0/1");

/** The sections of a config.yml that overrides.yml may set. As `overrides` of finishConfig they keep what is in force. */
export function overriddenIn(configYml: string): YamlMap {
  const config = readOwnYaml(configYml, "config.yml");
  return Object.fromEntries(Object.entries(config).filter(([key]) => overridable.includes(key)));
}

/** Why readOverrides refuses overrides.yml. Undefined: it does not. */
export function overridesRefusal(directory: string): string | undefined {
  try {
    readOverrides(directory);
    return undefined;
  } catch (error) {
    if (hasCode(error, "bad_configuration")) return error.message;
    throw error;
  }
}

/** What a config.yml has of the settings that overrides.yml names, whatever that sets them to now. Throws for a damaged file. */
export function overridesInForce(directory: string, configYml: string): YamlMap {
  refuseForeignFiles(directory);
  const path = join(directory, "overrides.yml");
  const named = readYaml(readTextIfThere(path) ?? "", path);
  const inForce = Object.entries(overriddenIn(configYml)).flatMap(([section, present]): YamlMap[] => {
    const own = named[section];
    if (own === undefined || isMap(own) !== isMap(present)) return [];
    if (!isMap(own) || !isMap(present)) return [{ [section]: present }];
    return [{ [section]: Object.fromEntries(Object.entries(present).filter(([key]) => key in own)) }];
  });
  return Object.assign({}, ...inForce);
}

/** The DNS names of other nodes in static_host_map. */
export function hostNames({ static_host_map: map }: YamlMap): string[] {
  const entries = isMap(map) ? Object.values(map).flatMap(listOf) : [];
  return [...new Set(entries.flatMap((entry) => nameAndPort(entry)?.name ?? []))];
}

/** Replaces DNS names by addresses. Removes lighthouses without an address, which the engine refuses. */
function withAddresses(config: YamlMap, names: HostNames): YamlMap {
  const { static_host_map: map, lighthouse } = config;
  if (!isMap(map) || !isMap(lighthouse)) return config;
  const reachable = new Map<string, YamlValue[]>();
  for (const [overlay, entries] of Object.entries(map)) {
    const addresses = listOf(entries).flatMap((entry) => addressesFor(entry, names));
    if (addresses.length > 0) reachable.set(overlay, addresses);
  }
  const hosts = listOf(lighthouse["hosts"]).filter((host) => typeof host === "string" && reachable.has(host));
  return { ...config, static_host_map: Object.fromEntries(reachable), lighthouse: { ...lighthouse, hosts } };
}

/** An entry of static_host_map, or what replaces its name. */
function addressesFor(entry: YamlValue, names: HostNames): YamlValue[] {
  const found = nameAndPort(entry);
  if (found === undefined || !Object.hasOwn(names, found.name)) return [entry];
  return (names[found.name] ?? []).map((address) => joinHostPort(address, found.port));
}

/** Undefined for an address. */
function nameAndPort(entry: YamlValue): { name: string; port: number } | undefined {
  const [, name = "", port = ""] = (typeof entry === "string" && /^([^:[\]]+):(\d+)$/.exec(entry)) || [];
  const isName = name !== "" && name.length <= 253 && !/^[\d.]+$/.test(name);
  return isName ? { name, port: Number(port) } : undefined;
}
