// config.yml on this machine: what is taken of the control plane's (sent-config.ts) with this machine's paths, and what its administrator put into
// overrides.yml merged over it. Decides also which changes the engine takes up by a reload. Writes nothing.

import { join } from "node:path";
import { AppError } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import { isMap, mergeYaml, stringifyYaml, type YamlMap, type YamlValue } from "../../yaml.ts";
import { readOwnYaml, readYaml } from "./read-yaml.ts";

/** What config.yml holds in place of DNS names (host-names.ts); nothing where one could not be resolved yet. */
export type HostNames = Record<string, string[]>;

/** What overrides.yml may set (decisions 3.4): nothing that decides whom this node trusts. */
const overridable = ["listen", "tun", "logging", "punchy", "preferred_ranges", "routines", "stats", "sshd"];

/**
 * The final text for an organization's directory, from what readSent lets through. `names` is what the engine gets in place of names, where it is too old
 * for them; `filesIn` where it finds the certificates: the directory itself, or one generation while it is tried out.
 * Throws bad_configuration naming a key that overrides.yml may not set.
 */
export function finishConfig(
  config: YamlMap,
  directory: string,
  names: HostNames | undefined,
  filesIn: string = directory,
): string {
  const { pki } = config;
  const paths = {
    ca: join(filesIn, "ca.crt"),
    cert: join(filesIn, "host.crt"),
    key: join(directory, "host.key"),
  };
  const own = mergeYaml(
    { ...config, pki: { ...(isMap(pki) ? pki : {}), ...paths } },
    readOverrides(directory),
  );
  return stringifyYaml(names === undefined ? own : withAddresses(own, names));
}

/** overrides.yml, empty if there is none. Throws bad_configuration. */
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

/** The names by which other nodes are to be reached. */
export function hostNames({ static_host_map: map }: YamlMap): string[] {
  const entries = isMap(map) ? Object.values(map).flatMap(listOf) : [];
  return [...new Set(entries.flatMap((entry) => nameAndPort(entry)[0] ?? []))];
}

/** The configuration with addresses for names. The engine refuses a lighthouse that has none, so that goes too. */
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
  return (names[name] ?? []).map((each) => `${each.includes(":") ? `[${each}]` : each}:${port}`);
}

/** Nothing where there is an address. */
function nameAndPort(entry: YamlValue): [name?: string, port?: string] {
  const [, host = "", port = ""] = (typeof entry === "string" && /^([^:[\]]+):(\d+)$/.exec(entry)) || [];
  return host === "" || host.length > 253 || /^[\d.]+$/.test(host) ? [] : [host, port];
}

function listOf(value: YamlValue | undefined): YamlValue[] {
  if (Array.isArray(value)) return value;
  return value === undefined ? [] : [value];
}

/**
 * True where the engine's log will show neither that it is ready nor that it has reloaded. A configuration that is damaged
 * says nothing of that; whoever applies it hears of the damage.
 */
export function isSilent(configYml: string): boolean {
  try {
    const level = at(readOwnYaml(configYml, "config.yml"), "logging.level");
    return typeof level === "string" && /^(warn|warning|error|fatal|panic)$/i.test(level);
  } catch (error) {
    if (error instanceof AppError) return false;
    throw error;
  }
}

/** Whether an engine is silent before or after a change of its configuration: it may have the level of either. */
export function silence(configText: () => string): () => boolean {
  // What cannot be read is no reason not to stop an engine.
  const text = () => {
    try {
      return configText();
    } catch {
      return "";
    }
  };
  // Read now, understood when somebody asks: most commands change nothing.
  const before = text();
  return () => isSilent(before) || isSilent(text());
}

/** The UDP port that a configuration binds; undefined where the engine takes any. */
export function listenPort(configYml: string): number | undefined {
  const port = at(readOwnYaml(configYml, "config.yml"), "listen.port");
  return typeof port === "number" && port > 0 ? port : undefined;
}

/** The overlay addresses of the lighthouses that a configuration names. */
export function lighthouseHosts(configYml: string): string[] {
  const hosts = listOf(at(readYaml(configYml, "config.yml"), "lighthouse.hosts"));
  return hosts.filter((host) => typeof host === "string");
}

/** Read by the engine only at its start; the version from which a reload is enough, where there is one. */
const startOnly: readonly { path: string; reloadsFrom?: string }[] = [
  { path: "listen.host" },
  { path: "listen.port" },
  { path: "listen.batch" },
  { path: "routines" },
  { path: "cipher" },
  { path: "lighthouse.am_lighthouse" },
  { path: "tun.disabled" },
  { path: "tun.dev" },
  { path: "tun.drop_local_broadcast" },
  { path: "tun.drop_multicast" },
  { path: "tun.tx_queue" },
  { path: "tun.mtu", reloadsFrom: "1.9.0" },
  { path: "tun.routes", reloadsFrom: "1.9.0" },
  { path: "tun.unsafe_routes", reloadsFrom: "1.9.0" },
  { path: "handshakes" },
  { path: "preferred_ranges", reloadsFrom: "1.9.0" },
  { path: "punchy.punch", reloadsFrom: "1.11.0" },
  { path: "stats", reloadsFrom: "1.11.0" },
];

/** A change of these alone never restarts an engine: it waits for the next start (decisions 5). */
const waitsForStart = ["timers.connection_alive_interval"];

export type RestartNeed = { now: string[]; later: string[] };

/** Which changed keys the running engine (its version, undefined if unknown) takes up only by a restart. */
export function restartNeeds(before: string, after: string, engineVersion: string | undefined): RestartNeed {
  const [old, next] = [readOwnYaml(before, "config.yml"), readOwnYaml(after, "config.yml")];
  const changed = (path: string) => JSON.stringify(at(old, path)) !== JSON.stringify(at(next, path));
  const reloads = (from: string | undefined) =>
    from !== undefined && engineVersion !== undefined && Bun.semver.order(engineVersion, from) >= 0;
  return {
    now: startOnly
      .filter(({ path, reloadsFrom }) => !reloads(reloadsFrom) && changed(path))
      .map(({ path }) => path),
    later: waitsForStart.filter(changed),
  };
}

function at(map: YamlMap, path: string): YamlValue | undefined {
  return path
    .split(".")
    .reduce<YamlValue | undefined>((value, key) => (isMap(value) ? value[key] : undefined), map);
}
