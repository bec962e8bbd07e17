// How often peers are probed: those with traffic at this moment, and the relays that carry it, more often than idle ones.
// People notice their loss, and beside the traffic a few probes cost nothing. Pure.

import type { SeenTunnel } from "./tunnels.ts";

/** Traffic in this time counts as present: tunnels are looked at every 10 s. */
const presentMs = 30_000;
const relayMs = 2000;
/** Two nodes that probe each other more often would take the probes for traffic (tunnels.ts). */
const busyMs = 4000;
const mostBusy = 8;

const isBusy = ({ trafficAt }: SeenTunnel, now: number) =>
  trafficAt !== undefined && now - trafficAt < presentMs;

export function hasTraffic(tunnels: readonly SeenTunnel[], now: number): boolean {
  return tunnels.some((each) => isBusy(each, now));
}

/** ms between probes, by address. */
export function pacesOf(tunnels: readonly SeenTunnel[], now: number): Map<string, number> {
  const busy = tunnels
    .filter((each) => isBusy(each, now))
    .toSorted((a, b) => (b.trafficAt ?? 0) - (a.trafficAt ?? 0));
  const relays = busy.flatMap((each) => (each.remote === undefined ? each.relays : []));
  return new Map([
    ...busy.slice(0, mostBusy).map(({ address }) => [address, busyMs] as const),
    ...relays.map((relay) => [relay, relayMs] as const),
  ]);
}
