// How often peers are probed: those with traffic at this moment, and the relays that carry it, more often than idle
// ones. Users notice their loss, and compared with the traffic a few probes cost nothing. The same applies to packets of the
// full size. Pure.

import type { SeenTunnel } from "./tunnels.ts";

/** Traffic of this age counts as going on: tunnels are looked at every 10 s. */
const ongoingMs = 30_000;
/** The pace of relays that carry traffic. */
const relayMs = 2000;
/** The pace of peers with traffic. Two nodes that probe each other more often would take the probes for traffic (tunnels.ts). */
const busyMs = 4000;
const mostBusy = 8;
/** The pace of `watched` ones: it must be noticed within ten seconds that UDP is blocked, and a probe costs less than a question of its own. */
const watchedMs = 8000;

const isBusy = ({ trafficAt }: SeenTunnel, now: number) =>
  trafficAt !== undefined && now - trafficAt < ongoingMs;

export function hasTraffic(
  tunnels: readonly SeenTunnel[],
  now: number,
  except: readonly string[] = [],
): boolean {
  return tunnels.some((each) => isBusy(each, now) && !except.includes(each.address));
}

/** Tunnels with traffic, the latest first. */
const busyTunnels = (tunnels: readonly SeenTunnel[], now: number) =>
  tunnels.filter((each) => isBusy(each, now)).toSorted((a, b) => (b.trafficAt ?? 0) - (a.trafficAt ?? 0));

/** Peers to which a user would notice a loss of large packets. */
export const busiest = (tunnels: readonly SeenTunnel[], now: number): SeenTunnel[] =>
  busyTunnels(tunnels, now).slice(0, mostBusy);

/** ms between probes, by address. `watched`: those whose silence may mean that UDP is blocked. */
export function pacesOf(
  tunnels: readonly SeenTunnel[],
  now: number,
  watched: readonly string[] = [],
): Map<string, number> {
  const busy = busyTunnels(tunnels, now);
  const relays = busy.flatMap((each) => (each.remote === undefined ? each.relays : []));
  // The last entry of an address counts: the shortest pace.
  return new Map([
    ...watched.map((address) => [address, watchedMs] as const),
    ...busy.slice(0, mostBusy).map(({ address }) => [address, busyMs] as const),
    ...relays.map((relay) => [relay, relayMs] as const),
  ]);
}

/** While there is traffic, to a lighthouse. */
const measureOftenMs = 5000;
/** While there is traffic, to a peer. More often would count as traffic (tunnels.ts) if two peers measured each other. */
const measurePeerMs = 10_000;
/** While large packets are lost: their return must be noticed this soon. */
const measureLostMs = 15_000;
/** Without traffic, the pause is doubled from the first to the longest. */
const measureSoonMs = 30_000;
const measureRarelyMs = 300_000;

/**
 * When a packet of the full size goes to a lighthouse, and back: often while there is traffic, whose loss a user notices.
 * Without, soon after a change of the path, then rarely: every 30 s would be 8 MB a day. A user who asks gets it measured at once.
 */
export class MeasurePace {
  /** The subject of the last measurement (large-packets.ts). If size or path differ now, measure at once. */
  #subject = "";
  /** Monotonic ms of its end. */
  #endedAt = Number.NEGATIVE_INFINITY;
  #everyMs = measureSoonMs;

  begin(subject: string, { isLost }: { isLost: boolean }): void {
    const isSame = subject === this.#subject && !isLost;
    this.#everyMs = isSame ? Math.min(measureRarelyMs, 2 * this.#everyMs) : measureSoonMs;
    this.#subject = subject;
  }

  /** A user looks at the state: what was measured rarely is measured soon. */
  attend(): void {
    this.#everyMs = measureSoonMs;
  }

  end(now: number): void {
    this.#endedAt = now;
  }

  /** ms until the next one. How often: with traffic first, then after a loss, then the pause that was doubled. */
  dueInMs(
    subject: string,
    { isOften, isLost, isPeer, now }: Record<"isOften" | "isLost" | "isPeer", boolean> & { now: number },
  ): number {
    if (subject !== this.#subject) return 0;
    let everyMs = isLost ? measureLostMs : this.#everyMs;
    if (isOften) everyMs = isPeer ? measurePeerMs : measureOftenMs;
    return this.#endedAt + everyMs - now;
  }
}
