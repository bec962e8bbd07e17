// Chooses which overlay addresses are probed. Pure.

import type { Facts } from "./facts.ts";
import { isBroken, type ProbeRecord } from "./prober.ts";
import { mostRelays, relayCandidates } from "./relay-choice.ts";
import type { SeenTunnel, Tunnels } from "./tunnels.ts";

/** Probed unasked beside lighthouses and the relays to choose from. */
const maxUnasked = 32;

export type Probable = {
  facts: Facts;
  tunnels: Pick<Tunnels, "all" | "isActive">;
  records: readonly [address: string, record: ProbeRecord][];
  /** Peers that a user asked for. */
  named: readonly string[];
  /** Whether this process chooses relays, which needs their round trips. */
  choosesRelays: boolean;
  /** Monotonic ms. */
  now: number;
};

/** Lighthouses, relays to choose from, relays in use, peers with traffic, peers that stopped answering, and named ones. */
export function probeTargets({ facts, tunnels, records, named, choosesRelays, now }: Probable): string[] {
  const relaysInUse = tunnels.all.flatMap(({ remote, relays }) => (remote === undefined ? relays : []));
  const busy = tunnels.all.filter((each) => tunnels.isActive(each, now)).toSorted(latestFirst);
  // Probed until it is certain that they are lost, also without a tunnel.
  const lost = records.flatMap(([address, each]) => (isBroken(each, now) ? [address] : []));
  const unasked = new Set([...relaysInUse, ...busy.map(({ address }) => address), ...lost]);
  const all = [
    ...facts.lighthouses,
    ...(choosesRelays ? relaysToMeasure(facts) : []),
    ...[...unasked].slice(0, maxUnasked),
    ...named,
  ];
  // A tunnel's certificate may name an address of this node, or one outside the overlay.
  return all.filter((each) => !facts.own.includes(each) && facts.isInside(each));
}

function latestFirst(a: SeenTunnel, b: SeenTunnel): number {
  return (b.trafficAt ?? 0) - (a.trafficAt ?? 0);
}

/** The relays that this node may choose between; none if it uses all. */
export function relaysToMeasure({ relays, own }: Pick<Facts, "relays" | "own">): string[] {
  return relays.length > mostRelays ? relayCandidates(relays, own[0] ?? "") : [];
}
