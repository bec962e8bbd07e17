// Resolves DNS names of lighthouses and relays for engines below 1.7. Such an engine resolves a name once, at its start
// and under `-test`, and refuses the whole configuration if that fails: without a name server, no revocation would reach
// this node, and no engine would start after a reboot. So this program replaces names by addresses. It resolves them at
// each check-in, keeps the last known addresses, and leaves out names that it never resolved.

import { can } from "../../../engine/features.ts";
import type { System } from "../../../base/system.ts";
import type { YamlMap } from "../../../base/yaml.ts";
import { hostNames, type HostNames } from "../config/config-file.ts";
import { within } from "../../../base/within.ts";

export type ResolvingSystem = Pick<System, "lookup" | "sleep">;

/** Short, because a revocation may be waiting. */
const lookupMs = 2000;

/**
 * The names in a configuration with their addresses now or, without an answer, with those that were `known`. `overlay`: networks
 * whose addresses do not count. Undefined if there are no names, or if the engine resolves them itself. An engine of unknown
 * version counts as old.
 */
export async function resolveNames(
  config: YamlMap,
  engineVersion: string | undefined,
  known: HostNames,
  system: ResolvingSystem,
  overlay: readonly string[],
): Promise<HostNames | undefined> {
  if (can(engineVersion, "static_map")) return undefined;
  const names = hostNames(config);
  return names.length === 0 ? undefined : resolveAll(names, known, system, overlay);
}

/** Whether the addresses of a name differ from those in config.yml. A failed lookup is not a difference. */
export async function haveChanged(
  known: HostNames | undefined,
  system: ResolvingSystem,
  overlay: readonly string[],
): Promise<boolean> {
  if (known === undefined) return false;
  return !Bun.deepEquals(await resolveAll(Object.keys(known), known, system, overlay), known);
}

/** Looks the names up, and returns those without an address. */
export async function lookUpUnresolved(names: readonly string[], system: ResolvingSystem): Promise<string[]> {
  return neverResolved(await resolveAll(names, {}, system, []));
}

/** The names without an address, of names that were looked up. */
export function neverResolved(names: HostNames | undefined): string[] {
  return Object.entries(names ?? {}).flatMap(([name, addresses]) => (addresses.length === 0 ? [name] : []));
}

/**
 * Sequential, and no further lookup after a timeout: an unanswered lookup blocks a thread for ten seconds. A name without an answer
 * keeps its known addresses; an empty list stands for a name that never had one.
 */
async function resolveAll(
  names: readonly string[],
  known: HostNames,
  system: ResolvingSystem,
  overlay: readonly string[],
): Promise<HostNames> {
  const found = new Map<string, string[]>();
  // Loaded on demand: most configurations hold no names.
  const { isWithin, parseNetworks } = await import("../../../base/ip.ts");
  const networks = parseNetworks(overlay);
  // The engine refuses a configuration that reaches a lighthouse by an address of the overlay itself.
  const outside = (address: string) => !isWithin(address, networks);
  let isSilent = false;
  for (const name of names) {
    const answer: string[] | undefined = isSilent ? undefined : await addressesOf(name, system);
    const usable = answer?.filter(outside) ?? [];
    isSilent = answer === undefined;
    const knownBefore = Object.hasOwn(known, name) ? known[name] : undefined;
    found.set(name, usable.length === 0 ? (knownBefore ?? []).filter(outside) : usable);
  }
  return Object.fromEntries(found);
}

/**
 * IPv4 first, and sorted, because name servers rotate the order. All addresses of both families: the machine may have one family
 * only, and the engine tries each. Undefined if no name server answers.
 */
async function addressesOf(name: string, system: ResolvingSystem): Promise<string[] | undefined> {
  const answer = await within(system, lookupMs, system.lookup(name, "system"), undefined);
  if (answer === undefined) return undefined;
  const sorted = [...new Set(answer)].sort();
  const isIpv6 = (address: string) => address.includes(":");
  return [...sorted.filter((address) => !isIpv6(address)), ...sorted.filter(isIpv6)];
}
