// Keeps underlay addresses of peers, so that nodes find each other while no lighthouse answers, also after a restart: the addresses at
// which a tunnel worked last, and those that the control plane knows. The engine gets them in static_host_map. An address only decides
// where encrypted handshakes go; certificates prove which node answers.

import { given } from "../../../base/given.ts";
import { statSync } from "node:fs";
import * as v from "valibot";
import { messageOf } from "../../../base/errors.ts";
import { isWithin, joinHostPort, parseAddressInNetwork, parseUnderlay } from "../../../base/ip.ts";
import type { Log } from "../../../base/log.ts";
import { maxKeptPeers, maxRemotes, PeerAddresses } from "../../../protocol/path-report.ts";
import type { System } from "../../../base/system.ts";
import { peerMapPath, readPeerMap, type PeerMap } from "../../files/config/peer-map.ts";
import { listenPort } from "../../files/config/read-config.ts";
import { readKeptState, writeKeptState, type KeptPeer, type KeptState } from "./kept-peers-file.ts";

const hourMs = 3_600_000;
/** An address at which no tunnel worked for this time is forgotten. */
const keptMs = 30 * 24 * hourMs;
/** How often all addresses that the control plane knows are requested again. */
const wholeEveryMs = 24 * hourMs;
/** How often the control plane is asked for addresses: the interval is doubled from the first to the longest. */
const firstRequestEveryMs = 30_000;
const longestRequestEveryMs = 600_000;
/** The longest interval of requests while no lighthouse answers. */
const lostRequestEveryMs = 5000;
/** How often the engine's log is read for handshakes. */
const logEveryMs = 300_000;
/** How often a changed state is saved at most. */
const saveEveryMs = 60_000;
/** How often a changed map is applied, since that reloads the engine. Without a lighthouse, and for peers that are gone, it is at once. */
const applyEveryMs = 120_000;
/** A failed step is tried again after this time. */
const retryMs = 60_000;

export type KeptDeps = {
  slug: string;
  directory: string;
  /** Writes the map, rewrites config.yml and reloads the engine. */
  apply(peers: PeerMap): Promise<unknown>;
  /** The UDP ports that the engine has. */
  portsOf(pid: number): number[];
  /** Gives the engine the same port at its next start. */
  keepPort(port: number): Promise<void>;
  /** Addresses of this machine with prefix lengths, without those of the loopback. */
  ownAddresses(): readonly string[];
  /** The machine's own address from which packets to a host leave; undefined without a route. */
  sourceFor(host: string): Promise<string | undefined>;
  monotonic(): number;
  system: Pick<System, "now">;
  log: Pick<Log, "warn">;
};

/** A peer with a tunnel that works. */
export type Working = {
  /** Its overlay address. */
  address: string;
  /** Undefined: relayed. */
  remote: string | undefined;
  /** When it was seen to work, ms since 1970; unset: now. */
  at?: number;
};

/** What refresh() needs of the engine and the organization. */
export type KeptSeen = {
  /** Process id of the engine. */
  pid: number;
  /** The tunnels of an engine that reports them. */
  working: readonly Working[];
  /** Handshakes in the log of an engine that does not report its tunnels. */
  handshakes?: (() => Promise<readonly Working[]>) | undefined;
  /** No lighthouse answers. */
  areLighthousesLost: boolean;
  /** Whether a tunnel with the address is useful. False for this node itself, lighthouses and relays. */
  isPeer(address: string): boolean;
  /** Whether an address is in the overlay. */
  isInside(address: string): boolean;
  /** Which of these peers are revoked, deleted, or not reachable by rules any more. */
  goneAmong(addresses: readonly string[]): string[];
};

export class KeptPeers {
  readonly #deps: KeptDeps;
  /** `#state.peers` is what the file had at the start; later they are in #peers. */
  #state: KeptState;
  /** By overlay address. */
  #peers: Map<string, KeptPeer>;
  /** The state in the file, as JSON. */
  #saved: string;
  /** The map that config.yml has. */
  #applied: PeerMap;
  /** Monotonic ms. */
  #savedAt = Number.NEGATIVE_INFINITY;
  /** The map is not applied before, monotonic ms. */
  #notBefore = Number.NEGATIVE_INFINITY;
  /** The place in the list at which nextToProbe() continues. */
  #turn = 0;
  /** Process id of the engine whose port is kept; 0: of none. */
  #pid = 0;

