// The background loop of rollouts (updates in rings): reads the current ring, lets rollout-step.ts decide, and writes the step,
// the orders of nodes and the event in one transaction.

import { given } from "../../base/given.ts";
import { ourselves, record } from "../audit/record.ts";
import { countedSilence, readGaps } from "../nodes/contact/silence.ts";
import { forAll, orgOf } from "../for-all.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { computed, integer, joined, queryAll, queryNumber, text, textOrNull, truth } from "../store/table.ts";
import { rolloutNodes, rollouts, type Compared, type RolloutRow } from "../store/tables/rollouts.ts";
import { notifyNode, raiseOwnVersion } from "../store/versions.ts";
import { permissionOf } from "../store/tables/update-permission.ts";
import { rolledOut } from "../../api/rollouts.ts";
import { findWorst, readCompared, risesSince } from "./compare-unchanged.ts";
import { endOrder, giveOrder } from "./node-orders.ts";
import { writeMissing } from "./rollout-members.ts";
import { endSettings, settingsField } from "./settings-in-rings.ts";
import {
  isCompared,
  lateMs,
  nextStep,
  settleMs,
  silentMs,
  type Member,
  type Ring,
  type MemberChange,
  type Step,
} from "./rollout-step.ts";

type Services = Pick<ServerOptions, "db" | "system" | "clock">;
/** How long ago `at` was, ms, without the time in which no server worked. */
type TimeSince = (at: number) => number;

/** After a turn, the loop rests this many times as long as the turn took: it takes 1 % of the time, also with large organizations. */
const restFactor = 100;
const longestRestMs = 45_000;

/** Returns one turn of the loop, which background.ts calls every second. */
export function makeRollouts(services: Services): () => Promise<void> {
  const { system, clock } = services;
  let restUntil = 0;
  return async () => {
    const beganAt = system.monotonic();
    // A clock in doubt does not tell which nodes are silent.
    if (beganAt < restUntil || clock.doubt() !== undefined) return;
    const { isIdle, isRingOver } = await advanceRollouts(services);
    const endedAt = system.monotonic();
    // A new rollout begins at once, however long an idle turn took on a busy server, and so does the next ring of one.
    restUntil =
      isIdle || isRingOver ? 0 : endedAt + Math.min(longestRestMs, (endedAt - beganAt) * restFactor);
  };
}

const openRolloutsSql = `SELECT ${rollouts.select("r")} FROM rollouts r JOIN organizations o ON o.id = r.org_id
  WHERE r.ended_at IS NULL AND o.deleted_at IS NULL`;

/** Takes one step of each open rollout. `isIdle`: none is open. `isRingOver`: one of them began its next ring. */
export async function advanceRollouts(services: Services): Promise<{ isIdle: boolean; isRingOver: boolean }> {
  const { db, system } = services;
  const open = await queryAll(db, rollouts, openRolloutsSql);
  let isRingOver = false;
  if (open.length === 0) return { isIdle: true, isRingOver };
  const now = system.now();
  const gaps = await readGaps(db, now);
  const timeSince: TimeSince = (at) => Math.max(0, countedSilence(at, now, gaps));
  await forAll(open, orgOf, async (row) => {
    const { hasNextRing } = await advance(services, row, now, timeSince);
    isRingOver ||= hasNextRing;
  });
  return { isIdle: false, isRingOver };
}

