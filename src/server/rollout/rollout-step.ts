// Decides the next step of a rollout (an update in rings); rollout-turn.ts reads the ring and writes the step. Pure: only what
// the database holds and the time decide. So a server may be killed between any two writes: the next turn decides again.

import { days, type RolloutHours } from "../../api/rollouts.ts";
import { mayBeOfNetwork } from "../../protocol/updates/order.ts";
import type { RolloutNodeRow, RolloutRow } from "../store/tables/rollouts.ts";
import type { Rises } from "./compare-unchanged.ts";

export type Progress = Pick<
  RolloutRow,
  "state" | "ring" | "rings" | "since" | "reason" | "failedNode" | "probe" | "logLine"
>;

/** A node of the rollout's current ring that may make a difference now. */
export type Member = Pick<RolloutNodeRow, "nodeId" | "state" | "reason" | "probe" | "logLine"> & {
  name: string;
  /** Since it entered `state`, ms. Without the time in which no server worked. */
  stateMs: number;
  /** Since its last check-in, ms. Without the time in which no server worked. */
  silentMs: number;
  /** It is revoked or has ended, and had not passed or gone back before. */
  isEnded: boolean;
  /** Root of the machine permits all that the rollout updates. */
  isPermitted: boolean;
  /** Its clock's distance from UTC, in minutes. */
  zone: number;
  /** What other nodes need it for: `lighthouse`, `relay`, `exit`, or a network. Two nodes with a common key never change at once. */
  keys: readonly string[];
};

export type Ring = {
  /** How many nodes of the ring are in each state. */
  counts: Readonly<Partial<Record<Member["state"], number>>>;
  /** Whether a peer answered a node that passed. */
  isProven: boolean;
  /** Not all: those between states, failed, late or silent, and the next ones of those that wait. */
  members: readonly Member[];
  /** How many nodes the rollout has. */
  size: number;
  /** Since the last of its nodes passed, ms. */
  passedMs: number;
  /**
   * What got worse since the ring began. Undefined: nothing can be compared, or the step does not depend on it (`isCompared`).
   * `changing`: how the ring's nodes got worse, `unchanged`: how those that have not changed did, each in words.
   * `worst`: the id of the node with the most bad paths; null if nothing got worse in this ring alone.
   */
  rises?: (Rises & { worst: number | null }) | undefined;
};

/** The new state of a node. */
export type MemberChange = Pick<Member, "nodeId"> & {
  state: "told" | "returning" | "failed" | "skipped";
  reason?: string;
};
export type Step = {
  progress: Progress;
  changes: readonly MemberChange[];
  event?: "stopped" | "ring_passed" | "passed" | "changed";
};

/** A node that was told to change has this time to run the new version. */
export const applyWithinMs = 600_000;
/** A node that changed is lost after this silence. Its poll is answered every 55 s at the latest. */
export const silentMs = 90_000;
/** A node has failed if it has reported no result so long after the end of its watch. */
export const lateMs = 120_000;
/** After this time a ring counts as taken back; a node that is away goes back when it returns. */
const backWithinMs = 60_000;
/** The pause after a change of a node that others depend on, before the next node with the same key changes. */
export const settleMs = 15_000;
/** Nodes that have not changed report within this time, with a check-in, which paths got worse. */
const lossReportedWithinMs = 45_000;
/** Nodes report within this time that a path, which got worse for a moment only, works again. */
const recoveryReportedWithinMs = 120_000;

/** Undefined: nothing to do now. The order matters: what is found first decides, so that a failure comes before new changes. */
export function nextStep(
  progress: Progress,
  ring: Ring,
  { watchS, hours }: Pick<RolloutRow, "watchS" | "hours">,
  now: number,
): Step | undefined {
  if (!["running", "paused", "returning"].includes(progress.state)) return undefined;
  // The clock was set back: count from now, else a ring that goes back would wait until `since` comes again.
  if (progress.since > now) return { progress: { ...progress, since: now }, changes: [] };
  const skipped = ring.members.flatMap((member) => skipUnable(member) ?? []);
  if (skipped.length > 0) return { progress, changes: skipped };
  if (progress.state === "returning") return goBack(progress, ring, now);
  const failures = ring.members.flatMap((member) => failureOf(member, watchS) ?? []);
  const failure = failures.find(({ mayBeNetwork }) => !mayBeNetwork) ?? failures[0];
  if (failure !== undefined) return stepAfterFailure(progress, ring, failure, now);
  if (progress.state === "paused") return undefined;
  const told = nodesToTell(ring, hours, now);
  if (told.length > 0) return { progress, changes: told };
  if (!isOver(ring)) return undefined;
  // With a shorter watch, a path that lost packets only while the engine restarted may still be reported as bad.
  const isLong = watchS * 1000 >= recoveryReportedWithinMs;
  const worse = isLong && ring.isProven ? ring.rises?.changing : undefined;
  if (worse === undefined) return leaveRing(progress, ring, now);
  return ring.passedMs < recoveryReportedWithinMs ? undefined : stopForWorse(progress, ring, worse, now);
}

