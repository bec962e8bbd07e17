// DNS names of lighthouses and relays, for engines below 1.7. Such an engine looks a name up once, at its start and under
// `-test`, and refuses the whole configuration if it cannot: while a name server is away no revocation would reach this
// node, and after a reboot no engine would start. So these never see a name. This machine looks it up, keeps the
// addresses that it had last, leaves out whom it never found, and looks again at each check-in. The control plane could
// only forbid names wherever one old engine is left, or look them up from a place that is not this node's.

import type { System } from "../../system.ts";
import type { YamlMap } from "../../yaml.ts";
import { hostNames, type HostNames } from "./config-file.ts";

type Needs = Pick<System, "lookup" | "sleep">;

/** What waits for it may be a revocation. */
const lookupMs = 2000;

/**
 * The names in a configuration with their present addresses, or those that are known. Undefined where there are none, or
 * where the engine looks them up itself. One whose version is not known may be old.
 */
export async function lookUpNames(
  config: YamlMap,
  engineVersion: string | undefined,
  known: HostNames,
  system: Needs,
): Promise<HostNames | undefined> {
  if (engineVersion !== undefined && Bun.semver.order(engineVersion, "1.7.0") >= 0) return undefined;
  const names = hostNames(config);
  return names.length === 0 ? undefined : lookUp(names, known, system);
}

/** Whether a name has other addresses than config.yml. One that cannot be resolved has not moved. */
export async function haveMoved(known: HostNames | undefined, system: Needs): Promise<boolean> {
  if (known === undefined) return false;
  return !Bun.deepEquals(await lookUp(Object.keys(known), known, system), known);
}

export function unresolved(names: HostNames | undefined): string[] {
  return Object.entries(names ?? {}).flatMap(([name, addresses]) => (addresses.length === 0 ? [name] : []));
}

/** One after the other, and after a silence none: a lookup that nobody answers holds a thread for ten seconds. */
async function lookUp(names: readonly string[], known: HostNames, system: Needs): Promise<HostNames> {
  const found = new Map<string, string[]>();
  let isSilent = false;
  for (const name of names) {
    const present: string[] | undefined = isSilent ? undefined : await addressesOf(name, system);
    isSilent = present === undefined;
    const last = Object.hasOwn(known, name) ? known[name] : undefined;
    found.set(name, present === undefined || present.length === 0 ? (last ?? []) : present);
  }
  return Object.fromEntries(found);
}

/**
 * In one order, since name servers like to turn it; IPv6 only where there is nothing else, as the engine chooses.
 * Undefined where nobody answers.
 */
async function addressesOf(name: string, system: Needs): Promise<string[] | undefined> {
  const over = new AbortController();
  const late = system.sleep(lookupMs, over.signal).then(
    () => undefined,
    () => undefined,
  );
  const answer = await Promise.race([system.lookup(name, "system"), late]);
  over.abort();
  if (answer === undefined) return undefined;
  const all = [...new Set(answer)].sort();
  const version4 = all.filter((each) => !each.includes(":"));
  return version4.length > 0 ? version4 : all;
}
