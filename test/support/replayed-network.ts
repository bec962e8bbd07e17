// A network of engines that is simulated on a clock of its own, seen by the real health of one node: days of lights in
// seconds. The engine behaves as 1.12 was measured: it tests a tunnel every 5 s while packets are sent and none come, leaves
// it 10 s later, shakes hands for the next packet, and a lighthouse hears of each node every 10 s.

import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { EngineTunnel } from "../../src/node/health/tunnels.ts";
import { OrganizationHealth, type HealthDeps } from "../../src/node/health/organization-health.ts";
import { currentGeneration } from "../../src/node/files/generations.ts";
import { writeHosts } from "../../src/node/files/hosts.ts";
import type { Organization } from "../../src/node/files/organizations.ts";
import { unreachedNetworks } from "../../src/node/routing/router-file.ts";
import { linkPointer } from "../../src/platform/generation-pointer.ts";
import type { EchoReply, OpenEcho } from "../../src/platform/network/echo-socket.ts";

export type Peer = {
  name: string;
  address: string;
  isOn: boolean;
  /** Packets to it, and packets from it, are lost in the underlay. */
  losesTo: boolean;
  losesFrom: boolean;
  refusesIcmp: boolean;
  /** Of an ICMP packet with its headers. */
  largest: number;
  isListed: boolean;
};

type Simulated = { index: number; counter: number; sentAt: number; heardAt: number };

const [testEveryMs, leaveAfterMs, rttMs, reportEveryMs] = [5000, 10_000, 20, 10_000];

export class ReplayedNetwork {
  now = 1_000_000;
  readonly peers: Peer[];
  readonly place: Organization;
  readonly isLighthouse: boolean;
  isRunning = true;
  /** How many echo requests were sent, and how many of them of over 1,000 bytes. */
  packets = 0;
  largePackets = 0;
  startedAt = this.now;
  /** False: an engine below 1.12. */
  reports = true;
  /** False: its report has no certificates, so that names are known from hosts.json alone. */
  namesPeers = true;
  readonly #timers: { at: number; wake(): void }[] = [];
  readonly #tunnels = new Map<string, Simulated>();
  #index = 0;
  readonly #config: object;
  #reportAt = 0;

