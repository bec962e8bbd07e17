// The next step of an update in rings. Pure: what the database holds, and the time, decide alone. So a server may be killed
// between any two writes, and the next turn does what was left undone; a turn that is done twice changes nothing.

import { days, type RolloutHours } from "../../api/rollouts.ts";
import { isOfNetwork } from "../../protocol/updates/order.ts";
import type { RolloutNodeRow, RolloutRow } from "../store/tables/rollouts.ts";
import type { Rises } from "./compare-unchanged.ts";

export type Progress = Pick<
  RolloutRow,
  "state" | "ring" | "rings" | "since" | "reason" | "failedNode" | "probe" | "logLine"
>;

/** A node of the present ring that may make a difference now. */
export type Member = Pick<RolloutNodeRow, "nodeId" | "state" | "reason" | "probe" | "logLine"> & {
  name: string;
  /** How long it is in this state, and how long it was not in contact, ms. Without the time in which no server worked. */
  stateMs: number;
  silentMs: number;
  /** It is revoked, or ended. */
  isEnded: boolean;
  /** Root of the machine permits all that the rollout updates. */
  isPermitted: boolean;
  /** Its clock's distance from UTC, in minutes. */
  zone: number;
  /** What it is for the others: `lighthouse`, `relay`, a network that it routes. No two nodes with one of these change at once. */
  keys: readonly string[];
};

export type Ring = {
  /** How many nodes of the ring are in each state. */
  counts: Readonly<Partial<Record<Member["state"], number>>>;
  /** Whether a peer answered one of those that passed. */
  isProven: boolean;
  /** Every node that failed, is late or silent, or is in between; of those that wait, the next ones. */
  members: readonly Member[];
  /** How many nodes the rollout has. */
  size: number;
  /** How long ago the last of its nodes passed, ms. */
  passedMs: number;
  /** What got worse since the ring began. Undefined: nothing can be compared, or the step does not depend on it. */
  rises?: (Rises & { worst: number | null }) | undefined;
};

export type Told = Pick<Member, "nodeId"> & {
  state: "told" | "returning" | "failed" | "skipped";
  reason?: string;
};
export type Step = {
  progress: Progress;
  told: readonly Told[];
  event?: "stopped" | "ring_passed" | "passed" | "changed";
};

/** A node that was told has this time to run what it should. */
export const applyWithinMs = 600_000;
/** A node that changed is lost after this silence. Its poll is answered every 55 s at the latest. */
export const silentMs = 90_000;
/** Longer than the watch: then a node that has said nothing has failed. */
export const lateMs = 120_000;
/** After this time a ring counts as taken back; a node that is away goes back when it returns. */
export const backWithinMs = 60_000;
/** A node that others depend on is left to itself for this time, before the next one of its kind. */
export const settleMs = 15_000;
/** Nodes that have not changed report what they lose with one of their next check-ins. */
const othersSayWithinMs = 45_000;
/** A path that got worse for a moment is reported as well again within this time. */
const saidAgainWithinMs = 120_000;

export function nextStep(
  progress: Progress,
  ring: Ring,
  { watchS, hours }: Pick<RolloutRow, "watchS" | "hours">,
  now: number,
): Step | undefined {
  if (!["running", "paused", "returning"].includes(progress.state)) return undefined;
  // The clock was set back since: a ring that is taken back would wait until it is there again.
  if (progress.since > now) return { progress: { ...progress, since: now }, told: [] };
  const leaving = ring.members.flatMap(leaves);
  if (leaving.length > 0) return { progress, told: leaving };
  if (progress.state === "returning") return goBack(progress, ring, now);
  const failures = ring.members.flatMap((each) => whyFailed(each, watchS) ?? []);
  const failed = failures.find((each) => !each.mayBeNetwork) ?? failures[0];
  if (failed !== undefined) return whenFailed(progress, ring, failed, now);
  if (progress.state === "paused") return undefined;
  const told = nodesToTell(ring, hours, now);
  if (told.length > 0) return { progress, told };
  if (!isOver(ring)) return undefined;
  // A shorter watch ends before a path that lost packets at the change is reported as well again.
  const isLong = watchS * 1000 >= saidAgainWithinMs;
  const worse = isLong && ring.isProven ? ring.rises?.changing : undefined;
  if (worse === undefined) return leaveRing(progress, ring, now);
  if (ring.passedMs < saidAgainWithinMs) return undefined;
  const reason = `The nodes of this ring work worse than those that have not changed: ${worse}`;
  const found = { reason, failedNode: ring.rises?.worst ?? null, probe: "paths of the ring", logLine: "" };
  return { progress: { ...progress, ...found, state: "returning", since: now }, told: [], event: "stopped" };
}

