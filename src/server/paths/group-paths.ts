// Reads nodes and paths for their sums by group (group-sums.ts), in slices. The sums are kept fifty times as long as they took, so
// that any number of open consoles costs at most a fiftieth of a processor.

import { mapGroup } from "../../protocol/shown-groups.ts";
import { inSlices, makeHeavyWork, nextRound } from "../http/heavy-work.ts";
import type { Store } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { isConfigured, isOnline } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { readConfigVersion } from "../store/versions.ts";
import { computed, integerOrNull, joined, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";
import {
  broken,
  kindNames,
  relayed,
  sumsOf,
  type FoundNodes,
  type FoundEdges,
  type Sums,
} from "./group-sums.ts";
import { isHub } from "../../protocol/routing/roles.ts";

/** `changes`: the open polls of this server, by which a node also counts as online. */
type Deps = Store & { changes: Parameters<typeof isOnline>[2] };

export type GroupPathSums = {
  /** `ownerId`: a member, who sees the paths of their own nodes. */
  of(orgId: number, ownerId: number | undefined): Promise<Sums>;
};

/** Rows of one query: few enough that check-ins do not wait for it. */
const sliceSize = 500;
/** A value is kept for so many times what it took to read, but at most for `longestKeptMs`. */
const keptTimes = 50;
const longestKeptMs = 15_000;
const maxKept = 64;

export function makeGroupPaths({ db, system, changes }: Deps): GroupPathSums {
  const cachedNodes = makeCache<FoundNodes>(system);
  const cachedSums = makeCache<Sums>(system);
  const inTurn = makeHeavyWork({ perCaller: 2, perOwner: 256 });
  const compute = async (orgId: number, ownerId: number | undefined) => {
    const now = system.now();
    const isNodeOnline = (node: NodeFound) => isOnline({ ...node, state: "active" }, now, changes);
    const found = await cachedNodes(`${orgId}`, () => readNodes(db, orgId, isNodeOnline));
    const edges = await readEdges(db, orgId, found, ownerId);
    return inSlices(sumsOf(found, edges, now));
  };
  return {
    of(orgId, ownerId) {
      const caller = `${orgId}/${ownerId ?? ""}`;
      return cachedSums(caller, () => inTurn({ owner: orgId, caller }, () => compute(orgId, ownerId)));
    },
  };
}

/** Callers of one key share a read, which is kept as long as `keptTimes` says from its end on. A read that failed is not kept. */
function makeCache<T>({ monotonic }: Pick<Deps["system"], "monotonic">) {
  const kept = new Map<string, { until: number; value: Promise<T> }>();
  return (key: string, read: () => Promise<T>): Promise<T> => {
    const now = monotonic();
    // `monotonic` may be a clock of tests; how long the read takes is real time.
    const began = performance.now();
    for (const [each, { until }] of kept) if (until < now) kept.delete(each);
    const known = kept.get(key);
    if (known !== undefined) return known.value;
    if (kept.size >= maxKept) kept.delete(kept.keys().next().value ?? "");
    const entry = { until: Number.POSITIVE_INFINITY, value: read() };
    kept.set(key, entry);
    const setEnd = () => {
      entry.until = monotonic() + Math.min(longestKeptMs, keptTimes * (performance.now() - began));
    };
    entry.value.then(setEnd, () => void (kept.get(key) === entry && kept.delete(key)));
    return entry.value;
  };
}

const nodePick = nodes.pick(
  "id",
  "orgId",
  "name",
  "ip",
  "ip6",
  "groups",
  "ownerGroups",
  "ownerId",
  "phone",
  "isLighthouse",
  "isRelay",
  "subnets",
  "exitGroups",
  "ownVersion",
);
const seenPick = joined(
  "n",
  nodePick,
  "s",
  computed({ lastCheckinAt: integerOrNull(), applied: integerOrNull() }),
);
type NodeFound = ReturnType<typeof seenPick.parse>;
const nodeSlice = `SELECT ${nodePick.select()}, last_checkin_at, applied_config_version AS applied
  FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' AND id > $2 ORDER BY id LIMIT ${sliceSize}`;

async function readNodes(
  reader: Reader,
  orgId: number,
  isNodeOnline: (node: NodeFound) => boolean,
): Promise<FoundNodes> {
  const found: FoundNodes = { all: [], byId: new Map(), byAddress: new Map(), away: new Set() };
  const newest = await readConfigVersion(reader, orgId);
  for (let last = 0; ;) {
    const rows = await queryAll(reader, seenPick, nodeSlice, [orgId, last]);
    for (const row of rows) {
      const index = found.all.length;
      found.byId.set(row.id, index);
      const addresses = [row.ip, row.ip6].filter((address) => address !== null);
      for (const address of addresses) found.byAddress.set(address, index);
      const isOnlineNow = isNodeOnline(row);
      if (!isOnlineNow) for (const nameOrAddress of [row.name, ...addresses]) found.away.add(nameOrAddress);
      found.all.push({
        id: row.id,
        name: row.name,
        group: mapGroup({ groups: row.groups, owner_groups: row.ownerGroups }),
        ownerId: row.ownerId,
        isOnline: isOnlineNow,
        isCurrent: (row.applied ?? 0) >= Math.max(row.ownVersion, newest),
        isPhone: row.phone !== null,
        isConfigured: isConfigured(row),
        isHub: isHub(row),
        isLighthouse: row.isLighthouse,
      });
      last = row.id;
    }
    if (rows.length < sliceSize) return found;
    await nextRound();
  }
}

const pathPick = paths.pick("nodeId", "peer", "path", "relays", "probe", "rttUs");
/** After the path of node $2 to peer $3, up to node $4. */
const pathSlice = `SELECT ${pathPick.select()} FROM paths
  WHERE org_id = $1 AND (node_id, peer) > ($2, $3) AND node_id <= $4 ORDER BY node_id, peer LIMIT ${sliceSize}`;
type PathFound = ReturnType<typeof pathPick.parse>;

async function readEdges(
  reader: Reader,
  orgId: number,
  found: FoundNodes,
  ownerId: number | undefined,
): Promise<FoundEdges> {
  const result: FoundEdges = {
    edges: new Map(),
    worst: new Uint8Array(found.all.length),
    cut: new Set(),
  };
  const all = [{ from: 0, to: found.all.at(-1)?.id ?? 0 }];
  // A member's own nodes are few, and each is read alone.
  const own = found.all.filter((node) => node.ownerId === ownerId).map(({ id }) => ({ from: id, to: id }));
  /** Of ids, both inclusive. */
  const ranges = ownerId === undefined ? all : own;
  for (const { from, to } of ranges) {
    let after = { nodeId: from, peer: "" };
    for (;;) {
      const rows = await queryAll(reader, pathPick, pathSlice, [orgId, after.nodeId, after.peer, to]);
      for (const row of rows) addEdge(result, found, row);
      await nextRound();
      const last = rows.at(-1);
      if (last === undefined || rows.length < sliceSize) break;
      after = last;
    }
  }
  return result;
}

/**
 * Both ends report a path: the worse report counts, and the longer round trip. A kind is a number, the worse the higher (kindNames).
 * These reports do not count: those of nodes that are away, that a peer which is away is not reached, and paths over relays that are
 * all away.
 */
function addEdge(
  { edges, worst, cut }: FoundEdges,
  { all, byId, byAddress, away }: FoundNodes,
  row: PathFound,
): void {
  const [from, to] = [byId.get(row.nodeId), byAddress.get(row.peer)];
  if (from === undefined || to === undefined || from === to) return;
  if (all[from]?.isOnline !== true) return;
  const kind = row.probe === "broken" ? broken : kindNames.findIndex((name) => name === row.path);
  // A path that is `none` or `unknown` has no kind.
  if (kind < 0) return;
  if (kind === broken && all[to]?.isOnline !== true) return;
  const [a, b] = [Math.min(from, to), Math.max(from, to)];
  const key = a * all.length + b;
  const areRelaysAway = row.relays.length > 0 && row.relays.every((relay) => away.has(relay));
  if (areRelaysAway && kind === relayed) {
    cut.add(key);
    return;
  }
  worst[from] = Math.max(worst[from] ?? 0, kind);
  const rtt = row.rttUs === null ? Number.NaN : row.rttUs / 1000;
  const known = edges.get(key);
  if (known === undefined) {
    edges.set(key, { a, b, kind, reporter: from, rtt });
    return;
  }
  if (kind > known.kind) [known.kind, known.reporter] = [kind, from];
  if (Number.isNaN(known.rtt) || rtt > known.rtt) known.rtt = rtt;
}
