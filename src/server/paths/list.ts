// The paths of an organization as the API shows them.

import type { Attention, Path, PathCounts, PathQuery } from "../../api/paths.ts";
import { formatTime } from "../../base/quantities.ts";
import { pageOf, searchPattern, type Page } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, joined, queryAll, queryNumber, text } from "../store/table.ts";
import { nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { nodes } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";

const shown = joined("x", paths, "n", computed({ nodeName: text() }));
const from = `FROM paths x JOIN nodes n ON n.id = x.node_id WHERE x.org_id = $1 AND n.state = 'active'`;

/** `ownerId`: a member, who sees only the paths of their own nodes, and no underlay addresses. */
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