/** Whether the step depends on how nodes work that have not changed. */
export const isCompared = (ring: Ring, { state, watchS }: Pick<RolloutRow, "state" | "watchS">): boolean =>
  state !== "returning" &&
  ((state === "running" && isOver(ring)) ||
    ring.members.some((each) => whyFailed(each, watchS)?.mayBeNetwork === true));

/** What nodes that have not changed have, too, is no fault of the update: it pauses. */
function whenFailed(
  progress: Progress,
  ring: Ring,
  { member, reason, mayBeNetwork }: Failure,
  now: number,
): Step | undefined {
  const { nodeId, state, stateMs, probe, logLine } = member;
  const isPaused = progress.state === "paused";
  const found = { since: now, reason, failedNode: nodeId, probe, logLine };
  const told = state === "failed" ? [] : [{ nodeId, state: "failed" as const }];
  const stop: Step = { progress: { ...progress, ...found, state: "returning" }, told, event: "stopped" };
  if (!mayBeNetwork || ring.rises === undefined) return stop;
  const { unchanged: alike, areHeard } = ring.rises;
  if (alike === undefined) {
    // A silent node has the time that the others had to be heard again.
    const isEarly =
      state === "failed"
        ? areHeard && stateMs < othersSayWithinMs
        : isPaused && now - progress.since < silentMs;
    return isEarly ? undefined : stop;
  }
  // A node that is silent goes back by itself, if it does not work.
  const back = state === "failed" ? [{ nodeId, state: "returning" as const }] : [];
  const why = `${reason}. Nodes that have not changed work worse, too: ${alike}`;
  if (!isPaused)
    return {
      progress: { ...progress, ...found, reason: why, state: "paused" },
      told: back,
      event: "changed",
    };
  if (back.length > 0) return { progress, told: back };
  return now - progress.since < silentMs / 2
    ? undefined
    : { progress: { ...progress, since: now }, told: [] };
}

/** Without permission, a node takes no order: one that was told has not begun, or ends its watch by itself. */
function leaves({ nodeId, isEnded, isPermitted, state }: Member): Told[] {
  if (isEnded) return [{ nodeId, state: "skipped" }];
  if (isPermitted || (state !== "waiting" && state !== "told")) return [];
  return [{ nodeId, state: "skipped", reason: "Root of this machine no longer permits the update" }];
}

type Failure = { member: Member; reason: string; mayBeNetwork: boolean };

function whyFailed(member: Member, watchS: number): Failure | undefined {
  const { name, state, stateMs, reason } = member;
  const isSilent = member.silentMs > silentMs;
  const mayBeNetwork = state === "failed" ? isOfNetwork(member.probe) : isSilent;
  const because = (text: string) => ({ member, reason: text, mayBeNetwork });
  if (state === "failed") return because(reason === "" ? `${name} does not work with it` : reason);
  if (state === "told" && stateMs > applyWithinMs)
    return because(
      isSilent
        ? `${name} is not in contact since it was told to change`
        : `${name} did not apply it within ${applyWithinMs / 60_000} minutes`,
    );
  if (state !== "applied") return undefined;
  if (isSilent && stateMs > silentMs) return because(`${name} is not in contact since it changed`);
  if (stateMs > watchS * 1000 + lateMs) return because(`${name} has not said that it works`);
  return undefined;
}

