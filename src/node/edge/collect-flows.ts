// Collects what the kernel counts of the overlay's flows, every five minutes, for the check-ins that report it. While a report
// waits, the kernel goes on counting: nothing but one report of at most 256 rows is kept, however long the control plane is away.

import { messageOf } from "../../base/errors.ts";
import { textOrEmpty } from "../../base/files.ts";
import { applyChanges } from "../../platform/machine-changes.ts";
import { tableRemoval } from "../../platform/nftables.ts";
import { maxFlowRows } from "../../protocol/traffic-reports.ts";
import {
  beginGeneration,
  dropGenerations,
  isInForce,
  readFlows,
  readGenerations,
  type CountedFlows,
  type Generation,
} from "../../platform/network/flow-counter.ts";
import { tunnelDevice } from "../files/config/read-config.ts";
import {
  areFlowsReported,
  readCollected,
  removeFlowsState,
  waitingFlows,
  writeCollected,
  writeFlowsFault,
  type Collected,
} from "../files/flows-state.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import { runPart, type EdgeContext, type RunningPart } from "./part.ts";

type Context = Pick<EdgeContext, "slug" | "directory" | "log" | "system">;

/** The shortest time that one report covers. */
const intervalS = 300;
const lookEveryMs = 10_000;

export function startFlows(context: EdgeContext): RunningPart {
  return runPart(
    (signal) => countFlows(context, signal),
    () => forgetFlows(context),
  );
}

/** Removes the table and the reports, unless flows are still to be reported: the engine is only stopped then. Does not reject. */
async function forgetFlows({ slug, directory, open, system }: EdgeContext): Promise<void> {
  try {
    if (areFlowsReported(open())) return;
  } catch {
    // The organization is gone.
  }
  try {
    await applyChanges(await tableRemoval("flows", slug, system), system);
    removeFlowsState(directory);
  } catch {
    // The directory is gone, or the disk does not write: the next report replaces the files.
  }
}

/** Runs until the signal. Then what was counted is collected too, unless a report waits. Does not reject. */
async function countFlows(context: Context, signal: AbortSignal): Promise<void> {
  const { slug, directory, log, system } = context;
  /** The reason that the file has, if it has one. Undefined: not known, so it is written in the next round. */
  let written: { reason: string | undefined } | undefined;
  for (let isLast = false; !isLast;) {
    isLast = signal.aborted;
    const reason = await collectFlows(context, isLast ? 0 : intervalS).catch(messageOf);
    if (written === undefined || written.reason !== reason) {
      if (reason !== undefined)
        log.warn("Cannot count the flows of the overlay; nothing else changes", { team: slug, reason });
      try {
        writeFlowsFault(directory, reason);
        written = { reason };
      } catch {
        written = undefined;
      }
    }
    if (!isLast) await system.sleep(lookEveryMs, signal).catch(() => undefined);
  }
}

/**
 * Counts, and collects what was counted if its generation is at least `dueS` old and no report waits. Returns why
 * it cannot; undefined if it can. Throws if the report cannot be written: then the kernel keeps what it has.
 */
export async function collectFlows(
  { slug, directory, system }: Pick<Context, "slug" | "directory" | "system">,
  dueS: number,
): Promise<string | undefined> {
  const device = tunnelDevice(textOrEmpty(directory, "config.yml"));
  if (device === undefined) return "the configuration names no interface";
  const place = { slug, device, networks: overlayNetworks(directory) };
  const boot = (system.bootTime().id ?? "").slice(0, 8);
  /** Seconds since the boot, as the begin of a generation. */
  const now = system.bootTime().ms / 1000;
  const lastCollected = readCollected(directory);
  /** The newest generation that is in a report of this boot; 0: none is. */
  const reported = lastCollected?.boot === boot ? lastCollected.generation : 0;
  // The kernel counts in the newest generation of its sets (flow-counter.ts). A new one begins before the older ones are read, so no
  // packet is missed.
  const generations = await readGenerations(slug, system);
  const newest = generations.at(-1);
  const isDue = newest !== undefined && now - newest.from >= dueS && waitingFlows(directory) === undefined;
  if (!isInForce(newest, place) || isDue) {
    const next = { number: Math.max(newest?.number ?? 0, reported) + 1, from: now };
    const failed = await beginGeneration(place, next, system);
    if (failed !== undefined) return failed;
  }
  if (newest === undefined || !isDue) return undefined;
  const firstUnreported = generations.find(({ number }) => number > reported);
  if (firstUnreported !== undefined) {
    const listed = await readFlows(slug, { after: reported, upTo: newest.number }, system);
    if (listed === undefined) return "nft does not list what it counted";
    const { isCut, ...counted } = rowsOf(listed);
    // If flows that matter are in no row, nothing is certain about the whole interval.
    const unseenS =
      (isCut ? now - firstUnreported.from : 0) + unseenBefore(firstUnreported, lastCollected, boot);
    const id = `${boot === "" ? "boot" : boot}-${newest.number}`;
    const from = Math.min(firstUnreported.from, now);
    const times = { boot, generation: newest.number, from, to: now, at: system.now() };
    writeCollected(directory, { ...counted, ...times, id, unseen_s: Math.round(unseenS) });
  }
  await dropGenerations(slug, generations, system);
  return undefined;
}

/**
 * For how many seconds flows may have passed uncounted before the first generation of a report: after a program removed the table, or
 * between a boot and the agent's start. A boot also loses what was counted since the last report: up to one interval.
 */
function unseenBefore(first: Generation, last: Collected | undefined, boot: string): number {
  if (last === undefined) return 0;
  return last.boot === boot ? Math.max(0, first.from - last.to) : first.from + intervalS;
}

/**
 * The rows that matter most: first those whose flows were answered or go on, then by the number of flows. `rest`: how many flows are in
 * no row. `isCut`: flows that were answered or go on are left out. With `flows` 0, only older flows went on (flow-counter.ts).
 */
function rowsOf({ flows, rest }: { flows: CountedFlows[]; rest: number }) {
  const isUsed = (each: CountedFlows) => each.answered > 0 || each.flows === 0;
  const sorted = flows.toSorted((a, b) => Number(isUsed(b)) - Number(isUsed(a)) || b.flows - a.flows);
  const others = sorted.slice(maxFlowRows);
  return {
    rows: sorted.slice(0, maxFlowRows),
    rest: others.reduce((sum, each) => sum + each.flows, rest),
    isCut: rest > 0 || others.some(isUsed),
  };
}