  constructor(place: Organization, names: readonly string[], isLighthouse = false) {
    this.place = place;
    this.isLighthouse = isLighthouse;
    this.peers = names.map((name, at) => ({
      name,
      address: `10.77.0.${100 + at}`,
      isOn: true,
      losesTo: false,
      losesFrom: false,
      refusesIcmp: false,
      largest: 1500,
      isListed: true,
    }));
    mkdirSync(place.directory, { recursive: true });
    const [hub] = this.peers;
    const lighthouse = isLighthouse
      ? { am_lighthouse: true, hosts: [] }
      : { hosts: hub === undefined ? [] : [hub.address] };
    this.#config = { lighthouse };
    writeFileSync(join(place.directory, "config.yml"), JSON.stringify(this.#config));
    this.list();
  }

  /** Writes the names that the node has. */
  list(): void {
    const { config, directory } = this.place;
    const own = { id: config.node_id, name: config.name, ip: config.ip_address };
    const nodes = this.peers
      .filter(({ isListed }) => isListed)
      .map(({ name, address }, at) => ({ id: 100 + at, name, ip: address }));
    writeHosts(directory, { schema: 1, version: this.now, view: "all", nodes: [own, ...nodes], aliases: [] });
  }

  /** Another configuration is in force. */
  switchTo(config: object): void {
    const { directory } = this.place;
    const present = currentGeneration(directory) ?? "";
    const next = String(Number(present) + 1);
    const generations = join(directory, "generations");
    cpSync(join(generations, present), join(generations, next), { recursive: true });
    writeFileSync(join(generations, next, "config.yml"), JSON.stringify(config));
    linkPointer.set(directory, next);
  }

  /** The node reaches a subnet through peers. */
  route(network: string, routers: readonly string[]): void {
    const via = routers.map((name) => ({ gateway: this.peer(name).address, weight: 1 }));
    this.switchTo({ ...this.#config, tun: { unsafe_routes: [{ route: network, via }] } });
  }

  peer(name: string): Peer {
    const found = this.peers.find((each) => each.name === name);
    if (found === undefined) throw new Error(`No peer ${name}`);
    return found;
  }

  readonly open: OpenEcho = async (_, onReply: (reply: EchoReply) => void) => ({
    send: (to, sequence, payload) => {
      const peer = this.peers.find(({ address }) => address === to);
      if (peer === undefined || !this.isRunning) return true;
      const { tunnel } = this.#send(peer);
      this.packets += 1;
      if (payload.length > 1000) this.largePackets += 1;
      const passes = tunnel !== undefined && this.#isReached(peer) && !peer.refusesIcmp;
      const isSmall = payload.length + 28 <= peer.largest;
      if (passes && isSmall && !peer.losesFrom)
        this.#at(this.now + rttMs, () => {
          tunnel.heardAt = this.now;
          onReply({ sequence, payload });
        });
      return true;
    },
    close() {},
  });

  /** What the daemon of this node would watch. */
  watch(more: Partial<HealthDeps> = {}): OrganizationHealth {
    return new OrganizationHealth(this.place, {
      system: {
        now: () => Date.parse("2026-11-21T12:00:00Z") + this.now,
        sleep: this.sleep,
        random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
      },
      monotonic: () => this.now,
      open: this.open,
      engine: async () =>
        this.isRunning
          ? { pid: 1, version: this.reports ? "1.12.0" : "1.6.1", ageMs: this.now - this.startedAt }
          : undefined,
      tunnels: async () => (this.reports ? this.#hostmap() : undefined),
      disk: () => undefined,
      unreached: () => unreachedNetworks(this.place.directory),
      recentLog: async () => [],
      ...more,
    });
  }

  readonly sleep = (ms: number, signal?: AbortSignal): Promise<void> => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    if (signal?.aborted) reject(new Error("Aborted"));
    this.#at(this.now + ms, resolve);
    signal?.addEventListener("abort", () => reject(new Error("Aborted")), { once: true });
    return promise;
  };

  /** Lets time pass, second by second, with a look at each. */
  async pass(ms: number, each: () => void = () => undefined): Promise<void> {
    // Simulated time must not pass while the health loads it.
    await import("../../src/node/health/configured-facts.ts");
    const end = this.now + ms;
    let lookAt = this.now + 1000;
    while (this.now < end) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      this.#timers.sort((a, b) => a.at - b.at);
      const next = Math.min(end, lookAt, this.#timers[0]?.at ?? end);
      this.now = Math.max(this.now, next);
      for (const due of this.#timers.splice(0, this.#timers.findIndex(({ at }) => at > this.now) >>> 0))
        due.wake();
      if (this.now < lookAt) continue;
      lookAt += 1000;
      this.#work();
      each();
    }
  }

  /** A shake of hands that the peer's side begins, as after its restart. */
  restart(name: string): void {
    this.#tunnels.delete(this.peer(name).address);
  }

  /** Packets of a user. */
  talk(name: string, packets: number): void {
    for (let at = 0; at < packets; at++) this.#send(this.peer(name));
  }

  closeTunnel(address: string): boolean {
    return this.#tunnels.delete(address);
  }

  #at(at: number, wake: () => void): void {
    this.#timers.push({ at, wake });
  }

  #isReached({ isOn, losesTo }: Peer): boolean {
    return isOn && !losesTo;
  }

  /** A packet of this node: makes a tunnel if packets pass both ways. */
  #send(peer: Peer): { tunnel: Simulated | undefined } {
    let tunnel = this.#tunnels.get(peer.address);
    if (tunnel === undefined && this.#isReached(peer) && !peer.losesFrom) {
      tunnel = { index: (this.#index += 1), counter: 0, sentAt: 0, heardAt: this.now };
      this.#tunnels.set(peer.address, tunnel);
    }
    if (tunnel !== undefined) {
      tunnel.counter += 1;
      tunnel.sentAt = this.now;
    }
    return { tunnel };
  }

  /** What engines do by themselves. */
  #work(): void {
    for (const [address, tunnel] of this.#tunnels) {
      const peer = this.peers.find((each) => each.address === address);
      const isAlive = peer !== undefined && this.#isReached(peer) && !peer.losesFrom;
      // The engine's own test is answered by the peer's engine, whatever its firewall says.
      if (isAlive && this.now - tunnel.heardAt >= testEveryMs) tunnel.heardAt = this.now;
      const isUsed = tunnel.sentAt > tunnel.heardAt;
      if (isUsed && this.now - tunnel.heardAt > testEveryMs + leaveAfterMs) this.#tunnels.delete(address);
    }
    if (this.now < this.#reportAt || !this.isRunning) return;
    this.#reportAt = this.now + reportEveryMs;
    const [hub] = this.peers;
    // Nodes report to a lighthouse, so packets of theirs make the tunnels; a node reports to its own.
    for (const peer of this.isLighthouse ? this.peers : hub === undefined ? [] : [hub]) {
      if (!this.isLighthouse) this.#send(peer);
      else if (peer.isOn && !peer.losesFrom && !peer.losesTo) {
        const known = this.#tunnels.get(peer.address);
        const fresh = { index: (this.#index += 1), counter: 0, sentAt: 0, heardAt: this.now };
        this.#tunnels.set(peer.address, known ?? fresh);
        if (known !== undefined) known.heardAt = this.now;
      }
    }
  }

  #hostmap(): EngineTunnel[] {
    return [...this.#tunnels].map(([address, { index, counter }]) => ({
      vpnAddrs: [address],
      localIndex: index,
      messageCounter: counter,
      currentRemote: "203.0.113.7:4242",
      currentRelaysToMe: [],
      cert: this.namesPeers
        ? {
            details: {
              name: this.peers.find((each) => each.address === address)?.name ?? address,
              notAfter: "2027-02-18T12:00:00Z",
              groups: [],
            },
            fingerprint: address,
          }
        : null,
    }));
  }
}
