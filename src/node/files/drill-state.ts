// drill.json: the last drill that the control plane ordered. In the organization's directory, so that each process of the node
// knows it. Times are by this machine's clock, in ms since 1970; a clock that is set back must not make a drill longer.

import { join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { writeFileAtomic } from "../../base/files.ts";
import { afterDrillMs, mostDrillTimeMs, type DrillOrder } from "../../protocol/updates/drill.ts";
import { readValidJson } from "./json-file.ts";

const number = v.pipe(v.number(), v.integer());
const DrillState = v.object({
  order: number,
  /** Any word: a newer control plane may order a kind that this version does not know. */
  kind: boundedText(32),
  /** This node is the one that has to be away: its UDP port is closed. Other nodes watch their peers. */
  isDead: v.boolean(),
  beginsAt: number,
  endsAt: number,
  /** Drills have taken too much of the time already: in this one the node only watches its peers. */
  isRefused: v.optional(v.boolean(), false),
  /** The time of drills that took something away, as far as it counts (`withDrill`): `ms` at the time `at`. It includes this one. */
  taken: v.optional(v.object({ ms: v.number(), at: v.number() }), { ms: 0, at: 0 }),
  /** Nothing is left to do. */
  isDone: v.boolean(),
});
export type DrillState = v.InferOutput<typeof DrillState>;

export const drillPath = (directory: string): string => join(directory, "drill.json");

export const readDrill = (directory: string): DrillState | undefined =>
  readValidJson(drillPath(directory), DrillState);

export function writeDrill(directory: string, state: DrillState): void {
  writeFileAtomic(drillPath(directory), `${JSON.stringify(state)}\n`, 0o644);
}

/** How long the drill goes on, in ms; 0: it is over, or the clock was set back. */
export function drillLeftMs({ endsAt }: DrillState, now: number): number {
  const leftMs = endsAt - now;
  return leftMs > mostDrillTimeMs ? 0 : Math.max(0, leftMs);
}

/**
 * Whether the time for the node's report of the drill is over: it waits `afterDrillMs` for its peers, and as long to send it. Or the
 * clock was set back.
 */
export const isLate = ({ endsAt }: DrillState, now: number): boolean =>
  now > endsAt + 2 * afterDrillMs || endsAt - now > mostDrillTimeMs;

/**
 * How long this node must not contact the control plane, in ms. 0: it may. An ephemeral node always may: it would be deleted for
 * its silence.
 */
export function planeAwayMs(directory: string, isEphemeral: boolean, now: number): number {
  const drill = isEphemeral ? undefined : readDrill(directory);
  const isAway = drill?.kind === "control-plane-away" && !drill.isRefused;
  return isAway ? drillLeftMs(drill, now) : 0;
}

/** Whether the next order aborts this drill: it has the number after that of the drill, and no time. */
export const isAbortOf = ({ order }: DrillState, next: Pick<DrillOrder, "order" | "ends_in_ms">): boolean =>
  next.order === order + 1 && next.ends_in_ms <= 0;

/**
 * The state of a drill that is aborted now. Its remaining time no longer counts as taken. It has the number of the order that aborts
 * it, and is not done: what was taken away has to come back.
 */
export function abortedDrill(drill: DrillState, now: number): DrillState {
  const { taken, isRefused, order } = drill;
  // A refused drill was never counted.
  const leftMs = isRefused ? 0 : drillLeftMs(drill, now);
  const ms = Math.max(0, taken.ms - leftMs);
  return {
    ...drill,
    order: order + 1,
    endsAt: Math.min(drill.endsAt, now),
    taken: { ...taken, ms },
    isDone: false,
  };
}

/** When this drill ends: it may have been aborted since it began. */
export function endOf({ order, beginsAt, endsAt }: DrillState, directory: string): number {
  const stored = readDrill(directory);
  const isAborted = stored?.order === order + 1 && stored.beginsAt === beginsAt;
  return isAborted ? stored.endsAt : endsAt;
}
