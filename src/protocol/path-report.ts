// The wire of path reports: how nodes reach their peers, and what they healed. Both sides use it, inside check-ins.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { wholeNumber, listOf } from "./values.ts";

/** Maximum peers whose paths a node reports. */
export const maxPaths = 200;
const overlayAddress = v.pipe(foreignText(45), v.ip());

/** How a node reaches one peer. */
export const PathState = v.object({
  peer: overlayAddress,
  path: v.picklist(["direct", "relayed", "none", "unknown"]),
  /** The peer's underlay address and port, of a direct path. */
  remote: v.optional(foreignText(64)),
  /** The names of the relays, of a relayed path. */
  relays: v.optional(listOf(foreignText(64), 4)),
  /** broken: it answered and has stopped. not_probed: it never answered, or was not asked. */
  probe: v.picklist(["answers", "broken", "not_probed"]),
  rtt_ms: v.optional(v.pipe(v.number(), v.minValue(0), v.maxValue(600_000))),
  /** Share of lost probes in the last minute. */
  loss: v.optional(v.pipe(v.number(), v.minValue(0), v.maxValue(1))),
});
export type PathState = v.InferOutput<typeof PathState>;

/** Maximum healings in one report. */
export const maxHealings = 20;

/** A node's action for a dead tunnel. It holds no underlay addresses, because every member reads events. */
export const Healing = v.object({
  /** The peer of the tunnel; of a relay that was lost, the relay. */
  peer: overlayAddress,
  /**
   * healed: it was closed, and works again. relayed: a relay is used, because the direct path loses packets. given_up: no
   * attempt had an effect. relay_left: the relay does not answer, and its tunnels use another one. Others may follow.
   */
  result: v.pipe(foreignText(32), v.regex(/^[a-z_]{1,32}$/)),
  /** How long the peer had not answered. */
  silent_s: v.pipe(v.number(), v.minValue(0), v.maxValue(86_400)),
  /** Another peer that answered meanwhile. */
  witness: v.optional(overlayAddress),
});
export type Healing = v.InferOutput<typeof Healing>;

/** Paths that changed since the last accepted report. */
export const PathsReport = v.object({
  /** These are all paths: former ones are forgotten. */
  whole: v.optional(v.boolean(), false),
  changed: v.optional(listOf(PathState, maxPaths), []),
  /** Peers without a path now. */
  gone: v.optional(listOf(overlayAddress, maxPaths), []),
  /** Healings since the last accepted report. Former servers ignore them. */
  healings: v.optional(listOf(Healing, maxHealings), []),
});
export type PathsReport = v.InferOutput<typeof PathsReport>;

/** Peers whose underlay addresses a node keeps, and underlay addresses of each. */
export const maxKeptPeers = 256;
export const maxRemotes = 2;
const Remotes = v.pipe(v.array(foreignText(64)), v.minLength(1), v.maxLength(maxRemotes));

/** Underlay addresses and ports of peers, by their overlay addresses: those that changed since the node asked last. */
export const PeerAddresses = v.object({
  /** What the node sends as `since` when it asks next, ms since 1970. */
  since: wholeNumber,
  /** These are all: former ones are forgotten. */
  whole: v.optional(v.boolean(), false),
  peers: v.optional(listOf(v.object({ peer: overlayAddress, remotes: Remotes }), maxKeptPeers), []),
});
export type PeerAddresses = v.InferOutput<typeof PeerAddresses>;
