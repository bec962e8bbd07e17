// Tells nodes the underlay addresses of the peers that rules connect them with, in case no lighthouse answers. Kept in memory, from
// what lighthouses and relays report: they tell nodes these addresses anyway. What another node reports of a peer counts only if
// the peer itself calls the control plane from that address. Else one node could direct the packets of others to a victim.

import { defaultOverlayPort } from "../../api/values.ts";
import { joinHostPort, parseUnderlay } from "../../base/ip.ts";
import { maxKeptPeers, maxRemotes, type PathState, type PeerAddresses } from "../../protocol/path-report.ts";
import type { Names } from "../names/names-cache.ts";
import type { Store } from "../options.ts";
import { places, queryAll } from "../store/table.ts";
import { nodes, hubIs } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";
import { isHub } from "../../protocol/routing/roles.ts";

type Deps = Store & { names: Pick<Names, "seen"> };

export type Addresses = {
  /** A node calls the control plane from this address. */
  noteCall(nodeId: number, address: string): void;
  /** A node reports paths to its peers, with their addresses. */
  note(orgId: number, nodeId: number, changed: readonly PathState[]): Promise<void>;
  /** What the node is sent: what changed since this time, ms; 0: everything. */
  news(orgId: number, nodeId: number, since: number): Promise<PeerAddresses>;
};

/** An underlay address and port. `at`: when it changed, ms. */
type Remote = { remote: string; at: number };
/** The remote of each peer, by the peer's overlay address. */
type Remotes = Map<string, Remote>;
/** What is known of an organization. Times: ms since 1970. */
type Known = {
  /** When it was read last; 0: never. */
  readAt: number;
  /** Rows up to this time are in `byHubs`. */
  rowsAt: number;
  /** Public addresses that administrators entered. */
  declared: Remotes;
  /** Reported by lighthouses and relays. */
  byHubs: Remotes;
  /** Reported by other nodes. Only `remotesFor` checks them. */
  byPeers: Remotes;
  /** The newest change; 1 before the first one, since 0 asks for everything. */
  latest: number;
};

const readEveryMs = 10_000;
/** How old a report may be. Nodes repeat reports each hour, so an older one is of a lighthouse or a node that ended. */
const rowsForMs = 7 * 86_400_000;
// Bounds of memory: at each, the map is emptied and fills again.
const maxCalls = 200_000;
const maxOrganizations = 1000;
const maxReported = 50_000;

const specialPick = nodes.pick("id", "ip", "publicIp", "externalPort", "isLighthouse", "isRelay");
const rowPick = paths.pick("peer", "remote", "at");
const peerPick = paths.pick("peer");

export function makeAddresses({ db, system, names }: Deps): Addresses {
  /** Where each node calls from, by its id. */
  const calls = new Map<number, string>();
  /** By organization; `reading`: under way. */
  const kept = new Map<number, Known>();
  const reading = new Map<number, Promise<Known>>();
  const read = async (orgId: number): Promise<Known> => {
    const known = await readKnown(db, orgId, kept.get(orgId), system.now());
    if (kept.size > maxOrganizations) kept.clear();
    kept.set(orgId, known);
    return known;
  };
  const knownOf = async (orgId: number): Promise<Known> => {
    const known = kept.get(orgId);
    if (known !== undefined && Math.abs(system.now() - known.readAt) < readEveryMs) return known;
    return reading.getOrInsertComputed(orgId, () => read(orgId).finally(() => reading.delete(orgId)));
  };

  return {
    noteCall(nodeId, address) {
      if (calls.get(nodeId) === address) return;
      if (calls.size >= maxCalls) calls.clear();
      calls.set(nodeId, address);
    },
    async note(orgId, nodeId, changed) {
      const direct = changed.filter(({ path, remote }) => path === "direct" && remote !== undefined);
      if (direct.length === 0) return;
      const known = await knownOf(orgId);
      const visibleNode = await names.seen(orgId, nodeId);
      const now = system.now();
      for (const { peer, remote = "" } of direct) {
        const node = visibleNode(peer);
        const host = parseUnderlay(remote)?.host;
        if (node === undefined || host === undefined || calls.get(node.id) !== host) continue;
        if (known.byPeers.size >= maxReported) known.byPeers.clear();
        noteRemote(known, known.byPeers, { peer: node.ip, remote, at: now });
      }
    },
    async news(orgId, nodeId, since) {
      const known = await knownOf(orgId);
      const { latest } = known;
      const isWhole = since === 0;
      if (latest <= since) return { since: latest, whole: isWhole, peers: [] };
      const visibleNode = await names.seen(orgId, nodeId);
      const sql = "SELECT peer FROM paths WHERE node_id = $1 ORDER BY peer";
      const ownPeers = (await queryAll(db, peerPick, sql, [nodeId])).map(({ peer }) => peer);
      const remotesOf = (node: Addressed) => remotesFor(known, node, calls.get(node.id), calls.get(nodeId));
      const peers = pickPeers(known, ownPeers, visibleNode, remotesOf).flatMap(([peer, found]) => {
        const isNew = isWhole || found.some(({ at }) => at > since);
        return isNew ? [{ peer, remotes: found.map(({ remote }) => remote) }] : [];
      });
      return { since: latest, whole: isWhole, peers };
    },
  };
}

