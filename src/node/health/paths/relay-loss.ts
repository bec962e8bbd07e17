// Decides which relayed tunnels leave a relay that was lost. The engine would notice after its own tests of the tunnel; a
// closed tunnel takes another relay with the next packet. Pure.

import type { ObservedPeer, ObservedPeers } from "../observed-peers.ts";

/** Times are monotonic ms. */
export type RelayLoss = {
  /** When the loss of each lost relay was noticed, by its overlay address. */
  foundAt: Readonly<Record<string, number>>;
  /** The tunnels that were closed because of it, by the peer's overlay address. */
  closed: Readonly<Record<string, { index: number; at: number }>>;
};

export const noLoss: RelayLoss = { foundAt: {}, closed: {} };

/** The loss of a relay is noticed this long after its first missed probe. */
const missedForMs = 3500;
/** Spreads the handshakes of all nodes over this time. */
const jitterMs = 1500;
/** How long a closed tunnel is remembered, so that it is not closed a second time; longer while a relay is lost. */
const rememberedMs = 60_000;
/** A loss of this age is recent. */
const justLostMs = 10_000;
const secondMs = 1000;
/** Maximum handshakes a second that one node starts at the remaining relays. */
const mostPerSecond = 5;

/** The peers whose tunnels are to be closed now, each with the lost relay. */
export function leaveLostRelays(
  before: RelayLoss,
  seen: ObservedPeers,
): { loss: RelayLoss; leave: { peer: ObservedPeer; relay: string }[] } {
  const { now, peers } = seen;
  const broken = new Set(peers.filter(({ isBroken }) => isBroken).map(({ address }) => address));
  const lost = seen.relays.filter((relay) => broken.has(relay));
  const foundAt = Object.fromEntries(lost.map((relay) => [relay, before.foundAt[relay] ?? now]));
  const closed = Object.fromEntries(
    Object.entries(before.closed).filter(([, { at }]) => now - at < rememberedMs || lost.length > 0),
  );
  let room = mostPerSecond - Object.values(closed).filter(({ at }) => now - at < secondMs).length;
  const leave: { peer: ObservedPeer; relay: string }[] = [];
  for (const peer of peers) {
    const relay = lostRelayOf(peer, foundAt, seen);
    if (relay === undefined || room <= 0 || closed[peer.address]?.index === peer.tunnel?.index) continue;
    leave.push({ peer, relay });
    closed[peer.address] = { index: peer.tunnel?.index ?? 0, at: now };
    room -= 1;
  }
  return { loss: { foundAt, closed }, leave };
}

/** The lost relay that the peer's tunnel is to leave now; undefined: none. */
function lostRelayOf(
  { address, tunnel, answeredAt }: ObservedPeer,
  foundAt: RelayLoss["foundAt"],
  { own, now, peers }: ObservedPeers,
): string | undefined {
  // A tunnel with a remote address is direct.
  if (tunnel === undefined || tunnel.remote !== undefined) return undefined;
  const relay = tunnel.relays.find((each) => foundAt[each] !== undefined);
  if (relay === undefined) return undefined;
  const relayFoundAt = foundAt[relay] ?? now;
  const lostAt = relayFoundAt - missedForMs;
  // If no peer has answered since, this node itself may have lost its network.
  const isConnected = peers.some((each) => (each.answeredAt ?? 0) > lostAt);
  // Another relay carries the tunnel already. For a peer that refuses ICMP, assume so if it has another relay.
  const isCarried =
    answeredAt === undefined
      ? tunnel.relays.some((each) => foundAt[each] === undefined)
      : answeredAt > lostAt;
  if (isCarried || !isConnected) return undefined;
  // The same in each round, so that the wait ends: this function is called again and again.
  const jitter = Number(Bun.hash(`${own} ${address}`) % BigInt(jitterMs));
  return now >= relayFoundAt + jitter ? relay : undefined;
}

/** While true, lighthouses are probed each second: an answer proves that this node itself is connected. */
export function isRelayJustLost({ foundAt }: RelayLoss, now: number): boolean {
  return Object.values(foundAt).some((at) => now - at < justLostMs);
}
