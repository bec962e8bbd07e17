// What a drill showed: who lost whom, who refused to be away, and who has not reported.

import { maxDrills, type Drill } from "../../api/drills/drills.ts";
import { onlineMs } from "../../api/values.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { maxLosses } from "../../protocol/updates/drill.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { Store } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { computed, integer, places, queryAll, queryOne, text, textOrNull, truth } from "../store/table.ts";
import { drillNodes, drills, type DrillNodeRow, type DrillRow } from "../store/tables/drills.ts";

/** Names of nodes in a sentence or a list of the report. */
export const maxNamed = 20;
/** The first agent that knows drills. */
export const firstVersion = "0.2.0";

export const candidate = computed({
  id: integer(),
  name: text(),
  isLighthouse: truth(0),
  isRelay: truth(0),
  agentVersion: textOrNull(),
  lastCheckinAt: integer(),
});
/** SQL that selects nodes which can take part. $1: the organization. */
export const selectCandidates = (condition: string) =>
  `SELECT id, name, is_lighthouse, is_relay, coalesce(reported_version, agent_version) AS agent_version,
     coalesce(last_checkin_at, 0) AS last_checkin_at
   FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' AND phone IS NULL AND ${condition} ORDER BY name, id`;

export const isTooOld = (version: string | null) =>
  version === null || compareVersions(version, firstVersion) < 0;

/** Nodes that were online when the drill began and have not reported; `tooOld`: those whose agent knows no drills. */
export async function readSilent(reader: Reader, { id, orgId, beginsAt }: DrillRow) {
  const isSilent = `last_checkin_at > $2
    AND NOT EXISTS (SELECT 1 FROM drill_nodes m WHERE m.drill_id = $3 AND m.node_id = id AND m.peers IS NOT NULL)`;
  const rows = await queryAll(reader, candidate, selectCandidates(isSilent), [
    orgId,
    beginsAt - onlineMs,
    id,
  ]);
  const summary = (some: typeof rows) => ({
    count: some.length,
    first: some.slice(0, maxNamed).map(({ name }) => name),
  });
  return {
    silent: summary(rows.filter(({ agentVersion }) => !isTooOld(agentVersion))),
    tooOld: summary(rows.filter(({ agentVersion }) => isTooOld(agentVersion))),
  };
}

/** The newest first. `id`: this one alone. */
export async function listDrills(
  { db, system }: Store,
  { id: orgId }: { id: number },
  { id, newest = maxDrills }: { id?: number | undefined; newest?: number | undefined },
): Promise<Drill[]> {
  const only = id === undefined ? "" : " AND id = $2";
  const sql = `SELECT ${drills.select()} FROM drills WHERE org_id = $1${only} ORDER BY id DESC LIMIT ${newest}`;
  const shown: Drill[] = [];
  for (const row of await queryAll(db, drills, sql, id === undefined ? [orgId] : [orgId, id]))
    shown.push(await showDrill(db, row, system.now()));
  return shown;
}

/** `reported`: nodes that reported their peers, whose column `peers` is not null. `watched`: the peers of all of them. */
const sumsPick = computed({ reported: integer(), watched: integer() });
// Cast, because the sum of a BIGINT is a numeric in PostgreSQL.
const sumsSql =
  "SELECT count(peers) AS reported, CAST(coalesce(sum(peers), 0) AS BIGINT) AS watched FROM drill_nodes WHERE drill_id = $1";
/** Only reports with a loss, or about being away: most nodes have neither. */
const tellingReportsSql = `SELECT ${drillNodes.select()} FROM drill_nodes
  WHERE drill_id = $1 AND (losses <> '[]' OR state <> 'ended') ORDER BY node_name, node_id`;

