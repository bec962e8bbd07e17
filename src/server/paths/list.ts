// The paths of an organization as the API shows them, and their figures for the metrics.

import type { Path, PathCounts, PathQuery, Attention } from "../../api/paths.ts";
import { formatTime } from "../../base/quantities.ts";
import { pageOf, searchPattern, type Page } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, joined, queryAll, queryNumber, text } from "../store/table.ts";
import { nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { nodes } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";

const wordPick = paths.pick("path");

const shown = joined("x", paths, "n", computed({ nodeName: text() }));
const from = `FROM paths x JOIN nodes n ON n.id = x.node_id WHERE x.org_id = $1 AND n.state = 'active'`;

/** `ownerId`: a member, who sees the nodes of their own alone, and no underlay addresses. */
export type Shown = { nodeId?: number; ownerId: number | undefined; isOnline: (node: NodeRecord) => boolean };

/** The latest paths, of all nodes or of one, sorted by node and address. */
export async function listPaths(
  reader: Reader,
  orgId: number,
  query: PathQuery,
  { nodeId, ownerId, isOnline }: Shown,
): Promise<Page<Path>> {
  const filters = {
    "x.node_id": nodeId,
    "n.owner_id": ownerId,
    "x.path": query.path,
    "x.probe": query.probe,
  };
  const params: (string | number)[] = [orgId];
  let where = from;
  if (query.search !== "") {
    params.push(searchPattern(query));
    where += ` AND lower(n.name) LIKE $${params.length} ESCAPE '!'`;
  }
  for (const [column, value] of Object.entries(filters)) {
    if (value === undefined) continue;
    params.push(value);
    where += ` AND ${column} = $${params.length}`;
  }
  const total = await queryNumber(reader, `SELECT count(*) AS n ${where}`, params);
  const { limit, offset } = pageOf(query);
  const rows = await queryAll(
    reader,
    shown,
    `SELECT ${paths.select("x")}, n.name AS node_name ${where}
     ORDER BY x.node_id, x.peer LIMIT ${limit} OFFSET ${offset}`,
    params,
  );
  const peers = await peersWith(reader, orgId, [
    ...new Set(rows.flatMap(({ peer, relays }) => [peer, ...relays])),
  ]);
  const areAway = await relaysAway(reader, orgId, rows, isOnline);
  const items = rows.map((row): Path => {
    const peer = peers.get(row.peer);
    return {
      node: row.nodeId,
      node_name: row.nodeName,
      peer: peer?.id ?? null,
      peer_name: peer?.name ?? null,
      peer_address: row.peer,
      path: row.path,
      remote: ownerId === undefined ? row.remote : null,
      relays: row.relays.map((relay) => peers.get(relay)?.name ?? relay),
      relays_away: areAway(row),
      probe: row.probe,
      rtt_ms: row.rttUs === null ? null : row.rttUs / 1000,
      loss: row.lossPermille === null ? null : row.lossPermille / 1000,
      reported_at: formatTime(row.at),
    };
  });
  return { items, total, query };
}

const countedRow = computed({ node: integer(), direct: integer(), relayed: integer(), broken: integer() });
const countIf = (condition: string) => `sum(CASE WHEN ${condition} THEN 1 ELSE 0 END)`;

/** How many paths each node has of each kind, sorted by node. Nodes that reported none are left out. */
export async function countPathsByNode(
  reader: Reader,
  orgId: number,
  query: ListQuery,
  { ownerId, isOnline }: Shown,
): Promise<Page<PathCounts>> {
  const params = [orgId, ...(ownerId === undefined ? [] : [ownerId])];
  const where = `${from}${ownerId === undefined ? "" : " AND n.owner_id = $2"}`;
  const total = await queryNumber(reader, `SELECT count(DISTINCT x.node_id) AS n ${where}`, params);
  const { limit, offset } = pageOf(query);
  const rows = await queryAll(
    reader,
    countedRow,
    `SELECT x.node_id AS node,
       ${countIf("x.probe <> 'broken' AND x.path = 'direct'")} AS direct,
       ${countIf("x.probe <> 'broken' AND x.path = 'relayed'")} AS relayed,
       ${countIf("x.probe = 'broken'")} AS broken
     ${where} GROUP BY x.node_id ORDER BY x.node_id LIMIT ${limit} OFFSET ${offset}`,
    params,
  );
  // Only for nodes on the page.
  const [first = 0, last = -1] = [rows[0]?.node, rows.at(-1)?.node];
  const relayed = await queryAll(
    reader,
    relayedRow,
    `SELECT ${relayedRow.select("x")} ${where} AND x.probe <> 'broken' AND x.path = 'relayed'
     AND x.node_id BETWEEN ${first} AND ${last}`,
    params,
  );
  const areAway = await relaysAway(reader, orgId, relayed, isOnline);
  const byNode = Map.groupBy(relayed.filter(areAway), ({ nodeId }) => nodeId);
  const items = rows.map((row) => ({ ...row, relays_away: byNode.get(row.node)?.length ?? 0 }));
  return { items, total, query };
}

const relayedRow = paths.pick("nodeId", "path", "relays", "probe");
type Relayed = { path: Path["path"]; relays: readonly string[]; probe: Path["probe"] };

/** Whether a path goes over relays that are all away. Nodes report relays by address, or by name. */
async function relaysAway(
  reader: Reader,
  orgId: number,
  rows: readonly Relayed[],
  isOnline: Shown["isOnline"],
): Promise<(row: Relayed) => boolean> {
  const relays = [...new Set(rows.flatMap((row) => row.relays))];
  if (relays.length === 0) return () => false;
  const places = relays.map((_, at) => `$${at + 2}`).join(", ");
  const found = await queryAll(
    reader,
    nodeRecord,
    `SELECT ${nodeColumns} FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active'
       AND (name IN (${places}) OR ip IN (${places}) OR ip6 IN (${places}))`,
    [orgId, ...relays],
  );
  const away = new Set(
    found.flatMap((node) => (isOnline(node) ? [] : [node.name, node.ip, node.ip6 ?? node.ip])),
  );
  return ({ path, probe, relays }) =>
    path === "relayed" && probe !== "broken" && relays.length > 0 && relays.every((relay) => away.has(relay));
}

/** Maximum peers shown for each node; the rest is counted. */
const maxPeers = 3;

const brokenRow = computed({ node: integer(), nodeName: text(), peer: text(), n: integer() });

/** The nodes that do not reach peers: how many, and the first `limit`. */
export async function brokenByNode(
  reader: Reader,
  orgId: number,
  { ownerId, limit }: Pick<Shown, "ownerId"> & { limit: number },
): Promise<{ count: number; first: Attention["broken_paths"]["first"] }> {
  const params = [orgId, ...(ownerId === undefined ? [] : [ownerId])];
  const where = `${from} AND x.probe = 'broken'${ownerId === undefined ? "" : " AND n.owner_id = $2"}`;
  const count = await queryNumber(reader, `SELECT count(DISTINCT x.node_id) AS n ${where}`, params);
  if (count === 0) return { count, first: [] };
  const rows = await queryAll(
    reader,
    brokenRow,
    `SELECT node, node_name, peer, n FROM
       (SELECT x.node_id AS node, n.name AS node_name, x.peer AS peer, count(*) OVER (PARTITION BY x.node_id) AS n,
          row_number() OVER (PARTITION BY x.node_id ORDER BY x.peer) AS place
        ${where} AND x.node_id IN (SELECT DISTINCT x.node_id ${where} ORDER BY x.node_id LIMIT ${limit})) y
     WHERE place <= ${maxPeers} ORDER BY node, peer`,
    params,
  );
  const peers = await peersWith(reader, orgId, [...new Set(rows.map(({ peer }) => peer))]);
  const first = [...Map.groupBy(rows, ({ node }) => node)].map(([id, found]) => ({
    id,
    name: found[0]?.nodeName ?? "",
    peers: found.map(({ peer }) => peers.get(peer)?.name ?? peer),
    peer_count: found[0]?.n ?? 0,
  }));
  return { count, first };
}

const peerPick = nodes.pick("id", "name", "ip", "ip6");

/** The active nodes with these overlay addresses. */
async function peersWith(
  reader: Reader,
  orgId: number,
  addresses: readonly string[],
): Promise<Map<string, { id: number; name: string }>> {
  const found = new Map<string, { id: number; name: string }>();
  if (addresses.length === 0) return found;
  const places = addresses.map((_, at) => `$${at + 2}`).join(", ");
  const rows = await queryAll(
    reader,
    peerPick,
    `SELECT ${peerPick.select()} FROM nodes
     WHERE org_id = $1 AND state = 'active' AND (ip IN (${places}) OR ip6 IN (${places}))`,
    [orgId, ...addresses],
  );
  for (const { id, name, ip, ip6 } of rows) {
    for (const address of [ip, ip6]) if (address !== null) found.set(address, { id, name });
  }
  return found;
}

/** Upper bounds of round trips, microseconds. */
const bounds = [1000, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000];

export type PathFigures = {
  slug: string;
  counts: Record<Path["path"], number>;
  /** Pairs whose probes are no longer answered, counted once for both sides. */
  broken: number;
  /** Paths with a round trip up to each bound, in seconds. */
  roundTrips: { bounds: readonly { seconds: number; count: number }[]; count: number; sum: number };
};

const perBucket = computed({
  orgId: integer(),
  slug: text(),
  n: integer(),
  sum: integer(),
  bucket: integer(),
});
const pairs = computed({ orgId: integer(), n: integer() });

/** The place of the first bound that the round trip does not exceed; -1 without a round trip. */
const bucketOf = `CASE WHEN rtt_us IS NULL THEN -1 ${bounds
  .map((bound, at) => `WHEN rtt_us <= ${bound} THEN ${at}`)
  .join(" ")} ELSE ${bounds.length} END`;

/** Figures of all organizations with reports. Reads every row, so do not call it often (metrics.ts). */
export async function pathFigures(reader: Reader): Promise<PathFigures[]> {
  const rows = await reader.all(
    `SELECT x.org_id, o.slug, x.path, x.bucket, x.n, x.sum FROM
       (SELECT org_id, path, ${bucketOf} AS bucket, count(*) AS n, CAST(coalesce(sum(rtt_us), 0) AS bigint) AS sum
        FROM paths GROUP BY org_id, path, ${bucketOf}) x
     JOIN organizations o ON o.id = x.org_id WHERE o.deleted_at IS NULL ORDER BY o.slug, x.path, x.bucket`,
  );
  const broken = await queryAll(
    reader,
    pairs,
    `SELECT org_id, count(*) AS n FROM
       (SELECT DISTINCT x.org_id, CASE WHEN n.ip < x.peer THEN n.ip ELSE x.peer END AS one,
          CASE WHEN n.ip < x.peer THEN x.peer ELSE n.ip END AS other
        FROM paths x JOIN nodes n ON n.id = x.node_id WHERE x.probe = 'broken' AND n.state = 'active') pairs
     GROUP BY org_id`,
  );
  const figures = new Map<number, PathFigures>();
  for (const row of rows) {
    const { orgId, slug, n, sum, bucket } = perBucket.parse(row);
    const found = figures.get(orgId) ?? noFigures(slug, broken.find((each) => each.orgId === orgId)?.n ?? 0);
    figures.set(orgId, found);
    found.counts[wordPick.parse(row).path] += n;
    if (bucket < 0) continue;
    const { roundTrips } = found;
    roundTrips.count += n;
    roundTrips.sum += sum / 1e6;
    for (const each of roundTrips.bounds.slice(bucket)) each.count += n;
  }
  return [...figures.values()];
}

function noFigures(slug: string, broken: number): PathFigures {
  return {
    slug,
    counts: { direct: 0, relayed: 0, none: 0, unknown: 0 },
    broken,
    roundTrips: { bounds: bounds.map((each) => ({ seconds: each / 1e6, count: 0 })), count: 0, sum: 0 },
  };
}
