// Lists and counts the paths of an organization, as the API shows them.

import type { Attention } from "../../api/paths/attention.ts";
import type { Path, PathCounts, PathQuery } from "../../api/paths/paths.ts";
import { formatTime } from "../../base/quantities.ts";
import { pageOf, searchPattern, type Page } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, joined, places, queryAll, queryNumber, text } from "../store/table.ts";
import { nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { paths } from "../store/tables/paths.ts";

const namedPath = joined("x", paths, "n", computed({ nodeName: text() }));
const ofActiveNodes = `FROM paths x JOIN nodes n ON n.id = x.node_id WHERE x.org_id = $1 AND n.state = 'active'`;

/** `ownerId`: a member, who sees only the paths of their own nodes, and no underlay addresses. */
export type PathScope = { nodeId?: number; ownerId: number | undefined; isOnline: IsOnline };
type IsOnline = (node: NodeRecord) => boolean;

/** The latest paths, of all nodes or of one, sorted by node and address. */
export async function listPaths(
  reader: Reader,
  orgId: number,
  query: PathQuery,
  { nodeId, ownerId, isOnline }: PathScope,
): Promise<Page<Path>> {
  const { where, params } = conditionsOf(orgId, query, nodeId, ownerId);
  const total = await queryNumber(reader, `SELECT count(*) AS n ${where}`, params);
  const { limit, offset } = pageOf(query);
  const rows = await queryAll(
    reader,
    namedPath,
    `SELECT ${paths.select("x")}, n.name AS node_name ${where}
     ORDER BY x.node_id, x.peer LIMIT ${limit} OFFSET ${offset}`,
    params,
  );
  const reported = rows.flatMap(({ peer, relays }) => [peer, ...relays]);
  const peers = await nodesWith(reader, orgId, reported, isOnline);
  const areAway = relaysAway(peers);
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
      peer_away: peer?.isOnline === false,
      probe: row.probe,
      rtt_ms: row.rttUs === null ? null : row.rttUs / 1000,
      loss: row.lossPermille === null ? null : row.lossPermille / 1000,
      reported_at: formatTime(row.at),
    };
  });
  return { items, total, query };
}

/** The conditions of a list of paths, with the values of their parameters. */
function conditionsOf(orgId: number, query: PathQuery, nodeId?: number, ownerId?: number) {
  const params: (string | number)[] = [orgId];
  let where = ofActiveNodes;
  /** Adds `AND BEGINNING $n END`, unless the value is undefined. */
  const add = (beginning: string, value: string | number | undefined, end = "") => {
    if (value === undefined) return;
    params.push(value);
    where += ` AND ${beginning} $${params.length}${end}`;
  };
  add("lower(n.name) LIKE", query.search === "" ? undefined : searchPattern(query), " ESCAPE '!'");
  add("x.node_id =", nodeId);
  add("n.owner_id =", ownerId);
  add("x.path =", query.path);
  add("x.probe =", query.probe);
  return { where, params };
}

const countedRow = computed({ node: integer(), direct: integer(), relayed: integer(), broken: integer() });
const countIf = (condition: string) => `sum(CASE WHEN ${condition} THEN 1 ELSE 0 END)`;

/** How many paths each node has of each kind, sorted by node. Nodes that reported none are left out. */
export async function countPathsByNode(
  reader: Reader,
  orgId: number,
  query: ListQuery,
  { ownerId, isOnline }: PathScope,
): Promise<Page<PathCounts>> {
  const params = [orgId, ...(ownerId === undefined ? [] : [ownerId])];
  const where = `${ofActiveNodes}${ownerId === undefined ? "" : " AND n.owner_id = $2"}`;
  const total = await queryNumber(reader, `SELECT count(DISTINCT x.node_id) AS n ${where}`, params);
  const { limit, offset } = pageOf(query);
  const away = await awayPeers(reader, orgId, isOnline);
  const rows = await queryAll(
    reader,
    countedRow,
    `SELECT x.node_id AS node,
       ${countIf("x.probe <> 'broken' AND x.path = 'direct'")} AS direct,
       ${countIf("x.probe <> 'broken' AND x.path = 'relayed'")} AS relayed,
       ${countIf(`x.probe = 'broken'${notIn(away, params.length)}`)} AS broken
     ${where} GROUP BY x.node_id ORDER BY x.node_id LIMIT ${limit} OFFSET ${offset}`,
    [...params, ...away],
  );
  // Only for nodes of this page; an empty page gives an empty range.
  const firstNode = rows[0]?.node ?? 0;
  const lastNode = rows.at(-1)?.node ?? -1;
  const relayed = await queryAll(
    reader,
    relayedRow,
    `SELECT ${relayedRow.select("x")} ${where} AND x.probe <> 'broken' AND x.path = 'relayed'
     AND x.node_id BETWEEN ${firstNode} AND ${lastNode}`,
    params,
  );
  const relays = relayed.flatMap((row) => row.relays);
  const areAway = relaysAway(await nodesWith(reader, orgId, relays, isOnline));
  const byNode = Map.groupBy(relayed.filter(areAway), ({ nodeId }) => nodeId);
  const items = rows.map((row) => ({ ...row, relays_away: byNode.get(row.node)?.length ?? 0 }));
  return { items, total, query };
}

