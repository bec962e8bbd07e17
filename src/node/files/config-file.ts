// config.yml of this machine: the filtered configuration of the control plane (sent-config.ts), with this machine's paths
// and its administrator's overrides.yml merged over it. Also decides which changes need a restart. Writes nothing.

import { join } from "node:path";
import { hostOf } from "../../engine-config.ts";
import { joinHostPort } from "../../ip.ts";
import { takesReload } from "../../engine-features.ts";
import { AppError } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import { controlSocket } from "../../platform/control-socket.ts";
import { isMap, mergeYaml, stringifyYaml, type YamlMap, type YamlValue } from "../../yaml.ts";
import { readLocalChanges, withLocalChanges } from "./local-changes.ts";
import { readOwnYaml, readYaml } from "./read-yaml.ts";

/** The addresses that config.yml holds instead of DNS names (host-names.ts); an empty list for an unresolved name. */
export type HostNames = Record<string, string[]>;

/** The sections that overrides.yml may set: none that decides which peers this node trusts. */
const overridable = ["listen", "tun", "logging", "punchy", "preferred_ranges", "routines", "stats", "sshd"];

export type Finish = {
  /** Replaces DNS names for an engine that is too old for them. */
  names: HostNames | undefined;
  /** Whether the engine has a control socket. It keeps the one of its start until a reload. */
  localApi: boolean;
  /** Where the engine finds the certificates: the directory, or one generation on trial. */
  filesIn?: string;
  /** Instead of overrides.yml: to find its fault, or what is in force of it. */
  overrides?: YamlMap;
};

/**
 * The text of config.yml, from the configuration that readSent returned. Throws bad_configuration, naming a key that
 * overrides.yml may not set.
 */
export function finishConfig(
  config: YamlMap,
  directory: string,
  { names, localApi, filesIn = directory, overrides = readOverrides(directory) }: Finish,
): string {
  const { pki } = config;
  const paths = {
    ca: join(filesIn, "ca.crt"),
    cert: join(filesIn, "host.crt"),
    key: join(directory, "host.key"),
  };
  const own = mergeYaml(
    {
      ...(localApi ? withLocalChanges(config, readLocalChanges(directory)) : config),
      pki: { ...(isMap(pki) ? pki : {}), ...paths },
      ...(localApi ? { local_api: localApiSection(directory) } : {}),
    },
    overrides,
  );
  return stringifyYaml(names === undefined ? own : withAddresses(own, names));
}

/** It never names a group: the socket gives full control of the engine. */
export function localApiSection(directory: string): YamlMap {
  const socket = controlSocket(directory);
  return { control: socket === undefined ? { enabled: false } : { enabled: true, socket } };
}

/** Whether a config.yml was finished for an engine with a control socket. Other addresses and groups do not count. */
export function hasLocalApi(configYml: string, directory: string): boolean {
  return Bun.deepEquals(readOwnYaml(configYml, "config.yml")["local_api"], localApiSection(directory));
}

/** overrides.yml; empty if the file does not exist. Throws bad_configuration. */
export function readOverrides(directory: string): YamlMap {
  const path = join(directory, "overrides.yml");
  const text = readTextIfThere(path);
  if (text === undefined || text.trim() === "") return {};
  const overrides = readYaml(text, path);
  const foreign = Object.keys(overrides).find((key) => !overridable.includes(key));
  if (foreign === undefined) return overrides;
  throw new AppError(
    "bad_configuration",
    `${path} sets "${foreign}", which may not be overridden on this machine`,
    {
      hint: `Only these keys may: ${overridable.join(", ")}.`,
    },
  );
}

/** The sections of a config.yml that overrides.yml may set: merged over what the control plane sent, they stay as they are. */
export function overriddenIn(configYml: string): YamlMap {
  const config = readOwnYaml(configYml, "config.yml");
  return Object.fromEntries(Object.entries(config).filter(([key]) => overridable.includes(key)));
}