/** Takes one step of a rollout, if there is one to take. `hasNextRing`: its next ring begins. */
async function advance(
  services: Services,
  row: RolloutRow,
  now: number,
  timeSince: TimeSince,
): Promise<{ hasNextRing: boolean }> {
  const { db } = services;
  // Ring 0: its nodes are not written yet.
  if (row.ring === 0 && row.state === "running") {
    await writeMissing(services, row);
    return { hasNextRing: false };
  }
  const ring = await readRing(db, row, now, timeSince);
  const moment = { row, now, silentBefore: silentBefore(timeSince, now) };
  // Figures from before the ring changed. Those of an earlier ring do not count.
  const figuresBefore = row.compared?.ring === row.ring ? row.compared : undefined;
  if (figuresBefore !== undefined && isCompared(ring, row)) {
    const rises = risesSince(figuresBefore, await readCompared(db, moment, "passed"));
    ring.rises = { ...rises, worst: rises.changing === undefined ? null : await findWorst(db, row, now) };
  }
  const step = nextStep(row, ring, row, now);
  if (step === undefined) return { hasNextRing: false };
  const beginsRing = figuresBefore === undefined && step.changes.some(({ state }) => state === "told");
  const compared = beginsRing ? await readCompared(db, moment, "waiting") : undefined;
  await takeStep(services, row, { ...step, compared }, now);
  return { hasNextRing: step.event === "ring_passed" };
}

const tenMinutesMs = 600_000;
/**
 * A node that checked in last before this time, ms, is silent. It is further back than `silentMs` by the time in which no
 * server worked, of the last ten minutes.
 */
function silentBefore(timeSince: TimeSince, now: number): number {
  const withoutServerMs = tenMinutesMs - timeSince(now - tenMinutesMs);
  return now - silentMs - withoutServerMs;
}

const stateCount = computed({ state: text(), n: integer(), last: integer() });
const memberPick = joined(
  "m",
  rolloutNodes,
  "n",
  computed({
    name: text(),
    isLighthouse: truth(0),
    isRelay: truth(0),
    mayUpdate: textOrNull(),
    nodeState: text(),
    routed: text(),
    exits: text(),
    lastCheckinAt: integer(),
  }),
);
const memberColumns = `${rolloutNodes.select("m")}, n.name, n.is_lighthouse, n.is_relay, n.may_update, n.state AS node_state,
  n.subnets AS routed, n.exit_groups AS exits, coalesce(s.last_checkin_at, 0) AS last_checkin_at`;
const ofRing = `FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id LEFT JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2`;
/** How many of the waiting nodes one turn reads: it tells a part of them to change. */
const mostWaiting = 5000;
/**
 * Members that may make a difference: between two states, late, ended or silent. Times in ms: a member whose state is newer than $3 may
 * still settle; one that applied it before $4 is late; one that checked in last before $5 is silent.
 */
const matteringSql = `SELECT ${memberColumns} ${ofRing} AND m.state IN ('told', 'applied', 'passed', 'failed', 'returning', 'returned')
  AND (m.state IN ('told', 'failed', 'returning') OR n.state <> 'active' OR m.at > $3
    OR (m.state = 'applied' AND (m.at < $4 OR coalesce(s.last_checkin_at, 0) < $5)))`;
/** All that were told to change: a ring that goes back needs each of them. */
const toldSql = `SELECT ${memberColumns} ${ofRing} AND m.state IN ('told', 'applied', 'passed', 'failed', 'returning', 'returned')`;
/** $3: how many. */
const waitingSql = `SELECT ${memberColumns} ${ofRing} AND m.state = 'waiting'
  ORDER BY coalesce(s.last_checkin_at, 0) DESC, m.node_id LIMIT $3`;

const stateCountsSql = `SELECT state, count(*) AS n, max(at) AS last FROM rollout_nodes
  WHERE rollout_id = $1 AND ring = $2 GROUP BY state`;
const proofSql = `SELECT node_id FROM rollout_nodes
  WHERE rollout_id = $1 AND ring = $2 AND state = 'passed' AND answered > 0 LIMIT 1`;
const memberCountSql = "SELECT count(*) AS n FROM rollout_nodes WHERE rollout_id = $1";

