// Compares what got worse since a ring began: on its nodes, and on nodes that have not changed. What both have is a fault of the
// network. What only the ring has is a fault of the update, even if each of its nodes alone seems to work. For rollout-turn.ts.

import { onlineMs } from "../../api/values.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, queryOne } from "../store/table.ts";
import type { Compared, Figures, RolloutRow } from "../store/tables/rollouts.ts";

/** What got worse since the ring began, in words; undefined: nothing. */
export type Rises = {
  /** On nodes that have not changed. */
  unchanged?: string | undefined;
  /** On nodes of the ring only. */
  changing?: string | undefined;
  /** Whether nodes that have not changed report enough paths. */
  hasReports: boolean;
};

/** A share, which is `part` divided by `of`: both are fields of `Figures`. `what`: how a sentence goes on after both numbers. */
type Measure = { part: "lossy" | "relayed" | "silent"; of: "paths" | "nodes"; what: string };
const measures: readonly Measure[] = [
  { part: "lossy", of: "paths", what: "paths lose packets" },
  { part: "relayed", of: "paths", what: "paths go through a relay" },
  { part: "silent", of: "nodes", what: "nodes are not in contact" },
];

/** A share (0 to 1) may rise by this without a fault. */
const toleratedRise = 0.1;
/** A rise counts only if it is of so many paths or nodes: one alone may have a fault of its own. */
const fewest = 2;

/** `before`: the figures from before the ring changed. Pure. */
export function risesSince(before: Compared, now: Omit<Compared, "ring">): Rises {
  const riseOfUnchanged = (measure: Measure) => riseOf(measure, before.unchanged, now.unchanged);
  const riseOfRing = (measure: Measure) => riseOf(measure, before.changing, now.changing);
  const describeUnchanged = (measure: Measure) => describe(measure, before.unchanged, now.unchanged);
  const describeRing = (measure: Measure) => describe(measure, before.changing, now.changing);
  const worseOnUnchanged = measures.find((measure) => riseOfUnchanged(measure) > toleratedRise);
  const worseInRing = measures.find(
    (measure) =>
      // Without enough nodes that have not changed, there is nothing to compare with.
      now.unchanged[measure.of] >= fewest &&
      riseOfRing(measure) - Math.max(0, riseOfUnchanged(measure)) > toleratedRise,
  );
  return {
    hasReports: now.unchanged.paths >= fewest,
    unchanged: worseOnUnchanged && describeUnchanged(worseOnUnchanged),
    changing:
      worseInRing &&
      `${describeRing(worseInRing)}; of nodes that have not changed, ${describeUnchanged(worseInRing)}`,
  };
}

/** How much the share rose, 0 to 1; 0 for a rise that proves nothing. */
function riseOf({ part, of }: Measure, before: Figures, now: Figures): number {
  if (now[of] === 0 || now[part] - before[part] < fewest) return 0;
  return now[part] / now[of] - before[part] / Math.max(1, before[of]);
}

const describe = ({ part, of, what }: Measure, before: Figures, now: Figures): string =>
  `${now[part]} of ${now[of]} ${what}, ${before[part]} of ${before[of]} before`;

/** Nodes of each side whose paths are read. */
const maxReporters = 500;
/** Nodes that are silent for longer count neither as silent nor as nodes: they were away before. */
const heardMs = 600_000;

/** $1: the organization, $2: the rollout, $3: checked in since then. */
const unchangedNodes = `FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.org_id = $1 AND n.state = 'active' AND n.phone IS NULL AND s.last_checkin_at > $3
    AND NOT EXISTS (SELECT 1 FROM rollout_nodes m WHERE m.rollout_id = $2 AND m.node_id = n.id
      AND m.state NOT IN ('waiting', 'skipped', 'refused'))`;
const unchangedIds = `SELECT n.id ${unchangedNodes} ORDER BY n.id LIMIT ${maxReporters}`;
/** The ids of the nodes of the ring ($4) in one state: before the first one changed, all of them wait. */
const ringIds = (state: "waiting" | "passed") =>
  `SELECT node_id FROM rollout_nodes WHERE rollout_id = $2 AND ring = $4 AND state = '${state}' ORDER BY node_id LIMIT ${maxReporters}`;

/**
 * The paths of these nodes to peers that have not changed. `reporters`: SQL that selects the ids of the nodes. `|| ''` keeps the
 * database from reading the paths of all peers by the index of peers, which takes a minute with 100,000 nodes.
 */
const pathsOf = (reporters: string) => `FROM paths x WHERE x.node_id IN (${reporters})
  AND (x.probe <> 'not_probed' OR x.path IN ('direct', 'relayed'))
  AND x.peer || '' IN (SELECT n.ip ${unchangedNodes} UNION ALL SELECT n.ip6 ${unchangedNodes} AND n.ip6 IS NOT NULL)`;
/** 200 thousandths: nodes report no smaller change of a path's losses. */
const isLossy = "(x.probe = 'broken' OR coalesce(x.loss_permille, 0) >= 200)";
const sumOf = (condition: string) =>
  `CAST(coalesce(sum(CASE WHEN ${condition} THEN 1 ELSE 0 END), 0) AS BIGINT)`;

const pathCounts = computed({ paths: integer(), lossy: integer(), relayed: integer() });
const countPaths = (reporters: string) =>
  `SELECT count(*) AS paths, ${sumOf(isLossy)} AS lossy, ${sumOf("x.path = 'relayed'")} AS relayed ${pathsOf(reporters)}`;
const nodeCounts = computed({ nodes: integer(), silent: integer() });
/** $4: silent if the last check-in was before then. */
const countNodes = `SELECT count(*) AS nodes, ${sumOf("s.last_checkin_at < $4")} AS silent ${unchangedNodes}`;

/** Times in ms. A node that checked in last before `silentBefore` is silent. */
type Moment = { row: RolloutRow; now: number; silentBefore: number };

/** The figures of now. `state`: of the nodes of the ring that are read. */
export async function readCompared(
  reader: Reader,
  { row: { orgId, id, ring }, now, silentBefore }: Moment,
  state: "waiting" | "passed",
): Promise<Compared> {
  const [nodesUnchanged] = await queryAll(reader, nodeCounts, countNodes, [
    orgId,
    id,
    now - heardMs,
    silentBefore,
  ]);
  const online = [orgId, id, now - onlineMs];
  const [pathsUnchanged] = await queryAll(reader, pathCounts, countPaths(unchangedIds), online);
  const [pathsOfRing] = await queryAll(reader, pathCounts, countPaths(ringIds(state)), [...online, ring]);
  const nothing = { paths: 0, lossy: 0, relayed: 0, nodes: 0, silent: 0 };
  return {
    ring,
    // Silent nodes of the ring are failures of their own (rollout-step.ts), and are not counted here.
    changing: { ...nothing, ...pathsOfRing },
    unchanged: { ...nothing, ...nodesUnchanged, ...pathsUnchanged },
  };
}

const worst = computed({ nodeId: integer() });

/** The id of the node of the ring with the most paths that are lossy or relayed; null: no path is. */
export async function findWorst(
  reader: Reader,
  { orgId, id, ring }: RolloutRow,
  now: number,
): Promise<number | null> {
  const sql = `SELECT x.node_id ${pathsOf(ringIds("passed"))} AND (${isLossy} OR x.path = 'relayed')
    GROUP BY x.node_id ORDER BY count(*) DESC, x.node_id LIMIT 1`;
  return (await queryOne(reader, worst, sql, [orgId, id, now - onlineMs, ring]))?.nodeId ?? null;
}
