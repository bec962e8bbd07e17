// Carries updates in rings forward: reads what may make a difference, lets rollout-step.ts decide, and writes the step, the
// orders and the event in one transaction.

import { given } from "../../base/given.ts";
import { ourselves, record } from "../audit/record.ts";
import { countedSilence, readGaps } from "../nodes/contact/silence.ts";
import { forAll, orgOf } from "../for-all.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader, Transaction } from "../store/database.ts";
import {
  computed,
  integer,
  integerOrNull,
  joined,
  queryAll,
  queryNumber,
  text,
  textOrNull,
  truth,
} from "../store/table.ts";
import { rolloutNodes, rollouts, type Compared, type RolloutRow } from "../store/tables/rollouts.ts";
import { notifyNode, raiseOwnVersion } from "../store/versions.ts";
import { permissionOf } from "../store/tables/update-permission.ts";
import { rolledOut } from "../../api/rollouts.ts";
import { findWorst, readCompared, risesSince } from "./compare-unchanged.ts";
import { endOrder, giveOrder } from "./node-orders.ts";
import { writeMissing } from "./rollout-members.ts";
import { endSettings, whichSettings } from "./settings-in-rings.ts";
import {
  isCompared,
  lateMs,
  nextStep,
  settleMs,
  silentMs,
  type Member,
  type Ring,
  type Step,
  type Told,
} from "./rollout-step.ts";

type Services = Pick<ServerOptions, "db" | "system" | "clock">;
type Silence = (last: number) => number;

/** After a turn, the loop rests this many times as long: a large organization costs no more than a small one. */
const restFactor = 100;
const longestRestMs = 45_000;

/** The turn of the background loop. */
export function makeRollouts(services: Services): () => Promise<void> {
  const { system, clock } = services;
  let restUntil = 0;
  return async () => {
    const began = system.monotonic();
    if (began < restUntil || clock.doubt() !== undefined) return;
    const { isRingOver } = await advanceRollouts(services);
    const ended = system.monotonic();
    // The next ring begins at once.
    restUntil = isRingOver ? 0 : ended + Math.min(longestRestMs, (ended - began) * restFactor);
  };
}

const openRollouts = `SELECT ${rollouts.select("r")} FROM rollouts r JOIN organizations o ON o.id = r.org_id
  WHERE r.ended_at IS NULL AND o.deleted_at IS NULL`;

/** One step of each open rollout. Returns whether a ring of one was left. */
export async function advanceRollouts(services: Services): Promise<{ isRingOver: boolean }> {
  const { db, system } = services;
  const open = await queryAll(db, rollouts, openRollouts);
  let isRingOver = false;
  if (open.length === 0) return { isRingOver };
  const now = system.now();
  const gaps = await readGaps(db, now);
  const silence: Silence = (last) => Math.max(0, countedSilence(last, now, gaps));
  await forAll(open, orgOf, async (row) => {
    if (row.ring === 0 && row.state === "running") return writeMissing(services, row);
    const ring = await readRing(db, row, now, silence);
    const looked = { row, now, silentBefore: silentBefore(silence, now) };
    const { compared: before } = row;
    const isKnown = before?.ring === row.ring;
    if (isKnown && isCompared(ring, row)) {
      const rises = risesSince(before, await readCompared(db, looked, "passed"));
      ring.rises = { ...rises, worst: rises.changing === undefined ? null : await findWorst(db, row, now) };
    }
    const step = nextStep(row, ring, row, now);
    if (step === undefined) return;
    const isFirst = !isKnown && step.told.some(({ state }) => state === "told");
    const compared = isFirst ? await readCompared(db, looked, "waiting") : undefined;
    await takeStep(services, row, { ...step, compared }, now);
    if (step.event === "ring_passed") isRingOver = true;
  });
  return { isRingOver };
}

const minuteMs = 60_000;
/** The time in which no server worked is no silence. */
const silentBefore = (silence: Silence, now: number): number =>
  now - silentMs - (10 * minuteMs - silence(now - 10 * minuteMs));

const counted = computed({ state: text(), n: integer(), last: integer() });
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
    lastCheckinAt: integerOrNull(),
  }),
);
const columns = `${rolloutNodes.select("m")}, n.name, n.is_lighthouse, n.is_relay, n.may_update, n.state AS node_state,
  n.subnets AS routed, n.exit_groups AS exits, s.last_checkin_at`;
const from = `FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id LEFT JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2`;
/** Nodes that wait, of which one turn tells some. */
const mostWaiting = 5000;
/** Those in between, those whose time is over, and those that are silent. `late`, `silent`: before these times, ms. */
const mattering = `SELECT ${columns} ${from} AND m.state IN ('told', 'applied', 'passed', 'failed', 'returning', 'returned')
  AND (m.state IN ('told', 'failed', 'returning') OR n.state <> 'active' OR m.at > $3
    OR (m.state = 'applied' AND (m.at < $4 OR coalesce(s.last_checkin_at, 0) < $5)))`;
