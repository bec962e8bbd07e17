// resolved.json: the addresses behind the names of an organization's own control plane, lighthouses and relays. Each
// organization looks up its own names, at every check-in. The overlays of the machine's other organizations must not route them.

import { join } from "node:path";
import * as v from "valibot";
import { readTextIfThere, writeFileAtomic } from "../../../base/files.ts";
import { parseAddress } from "../../../base/ip.ts";
import type { System } from "../../../base/system.ts";
import { within } from "../../../base/within.ts";
import { credentialsIfOwn } from "../organizations.ts";
import { readValidJson } from "../json-file.ts";
import { staticHosts } from "../config/read-config.ts";

const mostHosts = 256;
const mostAddresses = 32;
/** `seen`: when the address was found, ms since 1970. */
const Resolved = v.object({
  hosts: v.pipe(
    v.record(
      v.pipe(v.string(), v.maxLength(253)),
      v.pipe(
        v.array(v.object({ address: v.pipe(v.string(), v.maxLength(45)), seen: v.number() })),
        v.maxLength(mostAddresses),
      ),
    ),
    v.maxEntries(mostHosts),
  ),
});
type Resolved = v.InferOutput<typeof Resolved>["hosts"];

/** An address or a name that the organization needs outside of its overlay. */
export type OwnHost = { host: string; what: "control plane" | "lighthouse or relay" };

const fileOf = (directory: string) => join(directory, "resolved.json");

/** The hosts that an organization needs. */
export function ownHosts(directory: string): OwnHost[] {
  const credentials = credentialsIfOwn(directory);
  const hubs = hubsIn(directory).map((host) => ({ host, what: "lighthouse or relay" as const }));
  return [...planeOf(credentials?.api_base), ...hubs].slice(0, mostHosts);
}

/** The host of a control plane. */
export function planeOf(apiBase: string | undefined): OwnHost[] {
  if (apiBase === undefined || !URL.canParse(apiBase)) return [];
  return [{ host: new URL(apiBase).hostname.replace(/^\[(.*)\]$/, "$1"), what: "control plane" }];
}

function hubsIn(directory: string): string[] {
  try {
    return staticHosts(readTextIfThere(join(directory, "config.yml")) ?? "").map(({ host }) => host);
  } catch {
    // Damage of one organization must not affect another.
    return [];
  }
}

const isName = (host: string) => parseAddress(host) === undefined;

/** The addresses of each name; without an entry for a name that was never looked up. */
export function readResolved(directory: string): Map<string, string[]> {
  const hosts = readValidJson(fileOf(directory), Resolved)?.hosts ?? {};
  return new Map(Object.entries(hosts).map(([name, found]) => [name, found.map(({ address }) => address)]));
}

/** A name server may give other addresses to each query, so those of the last day count. */
const keptMs = 24 * 3_600_000;
/** How often the time of an address that was seen again is written. */
const refreshMs = 3_600_000;
const lookupMs = 2000;

type UsedSystem = Pick<System, "lookup" | "sleep">;

/** Looks up the names of an organization, and writes the file if that changes it. Without an answer it stays as it is. */
export async function noteResolved(
  directory: string,
  system: UsedSystem & Pick<System, "now">,
): Promise<void> {
  const names = [...new Set(ownHosts(directory).flatMap(({ host }) => (isName(host) ? [host] : [])))];
  const stored = readValidJson(fileOf(directory), Resolved)?.hosts ?? {};
  if (names.length === 0 && Object.keys(stored).length === 0) return;
  const now = system.now();
  const found = await lookUp(names, system);
  const next: Resolved = Object.fromEntries(
    names.map((name) => {
      const ofLastDay = (stored[name] ?? []).filter(({ seen }) => now - seen < keptMs);
      const answered = (found.get(name) ?? []).map((address) => {
        const seenBefore = ofLastDay.find((entry) => entry.address === address)?.seen ?? 0;
        return { address, seen: now - seenBefore < refreshMs ? seenBefore : now };
      });
      const others = ofLastDay.filter((entry) => !answered.some(({ address }) => address === entry.address));
      return [name, [...answered, ...others].slice(0, mostAddresses)];
    }),
  );
  if (Bun.deepEquals(sorted(next), sorted(stored))) return;
  writeFileAtomic(fileOf(directory), `${JSON.stringify({ hosts: next })}\n`, 0o644);
}

/** For comparison: name servers rotate the order. */
function sorted(hosts: Resolved): unknown[] {
  const byAddress = ([name, addresses]: [string, Resolved[string]]) =>
    [name, addresses.toSorted((a, b) => (a.address < b.address ? -1 : 1))] as const;
  return Object.entries(hosts)
    .map(byAddress)
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

/** The addresses by name. Sequential, and no further lookup after a timeout: an unanswered lookup blocks a thread for ten seconds. */
export async function lookUp(names: readonly string[], system: UsedSystem): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (const name of names) {
    const answer = await within(system, lookupMs, system.lookup(name, "system"), undefined);
    if (answer === undefined) break;
    if (answer.length > 0) found.set(name, [...new Set(answer)]);
  }
  return found;
}
