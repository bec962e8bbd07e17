// Check-ins, and the renewal of certificates. The other side may be older or newer: each side ignores fields that it does not
// know, and all that were added later are optional. A value that does not match its schema fails the check-in, except in fields
// that must not hold anything else up: with `v.fallback`, such a value counts as absent; a field that is `v.unknown()` here is
// parsed where it is used.

import * as v from "valibot";
import { DrillOrder } from "./updates/drill.ts";
import { MayUpdate, UpdateOrder } from "./updates/order.ts";
import { AdvertisedList } from "./routing/advertised.ts";
import { NamesRequest } from "./names.ts";
import { SealRefused } from "./seals/refused.ts";
import {
  Certificate,
  DataPlaneReport,
  jws,
  Port,
  received,
  text,
  time,
  wholeNumber,
  wholeWithin,
} from "./values.ts";
import { foreignText } from "../base/text.ts";

/** The longest time for which a poll is held, in seconds. */
export const maxPollWaitS = 55;

export const CheckinRequest = v.object({
  version: text(64),
  /** Of the machine, in seconds. */
  uptime: wholeNumber,
  /** The time of the node's clock, in seconds since 1970. */
  time: v.optional(wholeNumber),
  /** The configuration version that the node has applied. */
  config_version: v.optional(wholeNumber),
  overlay_version: v.optional(text(64)),
  /**
   * `stopped`, `running`, or the gravest kind of finding (src/protocol/finding-kinds.ts). Former servers take each but `stopped` for
   * running.
   */
  overlay_state: v.optional(text(64)),
  /** A lighthouse asks whether any other node is online. */
  others: v.optional(v.boolean()),
  /** The configuration version whose reload the engine's log confirmed. */
  confirmed_config_version: v.optional(wholeNumber),
  /** The version that the node could not apply: the request is held until there is another. */
  refused_config_version: v.optional(wholeNumber),
  /** The node takes names. Older nodes do not send it, and are sent none. */
  names: v.optional(NamesRequest),
  /** A PathsReport. */
  paths: v.optional(v.unknown()),
  /** A RelayedReport, of a relay. */
  relayed: v.optional(v.unknown()),
  /** A FlowsReport. */
  flows: v.optional(v.unknown()),
  /**
   * The node asks for underlay addresses of its peers that changed since then (ms; 0: all), to find them without a
   * lighthouse. Sent only now and then.
   */
  addresses: v.optional(v.object({ since: wholeNumber })),
  /** The node asks for a UDP datagram with this nonce to this port, to learn whether it is reachable. */
  probe: v.optional(
    v.object({ port: Port, nonce: v.pipe(foreignText(32), v.regex(/^[A-Za-z0-9_-]{1,32}$/)) }),
  ),
  data_plane: v.fallback(v.optional(DataPlaneReport), undefined),
  /** Networks that root of the machine offers to route; absent: none. */
  advertised: v.fallback(v.optional(AdvertisedList), undefined),
  /** Tells machines with the same keys apart: a hash of the kernel's boot id. */
  machine: v.optional(text(64)),
  /** A lighthouse or relay: the TCP port at which its agent passes datagrams to its engine; 0: none. */
  tcp: v.optional(wholeWithin(0, 65_535)),
  /** Root of the machine permits updates by the control plane; absent: not. */
  updates: v.fallback(v.optional(MayUpdate), undefined),
  /** What the seal of the node refuses; absent: nothing. */
  seal_refused: v.fallback(v.optional(SealRefused), undefined),
  /** The number of the last drill that the node took; 0: none. Older nodes do not send it, and get no drill. */
  drill: v.fallback(v.optional(wholeNumber), undefined),
  /** The last check-in of a node that leaves: the server revokes it, and answers `left`. */
  leaving: v.optional(v.boolean()),
});
export type CheckinRequest = v.InferOutput<typeof CheckinRequest>;

export const CheckinAnswer = v.object({
  last_checkin_at: time,
  server_time: time,
  /** The configuration version that the node should have. */
  config_version: v.number(),
  config_changed: v.boolean(),
  certificate_not_after: time,
  /** The server knows `refused_config_version`, so the node may send it. Only with a changed configuration. */
  holds_refused: v.optional(v.boolean()),
  /** A signed restore: the node has not applied the configuration that came with it yet. */
  order: v.optional(jws),
  /** A NamesAnswer. */
  names: v.optional(v.unknown()),
  /** The result of the path report: `taken`, `later` (send it again), `unwanted`. */
  paths: v.optional(received(16)),
  /** The result of the report of flows: `taken`, `later` (send it again), `unwanted`. */
  flows: v.optional(received(16)),
  /** A RelayedAnswer. */
  relayed: v.optional(v.unknown()),
  /** PeerAddresses, if the node asked for them. */
  addresses: v.optional(v.unknown()),
  /** A ConfirmationAnswer, once its user was asked to confirm the node. */
  confirm: v.optional(v.unknown()),
  /** Whether any other node is online, for a lighthouse that asked (`others`). */
  others_online: v.optional(v.boolean()),
  /** For a lighthouse that asked: where other nodes look for it, and where the server sees it, if those differ. */
  elsewhere: v.optional(v.object({ public_ip: received(64), seen: received(64) })),
  /** Another machine uses the keys of this node. */
  cloned: v.optional(v.boolean()),
  /** The node left, and is revoked. */
  left: v.optional(v.boolean()),
  /** An order that the node has not taken. */
  update: v.fallback(v.optional(UpdateOrder), undefined),
  /** A drill that the node has not taken. */
  drill: v.fallback(v.optional(DrillOrder), undefined),
  /** A signed Move, for nodes that pin the control plane's own CA. */
  move: v.optional(v.unknown()),
});
export type CheckinAnswer = v.InferOutput<typeof CheckinAnswer>;

export const RenewAnswer = v.object({ certificate: Certificate, config_version: v.number() });
