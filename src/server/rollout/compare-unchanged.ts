// Compares the nodes of a ring with those that have not changed, since before its first node changed. What both have alike is a
// fault of the network, and what only the ring has is one of the update, although each of its nodes is within its own limits.

import { onlineMs } from "../../api/values.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, queryOne } from "../store/table.ts";
import type { Compared, Figures, RolloutRow } from "../store/tables/rollouts.ts";

/**
 * `unchanged`: what nodes have that have not changed. `changing`: what only those of the ring have. Undefined: nothing.
 * `areHeard`: nodes that have not changed report their paths.
 */
export type Rises = { unchanged?: string | undefined; changing?: string | undefined; areHeard: boolean };

type Measure = { part: "lossy" | "relayed" | "silent"; of: "paths" | "nodes"; what: string };
const measures: readonly Measure[] = [
  { part: "lossy", of: "paths", what: "paths lose packets" },
  { part: "relayed", of: "paths", what: "paths go through a relay" },
  { part: "silent", of: "nodes", what: "nodes are not in contact" },
];

/** A larger rise of a share counts, if so many more paths or nodes have it: one alone may have a fault of its own. */
const mostRisen = 0.1;
const fewest = 2;

/** Pure. */
export function risesSince(before: Compared, now: Omit<Compared, "ring">): Rises {
  const find = (isWorse: (measure: Measure) => boolean, show: (measure: Measure) => string) => {
    const worse = measures.find(isWorse);
    return worse && show(worse);
  };
  const ofUnchanged = (each: Measure) => riseOf(each, before.unchanged, now.unchanged);
  return {
    areHeard: now.unchanged.paths >= fewest,
    unchanged: find(
      (each) => ofUnchanged(each) > mostRisen,
      (each) => words(each, before.unchanged, now.unchanged),
    ),
    changing: find(
      (each) =>
        now.unchanged[each.of] >= fewest &&
        riseOf(each, before.changing, now.changing) - Math.max(0, ofUnchanged(each)) > mostRisen,
      (each) =>
        `${words(each, before.changing, now.changing)}; of nodes that have not changed, ${words(each, before.unchanged, now.unchanged)}`,
    ),
  };
}

/** Of a share; 0 for a rise that proves nothing. */
function riseOf({ part, of }: Measure, before: Figures, now: Figures): number {
  if (now[of] === 0 || now[part] - before[part] < fewest) return 0;
  return now[part] / now[of] - before[part] / Math.max(1, before[of]);
}

const words = ({ part, of, what }: Measure, before: Figures, now: Figures): string =>
  `${now[part]} of ${now[of]} ${what}, ${before[part]} of ${before[of]} before`;

/** Nodes of each side whose paths are read. */
const most = 500;
/** Nodes that are silent for longer say nothing. */
const heardMs = 600_000;

const unchangedNodes = `FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.org_id = $1 AND n.state = 'active' AND n.phone IS NULL AND s.last_checkin_at > $3
    AND NOT EXISTS (SELECT 1 FROM rollout_nodes m WHERE m.rollout_id = $2 AND m.node_id = n.id
      AND m.state NOT IN ('waiting', 'skipped', 'refused'))`;
const unchanged = `SELECT n.id ${unchangedNodes} ORDER BY n.id LIMIT ${most}`;
/** Before the first one changed, all of them wait. */
const changing = (state: "waiting" | "passed") =>
  `SELECT node_id FROM rollout_nodes WHERE rollout_id = $2 AND ring = $4 AND state = '${state}' ORDER BY node_id LIMIT ${most}`;

/**
 * The paths of these nodes to peers that have not changed. `|| ''` keeps the database from reading the paths of all peers by the
 * index of peers, which takes a minute with 100,000 nodes.
 */
const pathsOf = (reporters: string) => `FROM paths x WHERE x.node_id IN (${reporters})
  AND (x.probe <> 'not_probed' OR x.path IN ('direct', 'relayed'))
  AND x.peer || '' IN (SELECT n.ip ${unchangedNodes} UNION ALL SELECT n.ip6 ${unchangedNodes} AND n.ip6 IS NOT NULL)`;
/** A share of 200 thousandths is the least change of losses that nodes report. */
const isLossy = "(x.probe = 'broken' OR coalesce(x.loss_permille, 0) >= 200)";
const sumOf = (condition: string) =>
  `CAST(coalesce(sum(CASE WHEN ${condition} THEN 1 ELSE 0 END), 0) AS BIGINT)`;

const pathCounts = computed({ paths: integer(), lossy: integer(), relayed: integer() });
const countPaths = (reporters: string) =>
  `SELECT count(*) AS paths, ${sumOf(isLossy)} AS lossy, ${sumOf("x.path = 'relayed'")} AS relayed ${pathsOf(reporters)}`;
const nodeCounts = computed({ nodes: integer(), silent: integer() });
const countNodes = `SELECT count(*) AS nodes, ${sumOf("s.last_checkin_at < $4")} AS silent ${unchangedNodes}`;

type Looked = {
  row: RolloutRow;
  now: number;
  /** Who checked in last before that is silent, ms. */ silentBefore: number;
};

/** What is compared. `state`: of the nodes of the ring. */
export async function readCompared(
  reader: Reader,
  { row: { orgId, id, ring }, now, silentBefore }: Looked,
  state: "waiting" | "passed",
): Promise<Compared> {
  const [first] = await queryAll(reader, nodeCounts, countNodes, [orgId, id, now - heardMs, silentBefore]);
  const present = [orgId, id, now - onlineMs];
  const [others] = await queryAll(reader, pathCounts, countPaths(unchanged), present);
  const [own] = await queryAll(reader, pathCounts, countPaths(changing(state)), [...present, ring]);
  const nothing = { paths: 0, lossy: 0, relayed: 0, nodes: 0, silent: 0 };
  return { ring, changing: { ...nothing, ...own }, unchanged: { ...nothing, ...first, ...others } };
}

const worst = computed({ nodeId: integer() });

/** The node of the ring with the most paths that are lossy or relayed. */
export async function findWorst(
  reader: Reader,
  { orgId, id, ring }: RolloutRow,
  now: number,
): Promise<number | null> {
  const sql = `SELECT x.node_id ${pathsOf(changing("passed"))} AND (${isLossy} OR x.path = 'relayed')
    GROUP BY x.node_id ORDER BY count(*) DESC, x.node_id LIMIT 1`;
  return (await queryOne(reader, worst, sql, [orgId, id, now - onlineMs, ring]))?.nodeId ?? null;
}
