// Which changes of config.yml a running engine applies only by a restart.

import { takesReload } from "../../../engine/features.ts";
import { isMap, valueAt, type YamlValue } from "../../../base/yaml.ts";
import { readOwnYaml } from "./read-yaml.ts";

/** A change of these keys alone waits for the next start of the engine, because a restart would drop all tunnels. */
const waitsForStart = ["timers.connection_alive_interval"];
/**
 * Changes of these keys wait, too, unless an administrator has set them (data-plane.ts). The port is the running
 * engine's.
 */
const mayWaitForStart = ["tun.use_offloads", "listen.udp_offloads", "listen.port"];

/** Whether a key that a reload did not apply is worth a restart. */
export function needsRestart(key: string): boolean {
  return ![...waitsForStart, ...mayWaitForStart].includes(key);
}

type RestartNeed = { now: string[]; later: string[] };

/**
 * The changed keys that the running engine applies only by a restart. An unknown version counts as old. `waiting`: keys
 * beside the usual ones whose change waits.
 */
export function restartNeeds(
  before: string,
  after: string,
  engineVersion: string | undefined,
  waiting: readonly string[] = [],
): RestartNeed {
  const [old, next] = [readOwnYaml(before, "config.yml"), readOwnYaml(after, "config.yml")];
  // All engines begin to relay by a reload. Those that need a restart need it only to use other relays afterwards.
  const becomesRelay = valueAt(next, "relay.am_relay") === true;
  const pending = changedPaths(old, next).filter(
    (path) => !takesReload(path, engineVersion) && !(becomesRelay && path === "relay.am_relay"),
  );
  const waits = (path: string) => waitsForStart.includes(path) || waiting.includes(path);
  return { now: pending.filter((path) => !waits(path)), later: pending.filter(waits) };
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
