// The input of healing: the peers of one node at one moment.

import type { RelaySeen } from "./paths/relay-choice.ts";

export type ObservedPeer = {
  /** Its overlay address. */
  address: string;
  name: string;
  isLighthouse: boolean;
  /** The peer answered probes, and has stopped. */
  isBroken: boolean;
  /** Monotonic ms of its last answer. */
  answeredAt: number | undefined;
  /** Undefined without a tunnel. */
  tunnel:
    | { index: number; remote: string | undefined; relays: readonly string[]; counter: number; since: number }
    | undefined;
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
  kept: readonly string[];
};