export async function showDrill(reader: Reader, row: DrillRow, now: number): Promise<Drill> {
  const reports = await queryAll(reader, drillNodes, tellingReportsSql, [row.id]);
  const { reported = 0, watched = 0 } = (await queryOne(reader, sumsPick, sumsSql, [row.id])) ?? {};
  const losses = mergeLosses(reports);
  // Stored when the drill ends, because the nodes change afterwards.
  const { silent, tooOld } = row.endedAt === null ? await readSilent(reader, row) : row;
  const stateBeforeEnd = now < row.endsAt ? "running" : "reporting";
  return {
    id: row.id,
    kind: row.kind,
    state: row.endedAt === null ? stateBeforeEnd : "ended",
    nodes: await showTargets(reader, row, reports),
    for_s: Math.max(0, Math.round((row.endsAt - row.beginsAt) / 1000)),
    begins_at: formatTime(row.beginsAt),
    ends_at: formatTime(row.endsAt),
    ended_at: timeOrNull(row.endedAt),
    aborted_at: timeOrNull(row.abortedAt),
    reported,
    watched,
    silent,
    too_old: tooOld,
    losses: losses.slice(0, maxLosses),
    left_out: Math.max(0, losses.length - maxLosses),
  };
}

const namePick = computed({ id: integer(), name: text() });

/**
 * The nodes that should be away. `targets` is empty if the control plane is away: then all nodes are without it, and only those that
 * refused are shown.
 */
async function showTargets(
  reader: Reader,
  { orgId, targets }: DrillRow,
  reports: readonly DrillNodeRow[],
): Promise<Drill["nodes"]> {
  if (targets.length === 0)
    return reports
      .filter(({ state }) => state === "refused")
      .slice(0, maxLosses)
      .map(({ nodeId, nodeName, reason }) => ({
        node: nodeId,
        node_name: nodeName,
        state: "refused",
        reason,
      }));
  const sql = `SELECT id, name FROM nodes WHERE org_id = $1 AND id IN (${places(targets, 2)}) ORDER BY name`;
  return (await queryAll(reader, namePick, sql, [orgId, ...targets])).map(({ id, name }) => {
    const { state = "told", reason = "" } = reports.find(({ nodeId }) => nodeId === id) ?? {};
    // A report of the end alone does not say whether the node was away.
    return { node: id, node_name: name, state: state === "ended" ? "told" : state, reason };
  });
}

/** A loss between two nodes. */
type Pair = Drill["losses"][number];

/** The losses, the longest first. Overlapping reports of both ends of a pair are one loss, from the first begin to the last end. */
export function mergeLosses(
  reports: readonly Pick<DrillNodeRow, "nodeId" | "nodeName" | "losses">[],
): Pair[] {
  const reported = reports.flatMap(({ nodeId, nodeName, losses }) =>
    losses.map(({ peer, name, fromMs, untilMs }): Pair => {
      const span = { from_s: fromMs / 1000, until_s: untilMs === null ? null : untilMs / 1000 };
      return { node: nodeId, node_name: nodeName, peer, peer_name: name, ...span };
    }),
  );
  /** By the ids of both nodes, the lower one first. */
  const pairs = new Map<string, Pair[]>();
  // By their begins: then a loss can overlap only the last one of its pair.
  for (const loss of reported.toSorted((a, b) => a.from_s - b.from_s)) {
    const key = [loss.node, loss.peer].toSorted((a, b) => a - b).join("/");
    const lossesOfPair = pairs.getOrInsertComputed(key, () => []);
    const last = lossesOfPair.at(-1);
    if (last === undefined || endOf(last) < loss.from_s) lossesOfPair.push(loss);
    else if (endOf(last) < endOf(loss)) last.until_s = loss.until_s;
  }
  const lengthOf = (loss: Pair) => endOf(loss) - loss.from_s;
  // Compared, not subtracted: both lengths may be infinite.
  return [...pairs.values()].flat().toSorted((a, b) => (lengthOf(b) > lengthOf(a) ? 1 : -1));
}

/** Null: not over when the node reported. */
const endOf = ({ until_s: until }: Pair) => until ?? Number.POSITIVE_INFINITY;
