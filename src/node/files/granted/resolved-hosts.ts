// resolved.json: the addresses behind the names of an organization's own control plane, lighthouses and relays. Each
// organization looks up its own names, at every check-in; the other organizations of this machine must not route them.

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

export function ownHosts(directory: string): OwnHost[] {
  const credentials = credentialsIfOwn(directory);
  const hubs = hubsIn(directory).map((host) => ({ host, what: "lighthouse or relay" as const }));
  return [...planeOf(credentials?.api_base), ...hubs].slice(0, mostHosts);
}

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
  return new Map(Object.entries(hosts).map(([name, all]) => [name, all.map(({ address }) => address)]));
}

/** A name may have other addresses at each question, so those of the last day count. */
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
  const known = readValidJson(fileOf(directory), Resolved)?.hosts ?? {};
  if (names.length === 0 && Object.keys(known).length === 0) return;
  const now = system.now();
  const found = await lookUp(names, system);
  const next: Resolved = Object.fromEntries(
    names.map((name) => {
      const before = (known[name] ?? []).filter(({ seen }) => now - seen < keptMs);
      const present = (found.get(name) ?? []).map((address) => {
        const seenAt = before.find((each) => each.address === address)?.seen ?? 0;
        return { address, seen: now - seenAt < refreshMs ? seenAt : now };
      });
      const others = before.filter(({ address }) => !present.some((each) => each.address === address));
      return [name, [...present, ...others].slice(0, mostAddresses)];
    }),
  );
  if (Bun.deepEquals(sorted(next), sorted(known))) return;
  writeFileAtomic(fileOf(directory), `${JSON.stringify({ hosts: next })}\n`, 0o644);
}

/** Name servers rotate the order. */
function sorted(hosts: Resolved): unknown[] {
  return Object.entries(hosts)
    .map(([name, all]) => [name, all.toSorted((a, b) => (a.address < b.address ? -1 : 1))] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Sequential, and no further lookup after a timeout: an unanswered lookup blocks a thread for ten seconds. */
export async function lookUp(names: readonly string[], system: UsedSystem): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (const name of names) {
    const answer = await within(system, lookupMs, system.lookup(name, "system"), undefined);
    if (answer === undefined) break;
    if (answer.length > 0) found.set(name, [...new Set(answer)]);
  }
  return found;
}
