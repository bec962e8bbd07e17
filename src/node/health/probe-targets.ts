// Chooses which overlay addresses are probed. Pure.

import type { Facts } from "./configured-facts.ts";
import { isBroken, type ProbeRecord } from "./probe-record.ts";
import { mostRelays, relayCandidates } from "./paths/relay-choice.ts";
import type { SeenTunnel, Tunnels } from "./tunnels.ts";

/** Peers that are probed without a request, in addition to lighthouses and the relays to choose from. */
const maxUnasked = 32;
/** Peers that stopped answering. Those that were not probed for longest come first, so each gets its turn. */
const maxLost = 16;
/** A lighthouse needs the answers of some nodes, to know whether packets reach it. */
const maxServed = 8;
/** Routers of subnets: the kernel's route alone does not show that a router answers. */
const maxRouters = 16;

export type Probable = {
  facts: Facts;
  tunnels: Pick<Tunnels, "all" | "isActive" | "get">;
  /** Whether the engine reports its tunnels. */
  reportsTunnels: boolean;
  records: readonly [address: string, record: ProbeRecord][];
  /** Peers that a user asked for. */
  named: readonly string[];
  /** Whether this process chooses relays, which needs their round trips. */
  choosesRelays: boolean;
  /** Monotonic ms. */
  now: number;
  /** Some nodes that a lighthouse serves. */
  served: readonly string[];
};

/** Lighthouses, routers, relays to choose from, relays in use, peers with traffic, peers that stopped answering, and named ones. */
export function probeTargets(probable: Probable): string[] {
  const { facts, tunnels, records, named, choosesRelays, reportsTunnels, now } = probable;
  const relaysInUse = tunnels.all.flatMap(({ remote, relays }) => (remote === undefined ? relays : []));
  const busy = tunnels.all.filter((each) => tunnels.isActive(each, now)).toSorted(latestFirst);
  // Peers that stopped answering are probed until they answer or are gone, also without a tunnel.
  const lost = records
    .filter(([, each]) => isBroken(each))
    .toSorted(([, a], [, b]) => probedAt(a) - probedAt(b));
  // Nodes contact their lighthouse. If it began, by one of two addresses, its engine would know the node by that one alone (healer.ts).
  const mayProbe = (address: string) =>
    !facts.isLighthouse || !reportsTunnels || tunnels.get(address) !== undefined;
  const routers = new Set(facts.routes.flatMap(({ routers: each }) => each));
  const unasked = new Set([...relaysInUse, ...busy.map(({ address }) => address)]);
  const all = [
    ...facts.lighthouses,
    ...watchedForTcp(facts),
    ...[...routers].filter(mayProbe).slice(0, maxRouters),
    ...(choosesRelays ? relaysToMeasure(facts) : []),
    ...[...unasked].slice(0, maxUnasked),
    ...lost
      .map(([address]) => address)
      .filter(mayProbe)
      .slice(0, maxLost),
    ...(facts.isLighthouse ? servedOf(probable, mayProbe) : []),
    ...named,
  ];
  // A tunnel's certificate may name an address of this node, or one outside the overlay.
  return [...new Set(all)].filter((each) => !facts.own.includes(each) && facts.isInside(each));
}

/** Monotonic ms of the last probe with a result. */
const probedAt = ({ history, since }: ProbeRecord) => history.at(-1)?.at ?? since;

/**
 * For a lighthouse, whose engine may not report its tunnels: peers that answered last, then those with the youngest tunnels, then nodes
 * from its files.
 */
function servedOf({ records, tunnels, served }: Probable, mayProbe: (address: string) => boolean): string[] {
  const answered = records
    .filter(([address, { answeredAt }]) => answeredAt !== undefined && mayProbe(address))
    .toSorted(([, a], [, b]) => (b.answeredAt ?? 0) - (a.answeredAt ?? 0))
    .map(([address]) => address);
  const youngest = tunnels.all.toSorted((a, b) => b.since - a.since).map(({ address }) => address);
  // Half of the places are for peers that answered, so that new ones are noticed too.
  return [...new Set([...answered.slice(0, maxServed / 2), ...youngest, ...served])]
    .filter(mayProbe)
    .slice(0, maxServed);
}

function latestFirst(a: SeenTunnel, b: SeenTunnel): number {
  return (b.trafficAt ?? 0) - (a.trafficAt ?? 0);
}

/** One of those that are reached by TCP where UDP is blocked: its silence must be noticed soon (edge/notice-blocked-udp.ts). */
export const watchedForTcp = ({ byTcp }: Pick<Facts, "byTcp">): readonly string[] => byTcp.slice(0, 1);

/** The relays that this node may choose between; none if it uses all. */
export function relaysToMeasure({ relays, own }: Pick<Facts, "relays" | "own">): string[] {
  return relays.length > mostRelays ? relayCandidates(relays, own[0] ?? "") : [];
}