/** The ring goes back, because only its nodes work worse. `worse`: how, in words. */
function stopForWorse(progress: Progress, ring: Ring, worse: string, now: number): Step {
  const reason = `The nodes of this ring work worse than those that have not changed: ${worse}`;
  const cause = { reason, failedNode: ring.rises?.worst ?? null, probe: "paths of the ring", logLine: "" };
  return {
    progress: { ...progress, ...cause, state: "returning", since: now },
    changes: [],
    event: "stopped",
  };
}

/** Whether the step depends on `ring.rises`: the ring is over, or a failure may be one of the network. */
export function isCompared(ring: Ring, { state, watchS }: Pick<RolloutRow, "state" | "watchS">): boolean {
  if (state === "returning") return false;
  if (state === "running" && isOver(ring)) return true;
  return ring.members.some((member) => failureOf(member, watchS)?.mayBeNetwork === true);
}

/**
 * The ring goes back, unless the failure may be one of the network and nodes that have not changed work worse, too: then the
 * rollout pauses, and an administrator decides. Undefined: wait for more reports.
 */
function stepAfterFailure(progress: Progress, ring: Ring, failure: Failure, now: number): Step | undefined {
  const { member, mayBeNetwork } = failure;
  const { nodeId, state } = member;
  const stop: Step = {
    progress: { ...progress, ...causeOf(failure, now), state: "returning" },
    changes: state === "failed" ? [] : [{ nodeId, state: "failed" }],
    event: "stopped",
  };
  if (!mayBeNetwork || ring.rises === undefined) return stop;
  const { unchanged: worseElsewhere, hasReports } = ring.rises;
  if (worseElsewhere !== undefined) return pauseForNetwork(progress, failure, worseElsewhere, now);
  // Nodes that have not changed may still report the same fault.
  const mayBeReported = hasReports && member.stateMs < lossReportedWithinMs;
  // After a pause, a silent node may still check in again.
  const mayReturn = progress.state === "paused" && now - progress.since < silentMs;
  const mustWait = state === "failed" ? mayBeReported : mayReturn;
  return mustWait ? undefined : stop;
}

const causeOf = ({ member: { nodeId, probe, logLine }, reason }: Failure, now: number) => ({
  since: now,
  reason,
  failedNode: nodeId,
  probe,
  logLine,
});

/** The failed node goes back alone, and the rollout pauses. `worseElsewhere`: how nodes that have not changed work worse. */
function pauseForNetwork(
  progress: Progress,
  failure: Failure,
  worseElsewhere: string,
  now: number,
): Step | undefined {
  const { nodeId, state } = failure.member;
  // A silent node gets no order: it goes back by itself if it does not work.
  const changes: MemberChange[] = state === "failed" ? [{ nodeId, state: "returning" }] : [];
  if (progress.state !== "paused") {
    const reason = `${failure.reason}. Nodes that have not changed work worse, too: ${worseElsewhere}`;
    const cause = { ...causeOf(failure, now), reason };
    return { progress: { ...progress, ...cause, state: "paused" }, changes, event: "changed" };
  }
  if (changes.length > 0) return { progress, changes };
  // While the fault lasts, the pause begins anew, so that the silent node keeps its time. Not with each turn, which would be a write
  // a second, but before `mayReturn` is over.
  const isRecent = now - progress.since < silentMs / 2;
  return isRecent ? undefined : { progress: { ...progress, since: now }, changes: [] };
}

/**
 * The change of a node that cannot take part any more; undefined: it can. A node without permission takes no order. If it was told
 * before, it has not begun, or ends its watch by itself.
 */
function skipUnable({ nodeId, isEnded, isPermitted, state }: Member): MemberChange | undefined {
  if (isEnded) return { nodeId, state: "skipped" };
  if (isPermitted || (state !== "waiting" && state !== "told")) return undefined;
  return { nodeId, state: "skipped", reason: "Root of this machine no longer permits the update" };
}

/** `mayBeNetwork`: the network may be the cause, not the update. */
type Failure = { member: Member; reason: string; mayBeNetwork: boolean };

/** Undefined: the node has not failed. */
function failureOf(member: Member, watchS: number): Failure | undefined {
  const isSilent = member.silentMs > silentMs;
  const reason = whyFailed(member, watchS, isSilent);
  if (reason === undefined) return undefined;
  return {
    member,
    reason,
    mayBeNetwork: member.state === "failed" ? mayBeOfNetwork(member.probe) : isSilent,
  };
}

function whyFailed(
  { name, state, stateMs, reason }: Member,
  watchS: number,
  isSilent: boolean,
): string | undefined {
  if (state === "failed") return reason === "" ? `${name} does not work with it` : reason;
  if (state === "told" && stateMs > applyWithinMs)
    return isSilent
      ? `${name} is not in contact since it was told to change`
      : `${name} did not apply it within ${applyWithinMs / 60_000} minutes`;
  if (state !== "applied") return undefined;
  if (isSilent && stateMs > silentMs) return `${name} is not in contact since it changed`;
  return stateMs > watchS * 1000 + lateMs ? `${name} has not said that it works` : undefined;
}

