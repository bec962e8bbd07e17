// Watches whether one organization carries traffic: probes lighthouses, relays in use and peers with traffic, and asks the
// engine for its tunnels. It observes only; the healer repairs. Used by the daemon and by check-auth.

import { statSync } from "node:fs";
import { formatTime } from "../../duration.ts";
import { withoutPort } from "../../ip.ts";
import type { OpenEcho } from "../../platform/echo-socket.ts";
import type { Healing } from "../../path-report.ts";
import type { System } from "../../system.ts";
import { currentGeneration } from "../files/generations.ts";
import { hostsPath, indexHosts, readHosts } from "../files/hosts.ts";
import type { Organization } from "../files/organizations.ts";
import type { Facts } from "./facts.ts";
import { freshMs, lighthouseState } from "./lighthouse-state.ts";
import type { Healer } from "./healer.ts";
import type { Seen } from "./seen.ts";
import { judge, type Health, type LighthouseState } from "./judge.ts";
import {
  brokenAfter,
  isBroken,
  isProbed,
  isSettled,
  probeEveryMs,
  Prober,
  type ProbeRecord,
} from "./prober.ts";
import { NamedPeers } from "./named-peers.ts";
import { mostRelays, relayCandidates } from "./relay-choice.ts";
import { pacesOf } from "./paces.ts";
import { describePeer, orderPeers, type PeerReport, type PeersSeen } from "./peer-report.ts";
import { PeerNames } from "./peer-names.ts";
import { Tunnels, type EngineTunnel } from "./tunnels.ts";

export type EngineSeen = { pid: number; version: string | undefined };

export type HealthDeps = {
  system: Pick<System, "now" | "sleep" | "random">;
  /** ms that never go back. */
  monotonic(): number;
  open: OpenEcho;
  /** The running engine; undefined if none runs. */
  engine(): Promise<EngineSeen | undefined>;
  /** Undefined if the engine does not report its tunnels. */
  tunnels(): Promise<readonly EngineTunnel[] | undefined>;
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
  /** Repairs dead tunnels (healer.ts). */
  healer?: Pick<Healer, "step" | "noteOf" | "givenUp" | "healings">;
  /** Without a healer: what that of another process knows. */
  known?: Pick<Healer, "noteOf" | "givenUp">;
  /** The verdict changed, or what `status` says of lighthouses and broken peers. */
  onChange?(): void;
};

/** Requests for peers within this time share one list from the engine. */
const listedForMs = 1000;
/** Probed unasked beside lighthouses. */
const maxUnasked = 32;
const lookAgainMs = 1000;

export class OrganizationHealth {
  readonly prober: Prober;
  readonly #deps: HealthDeps;
  readonly #place: Pick<Organization, "slug" | "directory">;
  readonly #tunnels = new Tunnels();
  readonly #names = new PeerNames();
  readonly #named = new NamedPeers();
  readonly #sent = new Map<string, number>();
  #facts: Facts | undefined;
  #generation: string | undefined;
  /** Of hosts.json: the time of its last change, and whether it has other nodes. Without it there may be some. */
  #hosts = { changedAt: 0, hasOthers: true };
  #engine: EngineSeen | undefined;
  #reportsTunnels = false;
  #log: readonly string[] = [];
  #lookedAt: number | undefined;
  #roundAt = 0;
  #wake = () => {};
  #shown = "";

  constructor(place: Pick<Organization, "slug" | "directory">, deps: HealthDeps) {
    this.#place = place;
    this.#deps = deps;
    const { monotonic, open, system } = deps;
    this.prober = new Prober({ open, monotonic, random: system.random });
  }