async function readRing(reader: Reader, row: RolloutRow, now: number, timeSince: TimeSince): Promise<Ring> {
  const { id, ring, watchS, hours } = row;
  const ringKey = [id, ring];
  const counts = await queryAll(reader, stateCount, stateCountsSql, ringKey);
  const times = [now - settleMs, now - watchS * 1000 - lateMs, now - silentMs];
  const changed =
    row.state === "returning"
      ? await queryAll(reader, memberPick, toldSql, ringKey)
      : await queryAll(reader, memberPick, matteringSql, [...ringKey, ...times]);
  // With hours, read all: only nodes of another time zone may be within their hours now.
  const most = hours.length === 0 ? mostWaiting : Number.MAX_SAFE_INTEGER;
  const waiting =
    row.state === "running" ? await queryAll(reader, memberPick, waitingSql, [...ringKey, most]) : [];
  return {
    counts: Object.fromEntries(counts.map(({ state, n }) => [state, n])),
    isProven: (await reader.get(proofSql, ringKey)) !== undefined,
    members: [...changed, ...waiting].map((member) => memberOf(member, row, timeSince)),
    size: await queryNumber(reader, memberCountSql, [id]),
    passedMs: timeSince(counts.find(({ state }) => state === "passed")?.last ?? 0),
  };
}

function memberOf(
  member: ReturnType<typeof memberPick.parse>,
  rollout: RolloutRow,
  timeSince: TimeSince,
): Member {
  const { nodeId, name, state, at, reason, probe, logLine, lastCheckinAt } = member;
  const networks: unknown = JSON.parse(member.routed);
  const { may, zone } = permissionOf(member.mayUpdate);
  return {
    nodeId,
    name,
    state,
    reason,
    probe,
    logLine,
    stateMs: timeSince(at),
    silentMs: timeSince(lastCheckinAt),
    isEnded: member.nodeState !== "active" && state !== "passed" && state !== "returned",
    isPermitted: rolledOut.every((what) => rollout[what] === null || may.includes(what)),
    zone,
    keys: [
      ...(member.isLighthouse ? ["lighthouse"] : []),
      ...(member.isRelay ? ["relay"] : []),
      ...(Array.isArray(networks) ? networks.map(String) : []),
      ...(member.exits === "[]" ? [] : ["exit"]),
    ],
  };
}

/**
 * Writes the whole step, or nothing if a request or a report has changed the rollout since it was read. `compared`: the figures
 * from before the ring changes, if this step begins it.
 */
async function takeStep(
  { db }: Services,
  row: RolloutRow,
  { progress, changes, event, compared }: Step & { compared: Compared | undefined },
  now: number,
): Promise<void> {
  const { id, orgId } = row;
  const { state, ring, since, reason, failedNode, probe, logLine } = progress;
  await db.writeFor({ org: orgId }, async (tx) => {
    const endedAt = state === "stopped" || state === "passed" ? now : null;
    const before = { id, state: row.state, ring: row.ring, since: row.since };
    const after = { state, ring, since, reason, failedNode, probe, logLine, endedAt, ...given({ compared }) };
    if ((await rollouts.update(tx, before, after)) === 0) return;
    for (const change of changes) await changeMember(tx, row, change, now);
    if (endedAt !== null) await endSettings(tx, row, state, { actor: ourselves, now });
    if (event === undefined) return;
    const what = { ring: row.ring, agent: row.agent, engine: row.engine, ...settingsField(row) };
    const causes: Partial<Record<typeof event, object>> = {
      changed: { action: "pause", reason, node: failedNode, probe },
      stopped: { reason, node: failedNode, probe, log: logLine },
    };
    await record(tx, {
      orgId,
      at: now,
      type: `rollout.${event}`,
      actor: ourselves,
      subject: `rollout/${id}`,
      after: { ...what, ...causes[event] },
    });
  });
}

async function changeMember(
  tx: Transaction,
  row: RolloutRow,
  { nodeId, state, reason }: MemberChange,
  now: number,
): Promise<void> {
  await rolloutNodes.update(tx, { rolloutId: row.id, nodeId }, { state, at: now, ...given({ reason }) });
  // A failed node gets its order to go back in the next step.
  if (state === "failed") return;
  if (state === "skipped") await endOrder(tx, row, nodeId);
  else await giveOrder(tx, row, nodeId, state);
  // A node gets settings with its configuration, which therefore needs a new version.
  const wake = row.settings === null ? notifyNode : raiseOwnVersion;
  await wake(tx, row.orgId, nodeId);
}
