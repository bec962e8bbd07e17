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
/** This many packets between two reads, beyond two for each probe of ours, are traffic: fewer may answer the peer's probes. */
const trafficFrom = 6;

export class Tunnels {
  /** By the one address that the tunnel is listed with. */
  #seen = new Map<string, SeenTunnel>();
  /** Tunnels by each address of the peer. */
  #byAddress = new Map<string, SeenTunnel>();

  get all(): SeenTunnel[] {
    return [...this.#seen.values()];
  }

  get(address: string): SeenTunnel | undefined {
    return this.#byAddress.get(address);
  }

  /**
   * Takes over what the engine lists. `own`: this node's addresses. `now`: monotonic ms. `probesTo`: how many probes of ours went
   * to an address since the last call. `lighthouses`: a tunnel with one of them has the address that the configuration has, which
   * may be its second one.
   */
  see(
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
      const seen = merge(this.#seen.get(address), tunnel, { address, now, probes: probesTo(address) });
      byListed.set(address, seen);
      for (const each of tunnel.vpnAddrs) byAddress.set(each, seen);
    }
    this.#seen = byListed;
    this.#byAddress = byAddress;
  }

  isActive({ trafficAt }: SeenTunnel, now: number): boolean {
    return trafficAt !== undefined && now - trafficAt < activeMs;
  }
}

/** `before`: the last look at the tunnel with this peer. `probes`: sent to it since. */
function merge(
  before: SeenTunnel | undefined,
  tunnel: EngineTunnel,
  { address, now, probes }: { address: string; now: number; probes: number },
): SeenTunnel {
  const { localIndex: index, messageCounter: counter, cert } = tunnel;
  const isSameTunnel = before?.index === index;
  // A tunnel that came between two looks was made for traffic, by us or by the peer.
  const sent = isSameTunnel ? counter - before.counter - 2 * probes : trafficFrom;
  return {
    address,
    name: cert ? oneLine(cert.details.name) : (before?.name ?? address),
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
    since: isSameTunnel ? before.since : now,
    counter,
    trafficAt: sent >= trafficFrom ? now : before?.trafficAt,
  };
}
