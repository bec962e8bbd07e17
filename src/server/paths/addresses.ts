// Tells nodes the underlay addresses of the peers that rules connect them with, for the time without a lighthouse. In memory,
// from what lighthouses and relays report: they tell nodes these addresses anyway. What any other node reports of a peer
// counts only if the peer itself calls the control plane from that address: else one node could send others to a victim.

import { defaultOverlayPort } from "../../api/values.ts";
import { joinHostPort, parseUnderlay } from "../../base/ip.ts";
import { maxKeptPeers, maxRemotes, type PathState, type PeerAddresses } from "../../protocol/path-report.ts";
import type { Names } from "../names/names-cache.ts";
import type { ServerOptions } from "../options.ts";
import { places, queryAll } from "../store/table.ts";
import { nodes, hubIs } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";
import { isHub } from "../../protocol/routing/roles.ts";

type Deps = Pick<ServerOptions, "db" | "system"> & { names: Pick<Names, "seen"> };

export type Addresses = {
  noteCall(nodeId: number, address: string): void;
  /** A node reports its peers' addresses. */
  note(orgId: number, nodeId: number, changed: readonly PathState[]): Promise<void>;
  /** Sends what changed since this time, ms; 0: everything. */
  news(orgId: number, nodeId: number, since: number): Promise<PeerAddresses>;
};

/** `at`: when it changed, ms. */
type Place = { remote: string; at: number };
/** By overlay address. */
type Places = Map<string, Place>;
type Known = {
  /** ms since 1970; 0: never. */
  readAt: number;
  /** Rows up to this time are in `byHubs`. */
  rowsAt: number;
  /** Public addresses that administrators entered. */
  declared: Places;
  byHubs: Places;
  byPeers: Places;
  /** The newest change. */
  latest: number;
};

const readEveryMs = 10_000;
/** Reports come again each hour, so an older one is of a lighthouse that ended, or of a node that left. */
const rowsForMs = 7 * 86_400_000;
const mostNodes = 200_000;
const mostOrganizations = 1000;
const mostReported = 50_000;

const specialPick = nodes.pick("id", "ip", "publicIp", "externalPort", "isLighthouse", "isRelay");
const rowPick = paths.pick("peer", "remote", "at");
const peerPick = paths.pick("peer");

export function makeAddresses({ db, system, names }: Deps): Addresses {
  /** By node. */
  const calls = new Map<number, string>();
  const kept = new Map<number, Known>();
  const reading = new Map<number, Promise<Known>>();
  const read = async (orgId: number): Promise<Known> => {
    const known = await readKnown(db, orgId, kept.get(orgId), system.now());
    if (kept.size > mostOrganizations) kept.clear();
    kept.set(orgId, known);
    return known;
  };
  const knownOf = async (orgId: number): Promise<Known> => {
    const known = kept.get(orgId);
    if (known !== undefined && Math.abs(system.now() - known.readAt) < readEveryMs) return known;
    const begun = reading.get(orgId) ?? read(orgId).finally(() => reading.delete(orgId));
    reading.set(orgId, begun);
    return begun;
  };

  return {
    noteCall(nodeId, address) {
      if (calls.get(nodeId) === address) return;
      if (calls.size >= mostNodes) calls.clear();
      calls.set(nodeId, address);
    },
    async note(orgId, nodeId, changed) {
      const direct = changed.filter(({ path, remote }) => path === "direct" && remote !== undefined);
      if (direct.length === 0) return;
      const [known, seen] = [await knownOf(orgId), await names.seen(orgId, nodeId)];
      const now = system.now();
      for (const { peer, remote = "" } of direct) {
        const node = seen(peer);
        const host = parseUnderlay(remote)?.host;
        if (node === undefined || host === undefined || calls.get(node.id) !== host) continue;
        if (known.byPeers.size >= mostReported) known.byPeers.clear();
        noteRemote(known, known.byPeers, { peer: node.ip, remote, at: now });
      }
    },
    async news(orgId, nodeId, since) {
      const known = await knownOf(orgId);
      const { latest } = known;
      const isWhole = since === 0;
      if (latest <= since) return { since: latest, whole: isWhole, peers: [] };
      const seen = await names.seen(orgId, nodeId);
      const sql = "SELECT peer FROM paths WHERE node_id = $1 ORDER BY peer";
      const own = (await queryAll(db, peerPick, sql, [nodeId])).map(({ peer }) => peer);
      const remotesOf = (node: Addressed) => remotesFor(known, node, calls.get(node.id), calls.get(nodeId));
      const peers = pickPeers(known, own, seen, remotesOf).flatMap(([peer, places]) => {
        const isNew = isWhole || places.some(({ at }) => at > since);
        return isNew ? [{ peer, remotes: places.map(({ remote }) => remote) }] : [];
      });
      return { since: latest, whole: isWhole, peers };
    },
  };
}