/** The DNS names of other nodes in static_host_map. */
export function hostNames({ static_host_map: map }: YamlMap): string[] {
  const entries = isMap(map) ? Object.values(map).flatMap(listOf) : [];
  return [...new Set(entries.flatMap((entry) => nameAndPort(entry)[0] ?? []))];
}

/** Replaces DNS names by addresses. Removes lighthouses without an address, which the engine refuses. */
function withAddresses(config: YamlMap, names: HostNames): YamlMap {
  const { static_host_map: map, lighthouse } = config;
  if (!isMap(map) || !isMap(lighthouse)) return config;
  const found = new Map<string, YamlValue[]>();
  for (const [ip, entries] of Object.entries(map)) {
    const addresses = listOf(entries).flatMap((entry) => addressed(entry, names));
    if (addresses.length > 0) found.set(ip, addresses);
  }
  const hosts = listOf(lighthouse["hosts"]).filter((ip) => typeof ip === "string" && found.has(ip));
  return { ...config, static_host_map: Object.fromEntries(found), lighthouse: { ...lighthouse, hosts } };
}

function addressed(entry: YamlValue, names: HostNames): YamlValue[] {
  const [name, port] = nameAndPort(entry);
  if (name === undefined || !Object.hasOwn(names, name)) return [entry];
  return (names[name] ?? []).map((each) => joinHostPort(each, Number(port)));
}

/** Empty for an address. */
function nameAndPort(entry: YamlValue): [name?: string, port?: string] {
  const [, host = "", port = ""] = (typeof entry === "string" && /^([^:[\]]+):(\d+)$/.exec(entry)) || [];
  return host === "" || host.length > 253 || /^[\d.]+$/.test(host) ? [] : [host, port];
}

function listOf(value: YamlValue | undefined): YamlValue[] {
  if (Array.isArray(value)) return value;
  return value === undefined ? [] : [value];
}

/**
 * True if the log level hides the engine's messages that it is ready or has reloaded. False for a damaged configuration:
 * the code that applies it reports the damage.
 */
export function isSilent(configYml: string): boolean {
  try {
    return isSilentLevel(at(readOwnYaml(configYml, "config.yml"), "logging.level"));
  } catch (error) {
    if (error instanceof AppError) return false;
    throw error;
  }
}

export function isSilentLevel(level: unknown): boolean {
  return typeof level === "string" && /^(warn|warning|error|fatal|panic)$/i.test(level);
}

/** Whether an engine is silent before or after a change of its configuration: it may log with either level. */
export function silence(configText: () => string): () => boolean {
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
  try {
    const text = readTextIfThere(join(directory, "config.yml")) ?? "";
    const port = at(readOwnYaml(text, "config.yml"), "listen.port");
    return typeof port === "number" ? port : 0;
  } catch {
    // Other code reports the damage, and no engine runs with such a file.
    return 0;
  }
}

/** Whether the engine takes connections of others to forward. True for a damaged file: other code reports it. */
export function isForwarding(configYml: string): boolean {
  try {
    return at(readOwnYaml(configYml, "config.yml"), "relay.am_relay") === true;
  } catch {
    return true;
  }
}

/** The overlay addresses of the lighthouses in a configuration. */
export function lighthouseHosts(configYml: string): string[] {
  const hosts = listOf(at(readYaml(configYml, "config.yml"), "lighthouse.hosts"));
  return hosts.filter((host) => typeof host === "string");
}

/** The interface that a configuration names. Linux cuts longer names off. */
export function tunnelDevice(configYml: string): string | undefined {
  const device = at(readYaml(configYml, "config.yml"), "tun.dev");
  return typeof device === "string" && /^(?!\.{1,2}$)[\w.-]{1,15}$/.test(device) ? device : undefined;
}

