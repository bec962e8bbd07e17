// Which changes of config.yml a running engine applies only by a restart.

import { takesReload } from "../../../engine/features.ts";
import { isMap, valueAt, type YamlValue } from "../../../base/yaml.ts";
import { readOwnYaml } from "./read-yaml.ts";

/** A change of these keys alone waits for the next start of the engine, because a restart would drop all tunnels. */
const waitsForStart = ["timers.connection_alive_interval"];
/**
 * Changes of these keys wait, too, where this program has set them: then keysNeedingRestart gets them as `alsoWaiting`. What an
 * administrator sets is worth a restart. A port that this program sets is the one that the running engine has already.
 */
const mayWaitForStart = ["tun.use_offloads", "listen.udp_offloads", "listen.port"];

/**
 * Whether a key that the engine did not apply at a reload is worth a restart. If an administrator changed one that may wait,
 * keysNeedingRestart asked for a restart instead of the reload.
 */
export function needsRestart(key: string): boolean {
  return ![...waitsForStart, ...mayWaitForStart].includes(key);
}

/** Changed keys that are worth a restart, and those that wait for the next start. */
type RestartNeed = { now: string[]; later: string[] };

/**
 * The changed keys that the running engine applies only by a restart, from the texts of config.yml. An unknown version counts as
 * old. `alsoWaiting`: keys whose change waits beside the usual ones (ownSwitches in data-plane.ts).
 */
export function keysNeedingRestart(
  before: string,
  after: string,
  engineVersion: string | undefined,
  alsoWaiting: readonly string[] = [],
): RestartNeed {
  const former = readOwnYaml(before, "config.yml");
  const next = readOwnYaml(after, "config.yml");
  // All engines begin to relay by a reload. Some need a restart to end that, or to use other relays.
  const becomesRelay = valueAt(next, "relay.am_relay") === true;
  const pending = changedPaths(former, next).filter(
    (path) => !takesReload(path, engineVersion) && !(becomesRelay && path === "relay.am_relay"),
  );
  const waits = (path: string) => waitsForStart.includes(path) || alsoWaiting.includes(path);
  return { now: pending.filter((path) => !waits(path)), later: pending.filter(waits) };
}

/** Whether the firewall's section differs: then a reload rebuilds all of the firewall. */
export function changesFirewall(before: string, after: string): boolean {
  const firewallIn = (text: string) => readOwnYaml(text, "config.yml")["firewall"];
  return !Bun.deepEquals(firewallIn(before), firewallIn(after));
}

/** The paths of the values that differ. */
function changedPaths(former: YamlValue | undefined, next: YamlValue | undefined, path = ""): string[] {
  if (!isMap(former) && !isMap(next)) return Bun.deepEquals(former, next) ? [] : [path];
  const formerMap = isMap(former) ? former : {};
  const nextMap = isMap(next) ? next : {};
  const keys = new Set([...Object.keys(formerMap), ...Object.keys(nextMap)]);
  return [...keys].flatMap((key) =>
    changedPaths(formerMap[key], nextMap[key], path === "" ? key : `${path}.${key}`),
  );
}
