// Keeps two facts about tunnels that the engine does not report: since when each exists, and whether traffic passes.
// The engine counts the packets that it sent, ours and answers to the peer's probes among them. Names and groups in
// certificates are those that a control plane signed: without control characters, they cannot forge a line of a list.

import { oneLine } from "../../base/unprintable.ts";

/** The used part of an engine's answer (engine/local-api.ts). */
export type EngineTunnel = {
  vpnAddrs: readonly string[];
  localIndex: number;
  messageCounter: number;
  currentRemote: string;
  currentRelaysToMe: readonly string[];
  cert?:
    | { details: { name: string; notAfter: string; groups: readonly string[] }; fingerprint: string }
    | null
    | undefined;
};

export type SeenTunnel = {
  address: string;
  /** All addresses of the peer, in the order of its certificate. */
  addresses: readonly string[];
  /** The name in the certificate. */
  name: string;
  /** host:port; undefined while it is relayed. */
  remote: string | undefined;
  /** Overlay addresses. */
  relays: readonly string[];
  certificate: { notAfter: string; groups: readonly string[]; fingerprint: string } | undefined;
  index: number;
  /** Monotonic ms, when this index was first seen. */
  since: number;
  /** Packets that the engine sent through it. */
  counter: number;
  /** Monotonic ms of the last traffic other than probes. */
  trafficAt: number | undefined;
};

/** A peer with traffic in this time is probed unasked. */
const activeMs = 600_000;
/**
 * From so many packets between two reads on there was traffic. Two packets for each probe of ours do not count: it, and an answer to a
 * probe of the peer, which may probe as often. Fewer than this may be further answers to the peer.
 */
const trafficFrom = 6;

export class Tunnels {
  /** By the one address under which a tunnel is listed. */
  #listed = new Map<string, SeenTunnel>();
  /** Tunnels by each address of the peer. */
  #byAddress = new Map<string, SeenTunnel>();

  get all(): SeenTunnel[] {
    return [...this.#listed.values()];
  }

  get(address: string): SeenTunnel | undefined {
    return this.#byAddress.get(address);
  }

  /**
   * Takes over the engine's list. `own`: this node's addresses. `now`: monotonic ms. `probesTo`: how many probes of ours went to an
   * address since the last call. `lighthouses`: their addresses in the configuration, under which their tunnels are listed, even where the
   * engine names another address first.
   */
  update(
    tunnels: readonly EngineTunnel[],
    {
      own,
      now,
      probesTo,
      lighthouses = [],
    }: {
      own: readonly string[];
      now: number;
      probesTo(address: string): number;
      lighthouses?: readonly string[];
    },
  ): void {
    const byListed = new Map<string, SeenTunnel>();
    const byAddress = new Map<string, SeenTunnel>();
    for (const tunnel of tunnels) {
      const [first] = tunnel.vpnAddrs;
      // The engine may list this node itself.
      if (first === undefined || own.includes(first)) continue;
      const address = tunnel.vpnAddrs.find((each) => lighthouses.includes(each)) ?? first;
      const listed = merge(this.#listed.get(address), tunnel, { address, now, probes: probesTo(address) });
      byListed.set(address, listed);
      for (const each of tunnel.vpnAddrs) byAddress.set(each, listed);
    }
    this.#listed = byListed;
    this.#byAddress = byAddress;
  }

  isActive({ trafficAt }: SeenTunnel, now: number): boolean {
    return trafficAt !== undefined && now - trafficAt < activeMs;
  }
}

/** `last`: the tunnel with this peer at the last update. `probes`: how many were sent to the peer since. */
function merge(
  last: SeenTunnel | undefined,
  tunnel: EngineTunnel,
  { address, now, probes }: { address: string; now: number; probes: number },
): SeenTunnel {
  const { localIndex: index, messageCounter: counter, cert } = tunnel;
  const isSameTunnel = last?.index === index;
  // A tunnel that came since the last update was made for traffic, by us or by the peer.
  const sent = isSameTunnel ? counter - last.counter - 2 * probes : trafficFrom;
  return {
    address,
    addresses: tunnel.vpnAddrs,
    name: cert ? oneLine(cert.details.name) : (last?.name ?? address),
    remote: /^\[?[\d.:a-fA-F]+\]?:[1-9]\d*$/.test(tunnel.currentRemote) ? tunnel.currentRemote : undefined,
    relays: tunnel.currentRelaysToMe,
    certificate: cert
      ? {
          notAfter: cert.details.notAfter,
          groups: cert.details.groups.map(oneLine),
          fingerprint: cert.fingerprint,
        }
      : undefined,
    index,
    since: isSameTunnel ? last.since : now,
    counter,
    trafficAt: sent >= trafficFrom ? now : last?.trafficAt,
  };
}