type Addressed = { id: number; ip: string; ip6: string | null };

function noteRemote(
  known: Known,
  places: Places,
  { peer, remote, at }: { peer: string; remote: string; at: number },
): void {
  if (places.get(peer)?.remote === remote) return;
  places.set(peer, { remote, at });
  known.latest = Math.max(known.latest, at);
}

/** Reads what changed since `before`. */
async function readKnown(
  db: Deps["db"],
  orgId: number,
  before: Known | undefined,
  now: number,
): Promise<Known> {
  const nothing = { declared: new Map(), byHubs: new Map(), byPeers: new Map() };
  const known: Known = before ?? { readAt: 0, rowsAt: now - rowsForMs, ...nothing, latest: 1 };
  const special = await queryAll(
    db,
    specialPick,
    `SELECT ${specialPick.select()} FROM nodes WHERE org_id = $1 AND state = 'active'
       AND (public_ip IS NOT NULL OR ${hubIs()})`,
    [orgId],
  );
  const hubs = special.filter(isHub).map(({ id }) => id);
  const declared = new Set<string>();
  for (const { id, ip, publicIp, externalPort } of special) {
    // Nodes have hubs with a public address in their configuration.
    if (publicIp === null || hubs.includes(id)) continue;
    declared.add(ip);
    const remote = joinHostPort(publicIp, externalPort ?? defaultOverlayPort);
    noteRemote(known, known.declared, { peer: ip, remote, at: known.readAt === 0 ? 1 : now });
  }
  for (const ip of known.declared.keys()) if (!declared.has(ip)) known.declared.delete(ip);
  const sql = `SELECT ${rowPick.select()} FROM paths WHERE org_id = $1 AND at > $2 AND node_id IN (${places(hubs, 3)})
    AND path = 'direct' AND remote IS NOT NULL ORDER BY at`;
  const rows = hubs.length === 0 ? [] : await queryAll(db, rowPick, sql, [orgId, known.rowsAt, ...hubs]);
  for (const { peer, remote, at } of rows) {
    noteRemote(known, known.byHubs, { peer, remote: remote ?? "", at });
    known.rowsAt = Math.max(known.rowsAt, at);
  }
  known.readAt = now;
  return known;
}

/** At most 256 peers that the node sees: those that it has paths to, those with a declared address, then others. */
function pickPeers(
  { declared, byHubs, byPeers }: Known,
  own: readonly string[],
  seen: (address: string) => Addressed | undefined,
  remotesOf: (node: Addressed) => Place[],
): [peer: string, places: Place[]][] {
  const picked = new Map<string, Place[]>();
  for (const address of [...own, ...declared.keys(), ...byHubs.keys(), ...byPeers.keys()]) {
    const node = seen(address);
    if (node === undefined || picked.has(node.ip)) continue;
    const places = remotesOf(node);
    if (places.length > 0) picked.set(node.ip, places);
    if (picked.size >= maxKeptPeers) break;
  }
  return [...picked];
}

/**
 * The addresses of a node that another node may get; `from` and `viewer`: where the two call from. A private address
 * only if both call from private addresses.
 */
function remotesFor(
  { declared, byHubs, byPeers }: Known,
  { ip, ip6 }: Addressed,
  from: string | undefined,
  viewer: string | undefined,
): Place[] {
  const all = [declared, byHubs, byPeers].flatMap((places) => {
    const place = places.get(ip) ?? (ip6 === null ? undefined : places.get(ip6));
    const at = place === undefined ? undefined : parseUnderlay(place.remote);
    if (place === undefined || at === undefined) return [];
    if (places === byPeers && at.host !== from) return [];
    if (at.isPrivate && !(isPrivateCall(from) && isPrivateCall(viewer))) return [];
    return [{ remote: joinHostPort(at.host, at.port), at: place.at }];
  });
  return all
    .filter(({ remote }, at) => all.findIndex((each) => each.remote === remote) === at)
    .slice(0, maxRemotes);
}

const isPrivateCall = (address = "") => parseUnderlay(joinHostPort(address, 1))?.isPrivate === true;