/** A node with its overlay addresses. */
type Addressed = { id: number; ip: string; ip6: string | null };

/** Notes an address if it has changed. `remotes`: of the three maps of `known`, the one that it belongs to. */
function noteRemote(
  known: Known,
  remotes: Remotes,
  { peer, remote, at }: { peer: string; remote: string; at: number },
): void {
  if (remotes.get(peer)?.remote === remote) return;
  remotes.set(peer, { remote, at });
  known.latest = Math.max(known.latest, at);
}

/** Reads what changed since `before`, and changes that very object; undefined: reads everything. */
async function readKnown(
  db: Deps["db"],
  orgId: number,
  before: Known | undefined,
  now: number,
): Promise<Known> {
  const nothing = { declared: new Map(), byHubs: new Map(), byPeers: new Map() };
  const known: Known = before ?? { readAt: 0, rowsAt: now - rowsForMs, ...nothing, latest: 1 };
  const candidates = await queryAll(
    db,
    specialPick,
    `SELECT ${specialPick.select()} FROM nodes WHERE org_id = $1 AND state = 'active'
       AND (public_ip IS NOT NULL OR ${hubIs()})`,
    [orgId],
  );
  const hubs = candidates.filter(isHub).map(({ id }) => id);
  const declaredNow = new Set<string>();
  for (const { id, ip, publicIp, externalPort } of candidates) {
    // Lighthouses and relays with a public address are in the configuration of every node.
    if (publicIp === null || hubs.includes(id)) continue;
    declaredNow.add(ip);
    const remote = joinHostPort(publicIp, externalPort ?? defaultOverlayPort);
    // What is there at the first read counts as old: a start of the server is no news for all nodes.
    noteRemote(known, known.declared, { peer: ip, remote, at: known.readAt === 0 ? 1 : now });
  }
  // A removed address is no news: nodes ask for all addresses again once a day (kept-peers.ts).
  for (const ip of known.declared.keys()) if (!declaredNow.has(ip)) known.declared.delete(ip);
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

/** At most `maxKeptPeers` peers that the node may see: first those that it has paths to, then those with a declared address. */
function pickPeers(
  { declared, byHubs, byPeers }: Known,
  ownPeers: readonly string[],
  visibleNode: (address: string) => Addressed | undefined,
  remotesOf: (node: Addressed) => Remote[],
): [peer: string, remotes: Remote[]][] {
  const picked = new Map<string, Remote[]>();
  for (const address of [...ownPeers, ...declared.keys(), ...byHubs.keys(), ...byPeers.keys()]) {
    const node = visibleNode(address);
    if (node === undefined || picked.has(node.ip)) continue;
    const remotes = remotesOf(node);
    if (remotes.length > 0) picked.set(node.ip, remotes);
    if (picked.size >= maxKeptPeers) break;
  }
  return [...picked];
}

/**
 * The addresses of a node that another node, the viewer, may get. `from` and `viewerFrom`: where the two call from. A private
 * address only if both call from private addresses.
 */
function remotesFor(
  { declared, byHubs, byPeers }: Known,
  { ip, ip6 }: Addressed,
  from: string | undefined,
  viewerFrom: string | undefined,
): Remote[] {
  const all = [declared, byHubs, byPeers].flatMap((remotes) => {
    const known = remotes.get(ip) ?? (ip6 === null ? undefined : remotes.get(ip6));
    const target = known === undefined ? undefined : parseUnderlay(known.remote);
    if (known === undefined || target === undefined) return [];
    if (remotes === byPeers && target.host !== from) return [];
    if (target.isPrivate && !(isPrivateCall(from) && isPrivateCall(viewerFrom))) return [];
    return [{ remote: joinHostPort(target.host, target.port), at: known.at }];
  });
  return all
    .filter(({ remote }, index) => all.findIndex((each) => each.remote === remote) === index)
    .slice(0, maxRemotes);
}

const isPrivateCall = (address = "") => parseUnderlay(joinHostPort(address, 1))?.isPrivate === true;