/** What a node is for the others, and whom it asks for them. */
export function overlayRoles(configYml: string): {
  lighthouses: string[];
  relays: string[];
  /** Underlay addresses and names of lighthouses and relays. */
  underlays: string[];
  isLighthouse: boolean;
} {
  const config = readOwnYaml(configYml, "config.yml");
  const hosts = config["static_host_map"];
  const texts = (path: string) => listOf(at(config, path)).filter((each) => typeof each === "string");
  return {
    lighthouses: texts("lighthouse.hosts"),
    relays: texts("relay.relays"),
    underlays: Object.values(isMap(hosts) ? hosts : {})
      .flatMap(listOf)
      .flatMap((entry) => (typeof entry === "string" ? [hostOf(entry)] : [])),
    isLighthouse: at(config, "lighthouse.am_lighthouse") === true,
  };
}

/** The addresses or names, with ports, at which lighthouses and relays are reached. */
export function staticHosts(configYml: string): { overlay: string; host: string; port: number }[] {
  const { static_host_map: map } = readOwnYaml(configYml, "config.yml");
  return Object.entries(isMap(map) ? map : {}).flatMap(([overlay, entries]) =>
    listOf(entries).flatMap((entry) => {
      const [, wide, host = wide, port] =
        (typeof entry === "string" && /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(entry)) || [];
      return host === undefined ? [] : [{ overlay, host, port: Number(port) }];
    }),
  );
}

/** Those of lighthouses alone. */
export function underlayOf(configYml: string): { lighthouse: string; host: string; port: number }[] {
  const hosts = staticHosts(configYml);
  return overlayRoles(configYml).lighthouses.flatMap((lighthouse) =>
    hosts.flatMap(({ overlay, ...at }) => (overlay === lighthouse ? [{ lighthouse, ...at }] : [])),
  );
}

/** The subnets that this node reaches through others. */
export function unsafeRoutes(configYml: string): string[] {
  const routes = listOf(at(readOwnYaml(configYml, "config.yml"), "tun.unsafe_routes"));
  return routes.flatMap((each) => (isMap(each) && typeof each["route"] === "string" ? [each["route"]] : []));
}

/** A change of these keys alone waits for the next start of the engine, because a restart would drop all tunnels. */
const waitsForStart = ["timers.connection_alive_interval"];

/** Whether a key that a reload did not apply is worth a restart. */
export function needsRestart(key: string): boolean {
  return !waitsForStart.includes(key);
}

export type RestartNeed = { now: string[]; later: string[] };

/** The changed keys that the running engine applies only by a restart. An unknown version counts as old. */
export function restartNeeds(before: string, after: string, engineVersion: string | undefined): RestartNeed {
  const [old, next] = [readOwnYaml(before, "config.yml"), readOwnYaml(after, "config.yml")];
  // All engines begin to relay by a reload. Those that need a restart need it only to use other relays afterwards.
  const becomesRelay = at(next, "relay.am_relay") === true;
  const pending = changedPaths(old, next).filter(
    (path) => !takesReload(path, engineVersion) && !(becomesRelay && path === "relay.am_relay"),
  );
  return {
    now: pending.filter(needsRestart),
    later: pending.filter((path) => !needsRestart(path)),
  };
}

/** Whether the firewall's section differs: then a reload rebuilds all of the firewall. */
export function changesFirewall(before: string, after: string): boolean {
  const [old, next] = [before, after].map((text) => readOwnYaml(text, "config.yml")["firewall"]);
  return !Bun.deepEquals(old, next);
}

/** The paths of the values that differ. */
function changedPaths(old: YamlValue | undefined, next: YamlValue | undefined, path = ""): string[] {
  if (!isMap(old) && !isMap(next)) return Bun.deepEquals(old, next) ? [] : [path];
  const [a, b] = [isMap(old) ? old : {}, isMap(next) ? next : {}];
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].flatMap((key) => changedPaths(a[key], b[key], path === "" ? key : `${path}.${key}`));
}

function at(map: YamlMap, path: string): YamlValue | undefined {
  return path
    .split(".")
    .reduce<YamlValue | undefined>((value, key) => (isMap(value) ? value[key] : undefined), map);
}