const changed = `SELECT ${columns} ${from} AND m.state IN ('told', 'applied', 'passed', 'failed', 'returning', 'returned')`;
const waiting = `SELECT ${columns} ${from} AND m.state = 'waiting'
  ORDER BY coalesce(s.last_checkin_at, 0) DESC, m.node_id LIMIT $3`;

async function readRing(reader: Reader, row: RolloutRow, now: number, silence: Silence): Promise<Ring> {
  const { id, ring, watchS, hours } = row;
  const key = [id, ring];
  const countStates = `SELECT state, count(*) AS n, max(at) AS last FROM rollout_nodes
    WHERE rollout_id = $1 AND ring = $2 GROUP BY state`;
  const counts = await queryAll(reader, counted, countStates, key);
  const times = [now - settleMs, now - watchS * 1000 - lateMs, now - silentMs];
  const some =
    row.state === "returning"
      ? await queryAll(reader, memberPick, changed, key)
      : await queryAll(reader, memberPick, mattering, [...key, ...times]);
  // Those of other time zones may come first.
  const next = [...key, hours.length === 0 ? mostWaiting : Number.MAX_SAFE_INTEGER];
  const waits = row.state === "running" ? await queryAll(reader, memberPick, waiting, next) : [];
  const proven = `SELECT node_id FROM rollout_nodes WHERE rollout_id = $1 AND ring = $2 AND state = 'passed' AND answered > 0 LIMIT 1`;
  const size = "SELECT count(*) AS n FROM rollout_nodes WHERE rollout_id = $1";
  return {
    counts: Object.fromEntries(counts.map(({ state, n }) => [state, n])),
    isProven: (await reader.get(proven, key)) !== undefined,
    members: [...some, ...waits].map((each) => memberOf(each, row, silence)),
    size: await queryNumber(reader, size, [id]),
    passedMs: silence(counts.find(({ state }) => state === "passed")?.last ?? 0),
  };
}

function memberOf(row: ReturnType<typeof memberPick.parse>, wanted: RolloutRow, silence: Silence): Member {
  const { nodeId, name, state, at, reason, probe, logLine, lastCheckinAt } = row;
  const networks: unknown = JSON.parse(row.routed);
  const { may, zone } = permissionOf(row.mayUpdate);
  return {
    nodeId,
    name,
    state,
    reason,
    probe,
    logLine,
    stateMs: silence(at),
    silentMs: silence(lastCheckinAt ?? 0),
    isEnded: row.nodeState !== "active" && state !== "passed" && state !== "returned",
    isPermitted: rolledOut.every((what) => wanted[what] === null || may.includes(what)),
    zone,
    keys: [
      ...(row.isLighthouse ? ["lighthouse"] : []),
      ...(row.isRelay ? ["relay"] : []),
      ...(Array.isArray(networks) ? networks.map(String) : []),
      ...(row.exits === "[]" ? [] : ["exit"]),
    ],
  };
}

/** All of it, or nothing: a request or a report may have changed the rollout since it was read. */
async function takeStep(
  { db }: Services,
  row: RolloutRow,
  { progress, told, event, compared }: Step & { compared: Compared | undefined },
  now: number,
): Promise<void> {
  const { id, orgId } = row;
  const { state, ring, since, reason, failedNode, probe, logLine } = progress;
  await db.writeFor({ org: orgId }, async (tx) => {
    const endedAt = state === "stopped" || state === "passed" ? now : null;
    const before = { id, state: row.state, ring: row.ring, since: row.since };
    const after = { state, ring, since, reason, failedNode, probe, logLine, endedAt, ...given({ compared }) };
    if ((await rollouts.update(tx, before, after)) === 0) return;
    for (const each of told) await tell(tx, row, each, now);
    if (endedAt !== null) await endSettings(tx, row, state, { actor: ourselves, now });
    if (event === undefined) return;
    const shown = { ring: row.ring, agent: row.agent, engine: row.engine, ...whichSettings(row) };
    const pause = { action: "pause", reason, node: failedNode, probe };
    const why = { reason, node: failedNode, probe, log: logLine };
    await record(tx, {
      orgId,
      at: now,
      type: `rollout.${event}`,
      actor: ourselves,
      subject: `rollout/${id}`,
      after: { ...shown, ...(event === "stopped" ? why : {}), ...(event === "changed" ? pause : {}) },
    });
  });
}

async function tell(
  tx: Transaction,
  row: RolloutRow,
  { nodeId, state, reason }: Told,
  now: number,
): Promise<void> {
  await rolloutNodes.update(tx, { rolloutId: row.id, nodeId }, { state, at: now, ...given({ reason }) });
  if (state === "failed") return;
  if (state === "skipped") await endOrder(tx, row, nodeId);
  else await giveOrder(tx, row, nodeId, state);
  // Settings come with its configuration.
  const wake = row.settings === null ? notifyNode : raiseOwnVersion;
  await wake(tx, row.orgId, nodeId);
}
