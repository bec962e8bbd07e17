// Names without an address in settings that every engine resolves at its start: those settings are left out.

import { parseAddress, withoutPort } from "../../../base/ip.ts";
import { isMap, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import type { LeftOut } from "../../../engine/left-out.ts";
import { unresolvedOf, type ResolvingSystem } from "./host-names.ts";

/**
 * Leaves out what every engine resolves at its start and under `-test`, and refuses with all the rest of the configuration
 * if there is no answer: the Graphite server and advertised names. `unresolved`: look these names up again later.
 */
export async function withoutUnresolved(
  config: YamlMap,
  system: ResolvingSystem,
): Promise<{ config: YamlMap; leftOut: LeftOut[]; unresolved: string[] }> {
  const names = leaveOutNames(config, () => true).leftOut.map(({ name }) => name);
  if (names.length === 0) return { config, leftOut: [], unresolved: [] };
  const unresolved = await unresolvedOf([...new Set(names)], system);
  return { ...withoutNames(config, unresolved), unresolved };
}

/** Leaves out these names, which had no address when the configuration was applied. */
export function withoutNames(
  config: YamlMap,
  unresolved: readonly string[] = [],
): { config: YamlMap; leftOut: LeftOut[] } {
  const found = leaveOutNames(config, (name) => unresolved.includes(name));
  const leftOut = found.leftOut.map(({ key, name }) => ({ key, reason: `${name} has no address` }));
  return { config: found.config, leftOut };
}

function leaveOutNames(config: YamlMap, isLeftOut: (name: string) => boolean) {
  const { stats, lighthouse } = config;
  const kept = { ...config };
  const leftOut: { key: string; name: string }[] = [];
  const graphite = isMap(stats) && stats["type"] === "graphite" ? nameIn(stats["host"]) : undefined;
  if (graphite !== undefined && isLeftOut(graphite)) {
    delete kept["stats"];
    leftOut.push({ key: "stats.host", name: graphite });
  }
  const advertised = isMap(lighthouse) ? lighthouse["advertise_addrs"] : undefined;
  if (!isMap(lighthouse) || !Array.isArray(advertised)) return { config: kept, leftOut };
  const usable = advertised.filter((each) => {
    const name = nameIn(each);
    const isKept = name === undefined || !isLeftOut(name);
    if (!isKept) leftOut.push({ key: "lighthouse.advertise_addrs", name });
    return isKept;
  });
  if (usable.length < advertised.length) kept["lighthouse"] = { ...lighthouse, advertise_addrs: usable };
  return { config: kept, leftOut };
}

/** Undefined for an address, and for a port alone. */
function nameIn(hostPort: YamlValue | undefined): string | undefined {
  const host = typeof hostPort === "string" ? withoutPort(hostPort) : "";
  return host === "" || parseAddress(host) !== undefined ? undefined : host;
}
