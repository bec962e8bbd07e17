// Decides which relayed tunnels leave a relay that was lost. The engine would notice after its own tests of the tunnel; a
// closed tunnel takes another relay with the next packet. Pure.

import type { ObservedPeer, ObservedPeers } from "../observed-peers.ts";

/** Monotonic ms of when each lost relay was found, and of when tunnels were closed for it. */
export type RelayLoss = {
  found: Readonly<Record<string, number>>;
  /** The tunnel that was closed, by peer. */
  closed: Readonly<Record<string, { index: number; at: number }>>;
};

export const noLoss: RelayLoss = { found: {}, closed: {} };

/** A lost relay is found this long after it missed its first probe. */
const missedForMs = 3500;
/** Spreads the handshakes of all nodes over this time. */
const jitterMs = 1500;
/** How long a closed tunnel is remembered, and longer while a relay is lost: it is not closed a second time. */
const rememberedMs = 60_000;
/** A loss of this age is recent. */
const justLostMs = 10_000;
const secondMs = 1000;
/** Maximum handshakes a second that one node starts at the remaining relays. */
const mostPerSecond = 5;

/** The peers whose tunnels are to be closed now. */
export function leaveLostRelays(
  before: RelayLoss,
  seen: ObservedPeers,
): { loss: RelayLoss; leave: { peer: ObservedPeer; relay: string }[] } {
  const { now, peers } = seen;
  const broken = new Set(peers.filter(({ isBroken }) => isBroken).map(({ address }) => address));
  const lost = seen.relays.filter((relay) => broken.has(relay));
  const found = Object.fromEntries(lost.map((relay) => [relay, before.found[relay] ?? now]));
  const closed = Object.fromEntries(
    Object.entries(before.closed).filter(([, { at }]) => now - at < rememberedMs || lost.length > 0),
  );
  let room = mostPerSecond - Object.values(closed).filter(({ at }) => now - at < secondMs).length;
  const leave: { peer: ObservedPeer; relay: string }[] = [];
  for (const peer of peers) {
    const relay = lostRelayOf(peer, found, seen);
    if (relay === undefined || room <= 0 || closed[peer.address]?.index === peer.tunnel?.index) continue;
    leave.push({ peer, relay });
    closed[peer.address] = { index: peer.tunnel?.index ?? 0, at: now };
    room -= 1;
  }
  return { loss: { found, closed }, leave };
}

function lostRelayOf(
  { address, tunnel, answeredAt }: ObservedPeer,
  found: RelayLoss["found"],
  { own, now, peers }: ObservedPeers,
): string | undefined {
  if (tunnel === undefined || tunnel.remote !== undefined) return undefined;
  const relay = tunnel.relays.find((each) => found[each] !== undefined);
  if (relay === undefined) return undefined;
  const foundAt = found[relay] ?? now;
  // Without any answer since, this node itself may have lost its network.
  const isConnected = peers.some((each) => (each.answeredAt ?? 0) > foundAt - missedForMs);
  // Another relay carries it already. A peer that refuses ICMP may have one too.
  const isCarried =
    answeredAt === undefined
      ? tunnel.relays.some((each) => found[each] === undefined)
      : answeredAt > foundAt - missedForMs;
  if (isCarried || !isConnected) return undefined;
  const jitter = Number(Bun.hash(`${own} ${address}`) % BigInt(jitterMs));
  return now >= foundAt + jitter ? relay : undefined;
}

/** While true, lighthouses are probed each second: an answer proves that this node itself is connected. */
export function isRelayJustLost({ found }: RelayLoss, now: number): boolean {
  return Object.values(found).some((at) => now - at < justLostMs);
}
