// Names without an address in settings that every engine resolves at its start: those settings are left out. Lighthouses and
// relays are not among them: see host-names.ts.

import { parseAddress, withoutPort } from "../../../base/ip.ts";
import { isMap, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import type { LeftOut } from "../../../engine/left-out.ts";
import { lookUpUnresolved, type ResolvingSystem } from "./host-names.ts";

/**
 * Leaves out the Graphite server and advertised names if they have no address: every engine resolves them at its start and under
 * `-test`, and refuses the whole configuration without an answer. `unresolved`: these names are to be looked up again later.
 */
export async function withoutUnresolved(
  config: YamlMap,
  system: ResolvingSystem,
): Promise<{ config: YamlMap; leftOut: LeftOut[]; unresolved: string[] }> {
  const names = leaveOutNames(config, () => true).leftOut.map(({ name }) => name);
  if (names.length === 0) return { config, leftOut: [], unresolved: [] };
  const unresolved = await lookUpUnresolved([...new Set(names)], system);
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

/** `leftOut`: the settings with their names. */
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
  const usable = advertised.filter((address) => {
    const name = nameIn(address);
    const isKept = name === undefined || !isLeftOut(name);
    if (!isKept) leftOut.push({ key: "lighthouse.advertise_addrs", name });
    return isKept;
  });
  if (usable.length < advertised.length) kept["lighthouse"] = { ...lighthouse, advertise_addrs: usable };
  return { config: kept, leftOut };
}

/** The name in "name:port". Undefined for an address, and for a port alone. */
function nameIn(hostPort: YamlValue | undefined): string | undefined {
  const host = typeof hostPort === "string" ? withoutPort(hostPort) : "";
  return host === "" || parseAddress(host) !== undefined ? undefined : host;
}