const relayedRow = paths.pick("nodeId", "path", "relays", "probe");
type PathThroughRelays = { path: Path["path"]; relays: readonly string[]; probe: Path["probe"] };

/** Whether a path goes over relays that are all away. */
const relaysAway =
  (known: NodesByKey) =>
  ({ path, probe, relays }: PathThroughRelays): boolean =>
    path === "relayed" &&
    probe !== "broken" &&
    relays.length > 0 &&
    relays.every((relay) => known.get(relay)?.isOnline === false);

/** Addresses that `awayPeers` looks at. If more are reported broken, paths to further nodes that are away count as broken. */
const maxAway = 1000;

/**
 * Of the addresses that nodes no longer reach, those of nodes that are away. Paths to them do not count as broken: the one fault is
 * the node that is away, and it is shown as such.
 */
async function awayPeers(reader: Reader, orgId: number, isOnline: IsOnline): Promise<readonly string[]> {
  const sql = `SELECT DISTINCT x.peer ${ofActiveNodes} AND x.probe = 'broken' ORDER BY x.peer LIMIT ${maxAway}`;
  const peers = (await queryAll(reader, paths.pick("peer"), sql, [orgId])).map(({ peer }) => peer);
  const known = await nodesWith(reader, orgId, peers, isOnline);
  return peers.filter((peer) => known.get(peer)?.isOnline === false);
}

/** An SQL condition. `used`: how many parameters come before. */
const notIn = (peers: readonly string[], used: number): string =>
  peers.length === 0 ? "" : ` AND x.peer NOT IN (${places(peers, used + 1)})`;

/** How many peers are shown for each node. The others are only counted. */
const maxPeers = 3;

const brokenRow = computed({ node: integer(), nodeName: text(), peer: text(), n: integer() });

/** Online nodes that do not reach online peers: how many, and the first `limit`. `seenAfter`: ms. */
export async function brokenByNode(
  reader: Reader,
  orgId: number,
  { ownerId, isOnline, seenAfter, limit }: PathScope & { seenAfter: number; limit: number },
): Promise<{ count: number; first: Attention["broken_paths"]["first"] }> {
  const away = await awayPeers(reader, orgId, isOnline);
  const own = [orgId, seenAfter, ...(ownerId === undefined ? [] : [ownerId])];
  const params = [...own, ...away];
  const where = `${ofActiveNodes} AND x.probe = 'broken'${ownerId === undefined ? "" : " AND n.owner_id = $3"}
    AND x.node_id IN (SELECT node_id FROM sightings WHERE last_checkin_at > $2)${notIn(away, own.length)}`;
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
  const addresses = rows.map(({ peer }) => peer);
  const peers = await nodesWith(reader, orgId, addresses, isOnline);
  const first = [...Map.groupBy(rows, ({ node }) => node)].map(([id, found]) => ({
    id,
    name: found[0]?.nodeName ?? "",
    peers: found.map(({ peer }) => peers.get(peer)?.name ?? peer),
    peer_count: found[0]?.n ?? 0,
  }));
  return { count, first };
}

/** Nodes by name, and by each address. */
type NodesByKey = ReadonlyMap<string, { id: number; name: string; isOnline: boolean }>;

/** The active nodes with these addresses, or names: nodes report relays by the one or the other. */
async function nodesWith(
  reader: Reader,
  orgId: number,
  namesOrAddresses: readonly string[],
  isOnline: IsOnline,
): Promise<NodesByKey> {
  const asked = [...new Set(namesOrAddresses)];
  if (asked.length === 0) return new Map();
  const listed = places(asked, 2);
  const rows = await queryAll(
    reader,
    nodeRecord,
    `SELECT ${nodeColumns} FROM ${nodesWithSightings}
     WHERE org_id = $1 AND state = 'active' AND (name IN (${listed}) OR ip IN (${listed}) OR ip6 IN (${listed}))`,
    [orgId, ...asked],
  );
  return new Map(
    rows.flatMap((node) => {
      const found = { id: node.id, name: node.name, isOnline: isOnline(node) };
      return [node.name, node.ip, node.ip6 ?? node.ip].map((key) => [key, found] as const);
    }),
  );
}
