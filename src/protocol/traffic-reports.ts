// The wire format of counted traffic, inside check-ins: what a relay forwards, and flows. Both sides use it. Not in
// path-report.ts: every check-in needs this, few need the other schemas.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { wholeNumber, wholeWithin, listOf } from "./values.ts";

/** The bytes that a relay has forwarded for others, as its machine counts them. */
export const RelayedReport = v.object({
  /** Names the counter: another one begins at 0. */
  counter: v.pipe(foreignText(32), v.regex(/^[a-z0-9]{1,32}$/)),
  bytes: wholeNumber,
});
export type RelayedReport = v.InferOutput<typeof RelayedReport>;

/** The control plane's answer to a RelayedReport. */
export const RelayedAnswer = v.object({
  /** Forwarded in this month (UTC). */
  bytes: v.pipe(v.number(), v.minValue(0)),
  limit_bytes: v.nullable(v.pipe(v.number(), v.minValue(0))),
  /** The limit is reached: no node uses this relay until the next month. */
  paused: v.boolean(),
});
export type RelayedAnswer = v.InferOutput<typeof RelayedAnswer>;

/** Undefined if the answer has no part about relays. */
export function relayedIn({ relayed }: { relayed?: unknown }): RelayedAnswer | undefined {
  const parsed = v.safeParse(RelayedAnswer, relayed);
  return parsed.success ? parsed.output : undefined;
}

/** Maximum rows of one report of flows; the flows of the others are counted in `rest`. */
export const maxFlowRows = 256;
/** The protocols that rules of the engine's firewall can name; all others are `other`. */
export const flowProtocols = ["tcp", "udp", "icmp", "other"] as const;
/** In seconds; nothing is older than a year. */
const age = v.pipe(v.number(), v.minValue(0), v.maxValue(31_536_000));

/** Flows between a node and a peer on one port, in one interval. */
export const FlowRow = v.object({
  /** The overlay address of the peer, or one behind it. */
  peer: v.pipe(foreignText(45), v.ip()),
  /** Whether the peer began the flows. */
  incoming: v.boolean(),
  protocol: v.picklist(flowProtocols),
  /** The destination port; 0 where the protocol has none. */
  port: wholeWithin(0, 65_535),
  /** New flows. 0: only older ones went on. */
  flows: wholeNumber,
  /** Flows that got their first answer in this interval. Those of the interval before may be among them. */
  answered: wholeNumber,
});
export type FlowRow = v.InferOutput<typeof FlowRow>;

/** The flows of an interval. Ages instead of times: the clock of a node may be wrong. */
export const FlowsReport = v.object({
  /** A repeated report has the same id, and adds nothing. */
  id: v.pipe(foreignText(32), v.regex(/^[a-z0-9-]{1,32}$/)),
  /** When the interval began and ended, in seconds before this check-in. */
  from: age,
  to: age,
  rows: listOf(FlowRow, maxFlowRows),
  /** New flows that are in no row. */
  rest: wholeNumber,
  /** Before and within the interval, flows may have passed unseen for so many seconds. */
  unseen_s: age,
});
export type FlowsReport = v.InferOutput<typeof FlowsReport>;