/** Those that wait, as far as no node with the same key changes just now. */
function nodesToTell({ members, counts, size }: Ring, hours: RolloutHours, now: number): Told[] {
  const busy = new Set(members.filter(isChanging).flatMap(({ keys }) => keys));
  const free = Math.max(20, Math.floor(size / 50)) - (counts.told ?? 0);
  const told: Told[] = [];
  for (const { nodeId, state, silentMs: silence, keys, zone } of members) {
    if (told.length >= free) break;
    if (state !== "waiting" || silence > silentMs || keys.some((key) => busy.has(key))) continue;
    if (!isWithin(hours, now + zone * 60_000)) continue;
    for (const key of keys) busy.add(key);
    told.push({ nodeId, state: "told" });
  }
  return told;
}

const isChanging = ({ state, stateMs }: Member): boolean =>
  state === "told" ||
  state === "returning" ||
  (["applied", "returned", "passed"].includes(state) && stateMs < settleMs);

/** `at`: the time on the node's clock, as if it were UTC. */
export function isWithin(hours: RolloutHours, at: number): boolean {
  if (hours.length === 0) return true;
  const time = new Date(at);
  const hour = time.getUTCHours();
  return hours.some(({ from, until, days: named }) => {
    const isOverMidnight = until <= from;
    const isInHours = isOverMidnight ? hour >= from || hour < until : hour >= from && hour < until;
    // The night belongs to the day on which it begins.
    const day = isOverMidnight && hour < until ? (time.getUTCDay() + 6) % 7 : time.getUTCDay();
    const name = days[day];
    return isInHours && (named.length === 0 || (name !== undefined && named.includes(name)));
  });
}

/** When the hours begin next, ms; undefined for such as never come. `zone`: the node's clock before UTC, minutes. */
export function nextHours(hours: RolloutHours, zone: number, now: number): number | undefined {
  const hourMs = 3_600_000;
  const first = Math.floor((now + zone * 60_000) / hourMs) + 1;
  const found = Array.from({ length: 8 * 24 }, (_, at) => (first + at) * hourMs).find((at) =>
    isWithin(hours, at),
  );
  return found === undefined ? undefined : found - zone * 60_000;
}

/** Nodes that are away wait for a later rollout; those whose hours have not come hold the ring open. */
function isOver({ counts, members }: Ring): boolean {
  if ((counts.told ?? 0) > 0 || (counts.applied ?? 0) > 0) return false;
  return !members.some(({ state, silentMs: silence }) => state === "waiting" && silence <= silentMs);
}

function leaveRing(progress: Progress, ring: Ring, now: number): Step {
  const away = ring.members.filter(({ state }) => state === "waiting");
  const told = away.map(({ nodeId }) => ({ nodeId, state: "skipped" as const }));
  const isLast = progress.ring >= progress.rings;
  // Those that wait are read in parts.
  if (away.length < (ring.counts.waiting ?? 0)) return { progress, told };
  if (!ring.isProven && (!isLast || (ring.counts.passed ?? 0) > 0)) {
    const reason =
      (ring.counts.passed ?? 0) > 0
        ? "Nothing is proven: no peer answered a node of this ring, before or after"
        : "No node of this ring could be updated: each is away, or refused";
    return { progress: { ...progress, state: "paused", since: now, reason }, told, event: "changed" };
  }
  if (isLast) return { progress: { ...progress, state: "passed", since: now }, told, event: "passed" };
  return { progress: { ...progress, ring: progress.ring + 1, since: now }, told, event: "ring_passed" };
}

/** Tells every node of the ring that has changed to go back; others that nodes depend on one after the other. */
function goBack(progress: Progress, { members, counts }: Ring, now: number): Step | undefined {
  const isLate = now - progress.since >= backWithinMs;
  const changing = members.filter(({ state }) => state === "returning" || state === "returned");
  const busy = new Set(isLate ? [] : changing.filter(isChanging).flatMap(({ keys }) => keys));
  const told: Told[] = [];
  for (const { nodeId, state, keys } of members) {
    if (!["told", "applied", "passed", "failed"].includes(state) || keys.some((key) => busy.has(key)))
      continue;
    for (const key of keys) busy.add(key);
    told.push({ nodeId, state: "returning" });
  }
  if (told.length > 0) return { progress, told };
  const left = (["told", "applied", "passed", "failed", "returning"] as const).reduce(
    (sum, state) => sum + (counts[state] ?? 0),
    0,
  );
  if (left > 0 && !isLate) return undefined;
  return { progress: { ...progress, state: "stopped", since: now }, told: [] };
}