/** How many nodes may change at once: 2 % of all, but at least 20. */
const mostAtOnce = (size: number): number => Math.max(20, Math.floor(size / 50));

/** Waiting nodes that are online, within their hours, and share no key with a node that changes now. */
function nodesToTell({ members, counts, size }: Ring, hours: RolloutHours, now: number): MemberChange[] {
  const busyKeys = new Set(members.filter(isChanging).flatMap(({ keys }) => keys));
  const most = mostAtOnce(size) - (counts.told ?? 0);
  const told: MemberChange[] = [];
  for (const member of members) {
    const { nodeId, keys, zone } = member;
    if (told.length >= most) break;
    if (!isWaitingOnline(member) || keys.some((key) => busyKeys.has(key))) continue;
    if (!isWithin(hours, now + zone * 60_000)) continue;
    for (const key of keys) busyKeys.add(key);
    told.push({ nodeId, state: "told" });
  }
  return told;
}

const isWaitingOnline = (member: Member): boolean =>
  member.state === "waiting" && member.silentMs <= silentMs;

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

/** When the hours begin next, ms; undefined for hours that never come. `zone`: the node's clock's distance from UTC, minutes. */
export function nextHours(hours: RolloutHours, zone: number, now: number): number | undefined {
  const hourMs = 3_600_000;
  const zoneMs = zone * 60_000;
  const firstHour = Math.floor((now + zoneMs) / hourMs) + 1;
  // Eight days: hours name days of the week, so each kind of hour comes within a week.
  const nextEightDays = Array.from({ length: 8 * 24 }, (_, index) => (firstHour + index) * hourMs);
  const begin = nextEightDays.find((at) => isWithin(hours, at));
  return begin === undefined ? undefined : begin - zoneMs;
}

/** A ring does not wait for nodes that are away, but for nodes whose hours have not come. */
function isOver({ counts, members }: Ring): boolean {
  if ((counts.told ?? 0) > 0 || (counts.applied ?? 0) > 0) return false;
  return !members.some(isWaitingOnline);
}

/** Skips the nodes that still wait, which are away, and begins the next ring. Pauses if the ring proved nothing. */
function leaveRing(progress: Progress, ring: Ring, now: number): Step {
  const away = ring.members.filter(({ state }) => state === "waiting");
  const changes = away.map(({ nodeId }) => ({ nodeId, state: "skipped" as const }));
  const isLast = progress.ring >= progress.rings;
  const hasPassed = (ring.counts.passed ?? 0) > 0;
  // A turn reads a part of the waiting nodes only: the next turns skip the others.
  if (away.length < (ring.counts.waiting ?? 0)) return { progress, changes };
  // In the last ring, nodes that are all away are no reason to pause: nothing follows that it would have to prove.
  if (!ring.isProven && (!isLast || hasPassed || progress.rings === 0)) {
    const reason = whyUnproven(progress, hasPassed);
    return { progress: { ...progress, state: "paused", since: now, reason }, changes, event: "changed" };
  }
  if (isLast) return { progress: { ...progress, state: "passed", since: now }, changes, event: "passed" };
  return { progress: { ...progress, ring: progress.ring + 1, since: now }, changes, event: "ring_passed" };
}

function whyUnproven({ rings }: Progress, hasPassed: boolean): string {
  if (rings === 0) return "No node is left to update";
  return hasPassed
    ? "Nothing is proven: no peer answered a node of this ring, before or after"
    : "No node of this ring could be updated: each is away, or refused";
}

/** The states of nodes that have changed, or may have: a ring that goes back tells them to. */
const changedStates = ["told", "applied", "passed", "failed"] as const;

/**
 * Tells every node of the ring that has changed to go back: of nodes with a common key, one after the other. The rollout has
 * stopped once all are back, or after `backWithinMs`: by then all are told, whatever their keys.
 */
function goBack(progress: Progress, { members, counts }: Ring, now: number): Step | undefined {
  const isLate = now - progress.since >= backWithinMs;
  const goingBack = members.filter(({ state }) => state === "returning" || state === "returned");
  const busyKeys = new Set(isLate ? [] : goingBack.filter(isChanging).flatMap(({ keys }) => keys));
  const changes: MemberChange[] = [];
  for (const { nodeId, state, keys } of members) {
    const isChanged = changedStates.some((each) => each === state);
    if (!isChanged || keys.some((key) => busyKeys.has(key))) continue;
    for (const key of keys) busyKeys.add(key);
    changes.push({ nodeId, state: "returning" });
  }
  if (changes.length > 0) return { progress, changes };
  const isEachBack = [...changedStates, "returning" as const].every((state) => (counts[state] ?? 0) === 0);
  if (!isEachBack && !isLate) return undefined;
  return { progress: { ...progress, state: "stopped", since: now }, changes: [] };
}
