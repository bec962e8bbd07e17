// Answers peers over the overlay, on nodes that their organization made name servers: on port 53 of the node's overlay
// addresses, from the names that the asking node may see. Only where root allowed it: `agent names --on --peers`.

import { networkInterfaces } from "node:os";
import { brand } from "../../brand.ts";
import { messageOf } from "../../base/errors.ts";
import { isWithin, parseNetworks } from "../../base/ip.ts";
import type { System } from "../../base/system.ts";
import type { Zone } from "./name-records.ts";
import type { LoadedNames } from "./names-reader.ts";
import type { PackedNames } from "./packed-names.ts";
import { openSockets, type HostPort } from "./resolver.ts";
import type { PeerService } from "./service-state.ts";
import { indexForPeers, type NameIndex } from "./name-index.ts";

const dnsPort = 53;
/** After a failure, ms: another program has the port. */
const afterFailureMs = 10_000;
/** Queries of one address in one second. */
const perAddress = 100;
/** Queries of all addresses in one second: the machine's own programs must still be answered. */
const perSecond = 2000;
/** Addresses that are counted in one second. */
const maxCounted = 4096;

/** One overlay address that is answered at. `failed`: why it could not be opened, and when, monotonic ms. */
type Server = {
  slug: string;
  indexFor: (from: string) => NameIndex | undefined;
  sockets?: { close(): void };
  failed?: { at: number; reason: string };
};
type Deps = Pick<System, "monotonic"> & {
  // Parts that tests replace.
  port?: number;
  /** Whether the zone's interface has this address with its prefix length. */
  isPresent?: (zone: Zone, ownAddress: string) => boolean;
  open?: typeof openSockets;
};

/** `networks`: where the unit may exchange packets; undefined: root has not allowed it to answer peers. */
export function makePeerServers(
  networks: readonly string[] | undefined,
  { monotonic, port = dnsPort, isPresent = hasAddress, open = openSockets }: Deps,
) {
  /** By overlay address. */
  const servers = new Map<string, Server>();
  const allowance = makeAllowance(monotonic);
  /** The names that are answered from. */
  let used: LoadedNames | undefined;

  const start = async (server: Server, place: HostPort): Promise<void> => {
    if (server.sockets !== undefined) return;
    if (server.failed !== undefined && monotonic() - server.failed.at < afterFailureMs) return;
    try {
      server.sockets = await open((from) => (allowance(from) ? server.indexFor(from) : undefined), place);
      delete server.failed;
    } catch (error) {
      server.failed = { at: monotonic(), reason: messageOf(error) };
    }
  };
  /** `ownAddress`: of this node, with the prefix length of its network. */
  const serveAddress = async (
    zone: Zone,
    ownAddress: string,
    { hasNewNames }: { hasNewNames: boolean },
  ): Promise<PeerService> => {
    const [address = ""] = ownAddress.split("/");
    const about = { slug: zone.slug, address };
    const refusal = whyNotAnswered(zone, address, networks);
    if (refusal !== undefined) return { ...about, state: "off", reason: refusal };
    const known = servers.get(address);
    const server = known ?? { slug: zone.slug, indexFor: () => undefined };
    // Sockets stay open while the engine starts again: they answer as soon as the address is back.
    if (server.sockets === undefined && !isPresent(zone, ownAddress))
      return { ...about, state: "waiting", reason: "its interface does not exist" };
    if (hasNewNames || known === undefined || server.slug !== zone.slug) {
      server.slug = zone.slug;
      server.indexFor = indexForPeers(used?.names ?? nothing, zone);
    }
    servers.set(address, server);
    await start(server, { host: address, port });
    return server.failed === undefined
      ? { ...about, state: "served" }
      : { ...about, state: "failed", reason: server.failed.reason };
  };
  return {
    /** Checks interfaces and sockets once; call it again soon. Never throws. */
    async serve(known: LoadedNames): Promise<PeerService[]> {
      const hasNewNames = used !== known;
      used = known;
      const states: PeerService[] = [];
      for (const zone of known.zones.filter(({ peers }) => peers !== undefined)) {
        for (const each of zone.addresses) states.push(await serveAddress(zone, each, { hasNewNames }));
      }
      const kept = new Set(states.flatMap(({ state, address }) => (state === "off" ? [] : [address])));
      for (const [address, server] of servers) {
        if (kept.has(address)) continue;
        server.sockets?.close();
        servers.delete(address);
      }
      return states;
    },
    close() {
      for (const { sockets } of servers.values()) sockets?.close();
      servers.clear();
    },
  };
}

const nothing: Pick<PackedNames, "named" | "at"> = { named: () => undefined, at: () => [] };

/** Why peers are not answered at an address; undefined: they are. */
function whyNotAnswered(
  { slug, peers }: Zone,
  address: string,
  networks: readonly string[] | undefined,
): string | undefined {
  if (networks === undefined) return `root has not allowed it: sudo ${brand.executable} names --on --peers`;
  if (!isWithin(address, parseNetworks(networks)))
    return `the unit was installed before this node had this network: sudo ${brand.executable} names --on --peers`;
  if (peers?.too_many === true)
    return `the rules of ${slug} make too many kinds of nodes: \`${brand.executable} admin org update ${slug} --names all\` lets it answer`;
  return undefined;
}

/** Whether the engine's own interface has the address: nothing is answered at an address of another interface. */
function hasAddress({ device }: Zone, ownAddress: string): boolean {
  return (networkInterfaces()[device ?? ""] ?? []).some(({ cidr }) => cidr === ownAddress);
}

/** Returns what tells whether a query of an address is answered now, and counts it. `now`: ms of a clock that is never set. */
export function makeAllowance(now: () => number): (from: string) => boolean {
  /** The second that is counted, since the start of the clock. */
  let second = 0;
  let total = 0;
  const counts = new Map<string, number>();
  return (from) => {
    const currentSecond = Math.floor(now() / 1000);
    if (currentSecond !== second) {
      second = currentSecond;
      total = 0;
      counts.clear();
    }
    const count = counts.get(from) ?? 0;
    if (count >= perAddress || (count === 0 && counts.size >= maxCounted)) return false;
    counts.set(from, count + 1);
    // One address that asks too often takes nothing from the others.
    return ++total <= perSecond;
  };
}
