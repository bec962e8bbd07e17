// The wire of drills: what the control plane asks of a node, and what the node says of it. Both sides use it.

import * as v from "valibot";
import { foreignSentence, foreignText } from "../../base/text.ts";
import { wholeNumber, wholeWithin, listOf } from "../values.ts";

/** What is away for a while. */
export const drillKinds = ["lighthouse-away", "relay-away", "control-plane-away"] as const;

/** The shortest and the longest drill. */
export const leastDrillS = 10;
export const mostDrillS = 600;
/** Nodes that hold a poll learn of a drill at once; those of server mode pause between two checks. */
export const drillLeadMs = 5000;
/** How long after the end of a drill a node waits for the peers that it lost. */
export const afterDrillMs = 30_000;

/**
 * The time that drills have used up, as a leaky bucket: `ms`, as it was at `at` (ms since 1970). A drill delays revocations, or
 * alarms, so neither a stolen control plane nor a stolen session may repeat it without end.
 */
export type DrillTime = { ms: number; at: number };

/** So long drills may take at once; after that, one part in `drainDivisor` of the time. */
export const mostDrillTimeMs = drillLeadMs + mostDrillS * 1000;
const drainDivisor = 10;

/**
 * The time used up if a drill of `ms` begins at `now`. `waitMs`: how long that drill has to wait; 0: it may begin. A clock that
 * was set back gives no time back.
 */
export function withDrill(used: DrillTime, ms: number, now: number): DrillTime & { waitMs: number } {
  const drainedMs = Math.max(0, now - used.at) / drainDivisor;
  const sum = Math.max(0, used.ms - drainedMs) + Math.max(0, ms);
  return { ms: sum, at: now, waitMs: Math.ceil(Math.max(0, sum - mostDrillTimeMs) * drainDivisor) };
}

/** Interruptions in the report of a node, and rows of a drill. */
export const maxLosses = 256;

const ms = wholeWithin(-86_400_000, 86_400_000);

/**
 * An order. Its number rises; a node that has taken it does not take it again. Times count from the answer, whatever the clocks say.
 */
export const DrillOrder = v.object({
  order: wholeNumber,
  /** A newer control plane may have another kind: the node only watches its peers then. */
  kind: foreignText(32),
  /** This node is the one that is away: its engine neither sends nor receives meanwhile. */
  dead: v.optional(v.boolean()),
  begins_in_ms: ms,
  ends_in_ms: ms,
});
export type DrillOrder = v.InferOutput<typeof DrillOrder>;

export const DrillReport = v.object({
  order: wholeNumber,
  /** began, refused: of a node that should be dead. ended: the peers were watched. */
  state: v.picklist(["began", "refused", "ended"]),
  /** Why it was refused. */
  reason: v.optional(foreignSentence(500)),
  /** How many peers answered at least once. */
  peers: v.optional(wholeWithin(0, 10_000), 0),
  /** Times in ms since the begin of the drill. `until_ms`: null: it did not answer again in time. */
  losses: v.optional(
    listOf(v.object({ peer: foreignText(45), from_ms: ms, until_ms: v.nullable(ms) }), maxLosses),
    [],
  ),
});
export type DrillReport = v.InferInput<typeof DrillReport>;
export type Loss = NonNullable<DrillReport["losses"]>[number];
