// The input of healing: the peers of one node at one moment.

import type { RelaySeen } from "./paths/relay-choice.ts";
import type { SeenTunnel } from "./tunnels.ts";

export type ObservedPeer = {
  /** Its overlay address. */
  address: string;
  name: string;
  isLighthouse: boolean;
  /** The peer answered probes, and has stopped. */
  isBroken: boolean;
  /** Monotonic ms of its last answer. */
  answeredAt: number | undefined;
  /** Undefined without a tunnel. `counter`: packets that the engine sent through it. `since`: monotonic ms (tunnels.ts). */
  tunnel: Pick<SeenTunnel, "index" | "remote" | "relays" | "counter" | "since"> | undefined;
};

export type ObservedPeers = {
  /** Monotonic ms. */
  now: number;
  /** This node's overlay address. */
  own: string;
  peers: readonly ObservedPeer[];
  /** Overlay addresses of all relays of the organization. */
  relays: readonly string[];
  /** The relays that this node may choose itself, with the results of their probes. */
  candidates: ReadonlyMap<string, RelaySeen>;
  /** Underlay addresses of lighthouses and relays: denying one could cut off other peers. */
  neverDenied: readonly string[];
};
