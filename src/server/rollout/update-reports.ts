// Stores what nodes report about their update. A report that all works is checked: the node must check in, it must reach the
// peers that it reached before, and they must reach it.

import { AppError } from "../../base/errors.ts";
import { programProbes, type UpdateReport } from "../../protocol/updates/order.ts";
import type { Store } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { computed, places, queryAll, queryNumber, text } from "../store/table.ts";
import { sightings } from "../store/tables/nodes.ts";
import {
  orderOf,
  rolloutNodes,
  rollouts,
  type RolloutNodeRow,
  type RolloutRow,
} from "../store/tables/rollouts.ts";
import { endOrder } from "./node-orders.ts";
import { silentMs } from "./rollout-step.ts";

/** A node fails if so many more peers outside its ring cannot reach it. One alone may be wrong, or broken itself. */
const enoughPeers = 2;

/** Throws conflict if the node has no such order. */
export async function takeUpdateReport(
  { db, system }: Store,
  orgId: number,
  nodeId: number,
  report: UpdateReport,
): Promise<void> {
  // The number of an order to change is twice the time at which the rollout was created; the order to go back is one above (orderOf).
  const number = report.order - (report.order % 2);
  const row = await rollouts.find(db, { orgId, createdAt: number / 2 });
  const member = row && (await rolloutNodes.find(db, { rolloutId: row.id, nodeId }));
  if (row === undefined || member === undefined || orderOf(row) !== number)
    throw new AppError("conflict", "The node has no such order.");
  const now = system.now();
  const change = await changeFor(db, { row, member, report, now });
  if (change === undefined) return;
  await db.writeFor({ org: orgId }, async (tx) => {
    // If a step has changed the state since it was read, drop the report: the node sends it again.
    const before = { rolloutId: row.id, nodeId, state: member.state };
    if ((await rolloutNodes.update(tx, before, change)) === 0) return;
    // A node that passed keeps an order of settings until the rollout ends: config.yml holds the settings because of the order.
    const isKept = row.settings !== null && change.state === "passed";
    if (["passed", "returned", "refused"].includes(change.state ?? "") && !isKept)
      await endOrder(tx, row, nodeId);
  });
}

type Reported = { row: RolloutRow; member: RolloutNodeRow; report: UpdateReport; now: number };

/** What changes in the row of the node; undefined: nothing. */
async function changeFor(reader: Reader, reported: Reported): Promise<Partial<RolloutNodeRow> | undefined> {
  const { member, report, now } = reported;
  const { state, reason = "", probe = "", log: logLine = "", answered = 0 } = report;
  const isOrderToGoBack = report.order % 2 === 1;
  if (isOrderToGoBack) {
    if (member.state !== "returning") return undefined;
    if (state === "returned") return { state: "returned", at: now };
    return state === "failed" ? { reason, logLine } : undefined;
  }
  if (member.state !== "told" && member.state !== "applied") return undefined;
  // To be compared with what is broken when the node says that it passed (whyDoubted).
  if (state === "taken") return { brokenBefore: await countBroken(reader, reported) };
  if (state === "applied" && member.state === "told") return { state, at: now, answered };
  if (state === "refused") return { state, at: now, reason };
  if (state === "failed") return { state, at: now, reason, probe, logLine };
  if (state !== "passed") return undefined;
  const doubt = await whyDoubted(reader, reported);
  if (doubt !== undefined)
    return { state: "failed", at: now, reason: doubt.reason, probe: doubt.probe, logLine };
  return { state: "passed", at: now, answered };
}

/** Why a report that all works is not believed; undefined: it is. */
async function whyDoubted(
  reader: Reader,
  reported: Reported,
): Promise<{ reason: string; probe: string } | undefined> {
  const { member, report, now } = reported;
  const sighting = await sightings.find(reader, { nodeId: member.nodeId });
  if (now - (sighting?.lastCheckinAt ?? 0) > silentMs)
    return { reason: "Its agent does not check in", probe: programProbes.checkin };
  const lost = await lostPeers(reader, reported, report.lost ?? []);
  if (lost.length > 0)
    return {
      reason: `It does not reach ${lost.join(", ")}, which is there and which it reached before`,
      probe: `echo to ${lost.join(", ")}`,
    };
  const broken = await countBroken(reader, reported);
  if (broken - member.brokenBefore < enoughPeers) return undefined;
  return { reason: `${broken} peers that have not changed do not reach it`, probe: "echoes of its peers" };
}

/** The names of those lost peers that are in contact: a peer that is away itself is no fault of the update. */
async function lostPeers(
  reader: Reader,
  { row, now }: Reported,
  addresses: readonly string[],
): Promise<readonly string[]> {
  if (addresses.length === 0) return [];
  const listed = places(addresses, 3);
  const sql = `SELECT n.name FROM nodes n JOIN sightings s ON s.node_id = n.id
    WHERE n.org_id = $1 AND n.state = 'active' AND s.last_checkin_at > $2
      AND coalesce(s.overlay_state, '') NOT IN ('stopped', 'not_running')
      AND (n.ip IN (${listed}) OR n.ip6 IN (${listed})) ORDER BY n.name`;
  const params = [row.orgId, now - silentMs, ...addresses];
  return (await queryAll(reader, computed({ name: text() }), sql, params)).map(({ name }) => name);
}

/** Peers outside the ring, and in contact, that report the path to this node broken. */
async function countBroken(reader: Reader, { row, member, now }: Reported): Promise<number> {
  const sql = `SELECT count(*) AS n FROM paths x JOIN nodes n ON n.id = $2 JOIN sightings s ON s.node_id = x.node_id
    WHERE x.org_id = $1 AND x.probe = 'broken' AND x.peer IN (n.ip, coalesce(n.ip6, n.ip)) AND s.last_checkin_at > $3
      AND NOT EXISTS (SELECT 1 FROM rollout_nodes m WHERE m.rollout_id = $4 AND m.node_id = x.node_id AND m.ring = $5)`;
  return queryNumber(reader, sql, [row.orgId, member.nodeId, now - silentMs, row.id, member.ring]);
}