  get #healing(): Pick<Healer, "noteOf" | "givenUp"> | undefined {
    return this.#deps.healer ?? this.#deps.known;
  }

  get healings(): Healing[] {
    return this.#deps.healer?.healings ?? [];
  }

  /** Runs until the signal. Does not reject. */
  async run(signal: AbortSignal): Promise<void> {
    const { monotonic, system } = this.#deps;
    while (!signal.aborted) {
      const paused = new AbortController();
      this.#wake = () => paused.abort(new Error("Woken"));
      // Other code reports damaged or removed files.
      if (monotonic() >= this.#roundAt) await this.#round().catch(() => undefined);
      const idle = this.#engine === undefined ? probeEveryMs : await this.prober.step((to) => this.#from(to));
      await this.#heal();
      this.#tell();
      const waitMs = Math.max(0, Math.min(idle, this.#roundAt - monotonic()));
      await system.sleep(waitMs, AbortSignal.any([signal, paused.signal])).catch(() => undefined);
    }
    this.prober.close();
  }

  /** Looks again now: the engine started or ended. */
  wake(): void {
    this.#roundAt = 0;
    this.prober.hurry(this.#facts?.lighthouses ?? []);
    this.#wake();
  }

  /** Undefined if no engine runs, or before the first look. */
  look(): Health | undefined {
    const facts = this.#facts;
    if (facts === undefined || this.#engine === undefined || this.#lookedAt === undefined) return undefined;
    const now = this.#deps.monotonic();
    const { version } = this.#engine;
    const lighthouses = facts.lighthouses.map((address) => ({
      name: this.#names.of(address),
      state: this.#lighthouse(address, now),
    }));
    const peers = this.prober
      .records()
      .filter(([address, record]) => !facts.lighthouses.includes(address) && isProbed(record, now))
      .map(([address, record]) => ({ name: this.#names.of(address), broken: isBroken(record, now) }));
    const judgement = judge({
      lighthouses,
      isLighthouse: facts.isLighthouse,
      probed: peers,
      stuck: this.#stuck(now).map((address) => this.#names.of(address)),
      hasOthers: this.#hosts.hasOthers || this.#tunnels.all.length > 0,
      isExpired: this.#deps.system.now() >= facts.certificateEnd,
      engineVersion: version,
      reportsTunnels: this.#reportsTunnels,
      isDenied: facts.own.every((from) => this.prober.problem(from) === "denied"),
    });
    const lost = lighthouses.filter(({ state }) => state === "lost");
    const broken = [...lost, ...peers.filter((each) => each.broken)].map(({ name }) => name).slice(0, 20);
    return {
      ...judgement,
      lighthouses: {
        answering: lighthouses.filter(({ state }) => state === "answers" || state === "tunnel").length,
        of: lighthouses.length,
      },
      ...(this.#reportsTunnels ? { tunnels: this.#count() } : {}),
      broken,
      ...(version === undefined ? {} : { engine_version: version }),
      checked_at: formatTime(this.#lookedAt),
    };
  }

  /** Lighthouses, peers with a tunnel, and peers that were probed in the last ten minutes. */
  peers(): PeerReport[] {
    const facts = this.#facts;
    if (facts === undefined || this.#engine === undefined) return [];
    const now = this.#deps.monotonic();
    const known = this.prober.records().filter(([, record]) => isProbed(record, now));
    const addresses = new Set([
      ...facts.lighthouses,
      ...this.#tunnels.all.map(({ address }) => address),
      ...this.#named.addresses(now),
      ...known.map(([address]) => address),
    ]);
    const reports = [...addresses].map((address) =>
      describePeer({
        address,
        name: this.#names.of(address),
        isLighthouse: facts.lighthouses.includes(address),
        tunnel: this.#tunnels.get(address),
        reportsTunnels: this.#reportsTunnels,
        record: this.prober.record(address),
        nameOf: (each) => this.#names.of(each),
        note: this.#healing?.noteOf(address),
        now,
      }),
    );
    return orderPeers(reports);
  }

  /** The peers. Those whose state is unknown are probed now. With `peer`, a name or an address, only that one. */
  async lookAtPeers(withinMs: number, peer?: string): Promise<PeersSeen> {
    if (this.#facts === undefined || peer !== undefined) await this.#round().catch(() => undefined);
    const address = peer === undefined ? undefined : this.#addressOf(peer);
    if (address !== undefined) this.#named.add([address], this.#deps.monotonic());
    await this.check(withinMs, peer === undefined ? { all: true } : { all: false, only: address });
    // A tunnel may have come up for the probe.
    if (address !== undefined) await this.#round().catch(() => undefined);
    const peers = this.peers().filter((each) => peer === undefined || each.address === address);
    return { peers, reportsTunnels: this.#reportsTunnels, engineVersion: this.#engine?.version };
  }

  /** `peer`: a name, or an address in the overlay. */
  #addressOf(peer: string): string | undefined {
    if (this.#facts?.isInside(peer) === true) return peer;
    const known = this.#names.addressOf(peer);
    if (known !== undefined) return known;
    const { slug, directory } = this.#place;
    const hosts = readHosts(directory);
    const found = hosts === undefined ? undefined : indexHosts(hosts, slug).byName(peer);
    const address = found?.addresses[0];
    if (found !== undefined && address !== undefined) this.#names.remember(address, found.node.name);
    return address;
  }

  /** Probes the lighthouses now; with `all` every peer, with `only` that one. Resolves when each has answered or missed its probes. */
  async check(withinMs: number, { all, only }: { all: boolean; only?: string | undefined }): Promise<void> {
    const { monotonic, system } = this.#deps;
    const isOld = this.#lookedAt === undefined || system.now() - this.#lookedAt > listedForMs;
    if (isOld || !all) await this.#round().catch(() => undefined);
    const from = monotonic();
    // Skip peers whose state is known: frequent requests for the list would all wait.
    const recent = ({ answeredAt, missed }: ProbeRecord) =>
      missed >= brokenAfter || from - (answeredAt ?? Number.NEGATIVE_INFINITY) < freshMs;
    const lighthouses = this.#facts?.lighthouses ?? [];
    if (all)
      this.#named.add(
        this.#tunnels.all.map(({ address }) => address),
        from,
      );
    this.#retarget();
    const whole = all || this.#facts?.isLighthouse === true ? this.prober.targets() : lighthouses;
    const peers = only === undefined ? whole : [only];
    const asked = peers.filter((address) => {
      const record = this.prober.record(address);
      return record !== undefined && !(all && recent(record));
    });
    this.prober.hurry(asked);
    this.#wake();
    const over = new AbortController();
    const late = system.sleep(withinMs, over.signal).catch(() => undefined);
    const done = () =>
      asked.every((address) => {
        const record = this.prober.record(address);
        return record === undefined || isSettled(record, from);
      });
    while (!done() && monotonic() - from < withinMs) await Promise.race([this.prober.change(), late]);
    over.abort(new Error("Done"));
  }

  #tell(): void {
    const { verdict, reason, lighthouses, broken } = this.look() ?? {};
    const shown = JSON.stringify([verdict, reason, lighthouses, broken]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#deps.onChange?.();
  }

  /** A peer that is off has no tunnel: only one that is there and does not answer counts. */
  #stuck(now: number): string[] {
    return (this.#healing?.givenUp ?? []).filter((address) => {
      const record = this.prober.record(address);
      return record !== undefined && isBroken(record, now) && this.#tunnels.get(address) !== undefined;
    });
  }

  async #heal(): Promise<void> {
    const { healer, monotonic } = this.#deps;
    const facts = this.#facts;
    if (healer === undefined || facts === undefined || this.#engine === undefined || !this.#reportsTunnels)
      return;
    const urgent = await healer.step(this.#seen(facts)).catch(() => []);
    if (urgent.length === 0) return;
    this.prober.soon(urgent);
    this.#roundAt = Math.min(this.#roundAt, monotonic() + lookAgainMs);
  }

  #seen(facts: Facts): Seen {
    const now = this.#deps.monotonic();
    const special = [...facts.lighthouses, ...facts.relays];
    const remotes = special.flatMap((address) => this.#tunnels.get(address)?.remote ?? []);
    const addresses = new Set([
      ...this.prober.records().map(([address]) => address),
      ...this.#tunnels.all.map(({ address }) => address),
    ]);
    const peers = [...addresses].map((address) => {
      const record = this.prober.record(address);
      return {
        address,
        name: this.#names.of(address),
        isLighthouse: facts.lighthouses.includes(address),
        isBroken: record !== undefined && isBroken(record, now),
        answeredAt: record?.answeredAt,
        tunnel: this.#tunnels.get(address),
      };
    });
    const candidates = new Map(
      this.#candidates(facts).map((relay) => {
        const record = this.prober.record(relay);
        return [relay, { rttMs: record?.rttMs, isBroken: record !== undefined && isBroken(record, now) }];
      }),
    );
    const kept = [...facts.underlays, ...remotes.map(withoutPort)];
    return { now, own: facts.own[0] ?? "", peers, relays: facts.relays, candidates, kept };
  }

  /** The relays to choose from; none if all are used. */
  #candidates({ relays, own }: Facts): string[] {
    return relays.length > mostRelays ? relayCandidates(relays, own[0] ?? "") : [];
  }

  async #round(): Promise<void> {
    const { monotonic, engine, system, tunnels, recentLog } = this.#deps;
    this.#roundAt = monotonic() + probeEveryMs;
    const seen = await engine();
    this.#engine = seen;
    if (seen === undefined) return this.prober.setTargets([]);
    this.#facts = await this.#read();
    const listed = await tunnels().catch(() => undefined);
    const now = monotonic();
    this.#reportsTunnels = listed !== undefined;
    this.#tunnels.see(listed ?? [], this.#facts.own, now, (address) => this.#probesSince(address));
    for (const { address, name } of this.#tunnels.all) this.#names.remember(address, name);
    this.#readHosts(this.#facts);
    this.#lookedAt = system.now();
    this.#retarget();
    const isSilent = this.#facts.lighthouses.some(
      (each) => (this.prober.record(each)?.missed ?? 0) >= brokenAfter,
    );
    this.#log = isSilent && listed === undefined ? await recentLog().catch(() => []) : [];
  }

  async #read(): Promise<Facts> {
    const generation = currentGeneration(this.#place.directory);
    if (this.#facts !== undefined && this.#generation === generation) return this.#facts;
    const { readFacts } = await import("./facts.ts");
    this.#generation = generation;
    return readFacts(this.#place);
  }

  /** Keeps only the names that are shown: the list may be long. */
  #readHosts({ own, lighthouses }: Facts): void {
    const { slug, directory } = this.#place;
    const changedAt = statSync(hostsPath(directory), { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (changedAt === this.#hosts.changedAt) return;
    const hosts = readHosts(directory);
    const index = hosts === undefined ? undefined : indexHosts(hosts, slug);
    for (const address of lighthouses) {
      const name = index?.byAddress(address)?.node.name;
      if (name !== undefined) this.#names.remember(address, name);
    }
    const hasOthers = hosts === undefined || hosts.nodes.some(({ ip }) => !own.includes(ip));
    this.#hosts = { changedAt, hasOthers };
  }

  #retarget(): void {
    const facts = this.#facts;
    if (facts === undefined) return;
    const now = this.#deps.monotonic();
    const relays = this.#tunnels.all.flatMap(({ remote, relays }) => (remote === undefined ? relays : []));
    const active = this.#tunnels.all
      .filter((each) => this.#tunnels.isActive(each, now))
      .toSorted((a, b) => (b.trafficAt ?? 0) - (a.trafficAt ?? 0))
      .map(({ address }) => address);
    // A peer that stopped answering is probed until that is certain, also if its tunnel is gone.
    const lost = this.prober.records().flatMap(([address, each]) => (isBroken(each, now) ? [address] : []));
    const unasked = [...new Set([...relays, ...active, ...lost])].slice(0, maxUnasked);
    const candidates = this.#deps.healer === undefined ? [] : this.#candidates(facts);
    const wanted = [...facts.lighthouses, ...candidates, ...unasked, ...this.#named.addresses(now)];
    this.prober.setTargets(
      wanted.filter((each) => !facts.own.includes(each) && facts.isInside(each)),
      pacesOf(this.#tunnels.all, now),
    );
  }

  #lighthouse(address: string, now: number): LighthouseState {
    return lighthouseState({
      address,
      record: this.prober.record(address),
      hasTunnel: this.#tunnels.get(address) !== undefined,
      reportsTunnels: this.#reportsTunnels,
      log: this.#log,
      now,
      time: this.#deps.system.now(),
    });
  }

  #count(): { direct: number; relayed: number } {
    const direct = this.#tunnels.all.filter(({ remote }) => remote !== undefined).length;
    return { direct, relayed: this.#tunnels.all.length - direct };
  }

  #probesSince(address: string): number {
    const sent = this.prober.record(address)?.sent ?? 0;
    const before = this.#sent.get(address) ?? 0;
    this.#sent.set(address, sent);
    return Math.max(0, sent - before);
  }

  #from(address: string): string | undefined {
    return this.#facts?.own.find((each) => each.includes(":") === address.includes(":"));
  }
}