  constructor(deps: KeptDeps) {
    this.#deps = deps;
    this.#state = readKeptState(deps.directory) ?? {
      since: 0,
      asked_at: 0,
      whole_at: 0,
      log_at: 0,
      every: firstRequestEveryMs,
      peers: [],
    };
    this.#peers = new Map(this.#state.peers.map((each) => [each.peer, each]));
    this.#saved = JSON.stringify(this.#state);
    this.#applied = readPeerMap(deps.directory);
  }

  /** What the next check-in asks: changes since a position, or all addresses with 0. Undefined: it asks nothing. */
  request(areLighthousesLost: boolean): { since: number } | undefined {
    const now = this.#deps.system.now();
    const { asked_at: askedAt, every, since, whole_at: wholeAt } = this.#state;
    // The absolute value: a clock that was set back must not end the requests.
    if (Math.abs(now - askedAt) < (areLighthousesLost ? Math.min(every, lostRequestEveryMs) : every))
      return undefined;
    this.#state.asked_at = now;
    return { since: Math.abs(now - wholeAt) < wholeEveryMs ? since : 0 };
  }

  /** Takes the control plane's answer to a request. An answer that cannot be parsed changes nothing. */
  addAnswer(answer: unknown): void {
    const parsed = v.safeParse(PeerAddresses, answer);
    if (!parsed.success) return;
    const { since, whole, peers } = parsed.output;
    this.#state.since = since;
    this.#state.every = Math.min(longestRequestEveryMs, this.#state.every * 2);
    if (whole) {
      this.#state.whole_at = this.#deps.system.now();
      for (const each of this.#peers.values()) each.told = [];
    }
    for (const { peer, remotes } of peers) this.#entryOf(peer).told = remotes;
  }

  /** Notes working addresses, forgets peers that are gone, and gives the engine the changed map. Does not reject. */
  async refresh(seen: KeptSeen): Promise<void> {
    try {
      await this.#keepPort(seen);
      await this.#addWorking(seen);
      const gone = new Set(seen.goneAmong([...this.#peers.keys(), ...Object.keys(this.#applied)]));
      for (const [peer] of this.#peers) if (gone.has(peer) || !seen.isPeer(peer)) this.#peers.delete(peer);
      this.#trim();
      this.#save({ isUrgent: seen.areLighthousesLost });
      const hasGone = Object.keys(this.#applied).some((peer) => gone.has(peer));
      await this.#apply(seen, { hasGone });
    } catch (error) {
      this.#notBefore = this.#deps.monotonic() + retryMs;
      this.#deps.log.warn("Cannot keep the addresses of peers", {
        team: this.#deps.slug,
        reason: messageOf(error),
      });
    }
  }

  /** The next few of the kept peers, in turn: a probe opens the NAT before this node for the packets of its peer. */
  nextToProbe(most: number): string[] {
    const all = Object.keys(this.#applied);
    const first = this.#turn % Math.max(1, all.length);
    this.#turn = first + most;
    return [...all.slice(first), ...all.slice(0, first)].slice(0, most);
  }

  /** The entry of a peer; a new one if there is none. */
  #entryOf(peer: string): KeptPeer {
    const known = this.#peers.get(peer) ?? { peer, told: [], uses: 0 };
    this.#peers.set(peer, known);
    return known;
  }

  /** Keeps the engine's port if it chose one by itself: other nodes keep the address of this one, with the port. */
  async #keepPort({ pid }: KeptSeen): Promise<void> {
    if (pid === this.#pid) return;
    const [port, ...others] = this.#deps.portsOf(pid);
    // Of several it is not known in which one the engine listens.
    if (port === undefined || others.length > 0) return;
    this.#pid = pid;
    if (listenPort(this.#deps.directory) === 0) await this.#deps.keepPort(port);
  }

  /** Notes where tunnels work now. */
  async #addWorking({ working, handshakes, isPeer, isInside }: KeptSeen): Promise<void> {
    const now = this.#deps.system.now();
    const isLogDue = handshakes !== undefined && Math.abs(now - this.#state.log_at) >= logEveryMs;
    if (isLogDue) this.#state.log_at = now;
    const all = isLogDue ? [...working, ...(await handshakes())] : working;
    // A tunnel to an address of this machine is one by TCP fallback: the peer cannot be found there.
    const ownHosts = new Set(this.#deps.ownAddresses().map((each) => each.replace(/\/\d+$/, "")));
    for (const { address, remote = "", at = now } of all) {
      const place = parseUnderlay(remote);
      if (place === undefined || !isPeer(address) || !isInside(address) || isInside(place.host)) continue;
      if (ownHosts.has(place.host)) continue;
      const kept = this.#entryOf(address);
      const { worked } = kept;
      const hostPort = joinHostPort(place.host, place.port);
      // A later one is known. Not if its time is in the future: then the clock was set back.
      if (worked !== undefined && worked.at > at && worked.at <= now) continue;
      const isNewHour = worked === undefined || Math.floor(worked.at / hourMs) !== Math.floor(at / hourMs);
      if (worked?.remote === hostPort && !isNewHour) continue;
      // In hours, so that a short tunnel that is made again and again does not count more than a lasting one.
      if (isNewHour) kept.uses += 1;
      const from = place.isPrivate ? await this.#deps.sourceFor(place.host) : undefined;
      kept.worked = { remote: hostPort, at, ...given({ from }) };
    }
  }

  /** Forgets old addresses, and keeps the peers that were used most, then those that the control plane sent, in its order. */
  #trim(): void {
    const now = this.#deps.system.now();
    for (const [peer, each] of this.#peers) {
      if (each.worked !== undefined && now - each.worked.at > keptMs) delete each.worked;
      if (each.worked === undefined && each.told.length === 0) this.#peers.delete(peer);
    }
    const ranked = [...this.#peers.values()].toSorted(
      (a, b) => b.uses - a.uses || (b.worked?.at ?? 0) - (a.worked?.at ?? 0),
    );
    this.#peers = new Map(ranked.slice(0, maxKeptPeers).map((each) => [each.peer, each]));
  }

  /** Saves a changed state: at once if it is urgent, else every saveEveryMs. */
  #save({ isUrgent }: { isUrgent: boolean }): void {
    const now = this.#deps.monotonic();
    const next = JSON.stringify({ ...this.#state, peers: [...this.#peers.values()] });
    if (next === this.#saved || (!isUrgent && now - this.#savedAt < saveEveryMs)) return;
    this.#savedAt = now;
    writeKeptState(this.#deps.directory, next);
    this.#saved = next;
  }

  /** Writes the map if it has changed, and has the engine reload. `hasGone`: the applied map has a peer that is gone. */
  async #apply({ areLighthousesLost, isInside }: KeptSeen, { hasGone }: { hasGone: boolean }): Promise<void> {
    const { apply, directory, monotonic, system } = this.#deps;
    if (monotonic() < this.#notBefore) return;
    const map = this.#makeMap(isInside);
    if (Bun.deepEquals(map, this.#applied)) return;
    const writtenAt = statSync(peerMapPath(directory), { throwIfNoEntry: false })?.mtimeMs ?? 0;
    // By the time of the file, which also holds after a restart of this process.
    const isRecent = Math.abs(system.now() - writtenAt) < applyEveryMs;
    if (isRecent && !areLighthousesLost && !hasGone) return;
    this.#notBefore = monotonic() + retryMs;
    await apply(map);
    // The file is as before if the configuration takes no changes now (rewriteConfig).
    this.#applied = readPeerMap(directory);
    // After a success, the next change need not wait for retryMs.
    if (Bun.deepEquals(map, this.#applied)) this.#notBefore = Number.NEGATIVE_INFINITY;
  }

  /**
   * The map for the engine. A private address means another machine in each network. So one that worked is used only while this
   * machine has the same address as then, and one that the control plane sent only if it lies in a network of this machine.
   */
  #makeMap(isInside: (address: string) => boolean): PeerMap {
    const own = this.#deps.ownAddresses();
    const addresses = new Set(own.map((each) => each.replace(/\/\d+$/, "")));
    const networks = own.flatMap((each) => parseAddressInNetwork(each) ?? []);
    /** `isHere`: whether a private address means the same machine as where it was noted. */
    const isUsable = (remote: string, isHere: (privateHost: string) => boolean) => {
      const place = parseUnderlay(remote);
      if (place === undefined || isInside(place.host)) return false;
      return !place.isPrivate || isHere(place.host);
    };
    const entries = [...this.#peers.values()].map(({ peer, worked, told }): [string, string[]] => {
      const hasSameAddress = () => addresses.has(worked?.from ?? "");
      const proven = worked !== undefined && isUsable(worked.remote, hasSameAddress) ? [worked.remote] : [];
      const sent = told.filter((remote) => isUsable(remote, (host) => isWithin(host, networks)));
      return [peer, [...new Set([...proven, ...sent])].slice(0, maxRemotes)];
    });
    return Object.fromEntries(entries.filter(([, remotes]) => remotes.length > 0));
  }
}
