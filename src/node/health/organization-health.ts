// Watches whether one organization carries traffic, and lets the healer repair what does not. Used by the daemon and by
// check-auth. One turn of run():
//
//   1. every 10 s, or when something changed, a refresh of what files and engine say (inventory.ts), which decides who is probed
//      (probe-targets.ts);
//   2. the prober sends what is due and counts what was missed (prober.ts);
//   3. the healer acts on what both know (healer.ts);
//   4. a changed verdict is announced.
//
// Meanwhile callers read the latest state (assessment.ts), or have peers probed now: check().

import type { DiskSpace } from "../../base/disk-space.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import { clocksMayDifferMs } from "../../protocol/finding-kinds.ts";
import type { CheckinAnswer } from "../../protocol/checkin.ts";
import type { Healing } from "../../protocol/path-report.ts";
import type { System } from "../../base/system.ts";
import { within } from "../../base/within.ts";
import { readPeerMap } from "../files/config/peer-map.ts";
import type { Organization } from "../files/organizations.ts";
import { assessHealth, type AssessmentInput, type PlaneFacts } from "./assessment.ts";
import type { Facts } from "./configured-facts.ts";
import { reportedKind } from "./findings.ts";
import { madeHandshakes } from "./handshakes.ts";
import { outlivesMs } from "./healing.ts";
import { healerInput } from "./healer-input.ts";
import type { Healer } from "./healer.ts";
import { LargePackets } from "./paths/large-packets.ts";
import { Inventory, type InventoryDeps } from "./inventory.ts";
import { listPeers } from "./list-peers.ts";
import type { Health } from "./verdict.ts";
import type { KeptPeers } from "./paths/kept-peers.ts";
import { NamedPeers } from "./named-peers.ts";
import { pacesOf } from "./probe-paces.ts";
import { isUnknown, type PeerReport, type PeersSeen } from "./shown-peer.ts";
import { probeTargets, watchedForTcp } from "./probe-targets.ts";
import type { OffloadTrial } from "./paths/offload-trial.ts";
import { probeEveryMs, Prober } from "./prober.ts";
import { brokenAfter, freshMs, isBroken, isSettled } from "./probe-record.ts";

export type HealthDeps = InventoryDeps & {
  system: Pick<System, "now" | "sleep" | "random">;
  open: OpenEcho;
  /** Disk space of the organization's directory; undefined where the system does not tell. */
  disk(): DiskSpace | undefined;
  /** The networks that this node offers as their router and does not reach. */
  unreached(): AssessmentInput["unreached"];
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
  /** Repairs dead tunnels (healer.ts). */
  healer?: Pick<Healer, "step" | "completeAddresses" | "noteOf" | "givenUp" | "healings">;
  /** Turns off offloads that lose packets. */
  offloads?: Pick<OffloadTrial, "tryIfDue">;
  /** Keeps the addresses of peers for the time without a lighthouse. */
  kept?: Pick<KeptPeers, "refresh" | "request" | "addAnswer" | "nextToProbe">;
  /** For a process without a healer: what the healer of another process knows. */
  known?: Pick<Healer, "noteOf" | "givenUp">;
  /** Called when the verdict changes, or what `status` says of lighthouses and broken peers. */
  onChange?(): void;
};

/** Requests for peers within this time share one refresh. */
const sharedRefreshMs = 1000;
/** Refresh this soon after the healer acted. */
const afterHealingMs = 1000;
/** The engine sends the first packet of a handshake after a tenth of a second, and the second one after another two. */
const handshakeMs = 500;
/** How many kept peers (paths/kept-peers.ts) are probed after each refresh while no lighthouse answers. */
const keptAtOnce = 4;

/** The fields of an answer to a check-in that the health uses. */
type AnswerFacts = Partial<
  Pick<CheckinAnswer, "others_online" | "cloned" | "elsewhere" | "server_time" | "addresses">
>;

/** What check() probes. lighthouses: on a lighthouse, the nodes that it watches. all: every peer. */
type CheckScope = "lighthouses" | "all" | { address: string };

export class OrganizationHealth {
  readonly prober: Prober;
  readonly named = new NamedPeers();
  readonly #largePackets: LargePackets;
  /** Overlay address → the size in bytes above which packets to it are lost. */
  readonly lostLarge: LargePackets["lost"];
  /** What check-ins told. saved-probes.ts restores it in the next process. */
  planeFacts: PlaneFacts = {};
  /** Whether a check-in of this process reached the control plane, or failed to. */
  hasHeardPlane = false;
  readonly #place: Pick<Organization, "slug" | "directory">;
  readonly #deps: HealthDeps;
  readonly #inventory: Inventory;
  #log: readonly string[] = [];
  /** Monotonic ms. */
  #nextRefreshAt = 0;
  /** Ends the pause of run() before its time. */
  #endPause = () => {};
  /** How far this machine's clock was ahead at the last answer. */
  #lastAheadMs = 0;
  #disk: AssessmentInput["disk"];
  #unreached: AssessmentInput["unreached"] = [];
  /** What was announced last, as JSON. */
  #announced = "";
  /** What #areLighthousesSilent() was at the last refresh. */
  #areLighthousesLost = false;
  /** The kept peers that are probed until the next refresh, and all that the engine has. */
  #keptTargets: readonly string[] = [];
  #keptPeers: readonly string[] = [];
  /** Resolves the promises of #announcement(). */
  readonly #waiting = new Set<() => void>();

  constructor(place: Pick<Organization, "slug" | "directory">, deps: HealthDeps) {
    const { monotonic, open, system } = deps;
    this.#deps = deps;
    this.#place = place;
    this.#inventory = new Inventory(place, deps);
    this.prober = new Prober({ open, monotonic, random: system.random });
    this.#largePackets = new LargePackets({
      ...deps,
      inventory: this.#inventory,
      prober: this.prober,
      onMeasured: () => this.#endPause(),
    });
    this.lostLarge = this.#largePackets.lost;
  }

  /** To be called when a user asks for the state: rare measurements are then made soon. */
  attend(): void {
    this.#largePackets.attend();
  }

  get healings(): Healing[] {
    return this.#deps.healer?.healings ?? [];
  }

  /** Runs until the signal. Does not reject. */
  async run(signal: AbortSignal): Promise<void> {
    const { monotonic, system } = this.#deps;
    while (!signal.aborted) {
      const pause = new AbortController();
      this.#endPause = () => pause.abort(new Error("Woken"));
      if (monotonic() >= this.#nextRefreshAt) await this.#refresh();
      const nextProbeMs = await this.#probe();
      this.#judgeSilence();
      if (this.#largePackets.dueInMs() <= 0) void this.#largePackets.measureDue();
      await this.#heal();
      this.#announce();
      const nextRefreshMs = this.#nextRefreshAt - monotonic();
      const waitMs = Math.max(0, Math.min(nextProbeMs, this.#largePackets.dueInMs(), nextRefreshMs));
      await system.sleep(waitMs, AbortSignal.any([signal, pause.signal])).catch(() => undefined);
    }
    this.prober.close();
  }

  /** Refreshes now. To be called when the engine has started or ended. */
  wake(): void {
    this.#nextRefreshAt = 0;
    this.prober.hurry(this.#inventory.snapshot?.facts.lighthouses ?? []);
    this.#endPause();
  }

  /** Passes findings to check-ins, and takes what only the control plane knows from their answers (HealthReporter). */
  readonly reporter = {
    findingKind: () => reportedKind(this.current()?.findings ?? []),
    isBusy: (): boolean => this.#inventory.mayHaveTraffic(this.#deps.monotonic()),
    addressRequest: () => this.#deps.kept?.request(this.#areLighthousesSilent()),
    noteAnswer: (answer: AnswerFacts): void => {
      const { others_online: online, cloned, elsewhere, server_time: time, addresses } = answer;
      const at = this.#deps.monotonic();
      this.hasHeardPlane = true;
      this.planeFacts.unreached = undefined;
      if (online !== undefined) this.planeFacts.others = { online, at };
      this.planeFacts.cloned = cloned === true ? { at } : undefined;
      this.planeFacts.elsewhere = elsewhere && { said: elsewhere, at };
      if (time !== undefined) this.#compareClocks(Date.parse(time), at);
      if (addresses !== undefined) this.#deps.kept?.addAnswer(addresses);
    },
    noteUnreachable: (): void => {
      this.hasHeardPlane = true;
      this.planeFacts.unreached ??= { at: this.#deps.monotonic() };
    },
    untilChanged: (signal: AbortSignal): Promise<void> => this.#announcement(signal),
  };

  /**
   * Notes whether this machine's clock differs. Two answers in a row count: one answer may be old, because it waited while the
   * machine slept. `theirs`: the control plane's time, ms since 1970. `at`: now, monotonic ms.
   */
  #compareClocks(theirs: number, at: number): void {
    const aheadMs = this.#deps.system.now() - theirs;
    const areFar = [aheadMs, this.#lastAheadMs].every((ms) => Math.abs(ms) >= clocksMayDifferMs);
    this.planeFacts.clockAhead = areFar ? { ms: aheadMs, at } : undefined;
    this.#lastAheadMs = aheadMs;
  }

  /** Which of these are no longer peers. */
  goneAmong(addresses: readonly string[]): string[] {
    return this.#inventory.goneAmong(addresses);
  }

  /** Undefined if no engine runs, or before the first check. */
  current(): Health | undefined {
    return assessHealth(this.#assessmentInput());
  }

  /** Lighthouses, peers with a tunnel, and peers that were probed in the last ten minutes. */
  peers(): PeerReport[] {
    // Hides addresses without a tunnel about which nothing is known: a user may ask for any address. Old engines do
    // not report tunnels, so their peers stay.
    return this.#listed().filter((each) => each.path !== "none" || !isUnknown(each));
  }

  #listed(): PeerReport[] {
    return listPeers(this.#assessmentInput(), this.named.addresses(this.#deps.monotonic()));
  }

  /** The peers. Those whose state is unknown are probed now. With `peer`, a name or an address, only that one. */
  async readPeers(withinMs: number, peer?: string): Promise<PeersSeen> {
    if (peer !== undefined || this.#inventory.snapshot === undefined) await this.#refresh();
    const peers = peer === undefined ? await this.#readAll(withinMs) : await this.#readOne(withinMs, peer);
    const { snapshot, reportsTunnels } = this.#inventory;
    return { peers, reportsTunnels, engineVersion: snapshot?.engine.version };
  }

  async #readAll(withinMs: number): Promise<PeerReport[]> {
    await this.check(withinMs, "all");
    return this.peers();
  }

  async #readOne(withinMs: number, peer: string): Promise<PeerReport[]> {
    const address = this.#inventory.addressOf(peer);
    if (address === undefined) return [];
    this.named.add([address], this.#deps.monotonic());
    await this.check(withinMs, { address });
    // A tunnel may have come up for the probe.
    await this.#refresh();
    // In the list, a sealed node has the address by which the control plane knows it.
    const shown = this.#inventory.snapshot?.facts.known?.get(address) ?? address;
    return this.#listed().filter((each) => each.address === shown);
  }

  /** Probes now. Resolves when each peer has answered or missed its probes, or at once without an engine. run() sends the probes. */
  async check(withinMs: number, scope: CheckScope): Promise<void> {
    const { monotonic, system } = this.#deps;
    const isAll = scope === "all";
    const lookedAt = this.#inventory.snapshot?.lookedAt ?? Number.NEGATIVE_INFINITY;
    if (!isAll || system.now() - lookedAt > sharedRefreshMs) await this.#refresh();
    const { snapshot, reportsTunnels, tunnels } = this.#inventory;
    if (snapshot === undefined) return;
    const from = monotonic();
    const listed = reportsTunnels ? tunnels.all.map(({ address }) => address) : snapshot.facts.otherHubs;
    // The named ones are probed for a while.
    if (isAll) this.named.add(listed, from);
    this.#chooseTargets();
    const probed = this.#peersIn(scope, snapshot.facts).filter(
      (address) => this.prober.record(address) !== undefined,
    );
    // Of all peers, skip those whose state this process knows: else frequent requests for the list would all wait.
    const unknown = isAll ? probed.filter((address) => !this.#isKnown(address, from)) : probed;
    await this.#probeUntilDecided(unknown, withinMs);
    const leftMs = withinMs - (monotonic() - from);
    if (!isAll && leftMs > 0) await within(system, leftMs, this.#largePackets.measureAll(), undefined);
  }

  #peersIn(scope: CheckScope, { lighthouses, isLighthouse }: Facts): readonly string[] {
    if (typeof scope === "object") return [scope.address];
    return scope === "all" || isLighthouse ? this.prober.targets() : lighthouses;
  }

  #isKnown(address: string, now: number): boolean {
    const {
      missed = 0,
      answeredAt = Number.NEGATIVE_INFINITY,
      history = [],
    } = this.prober.record(address) ?? {};
    // A record of an earlier process has no history: its loss is not known.
    return missed >= brokenAfter || (history.length > 0 && now - answeredAt < freshMs);
  }

  /** Probes these now, and waits until each is decided. */
  async #probeUntilDecided(addresses: readonly string[], withinMs: number): Promise<void> {
    const { monotonic, system } = this.#deps;
    const from = monotonic();
    this.prober.hurry(addresses);
    this.#endPause();
    const decided = new AbortController();
    const timeout = system.sleep(withinMs, decided.signal).catch(() => undefined);
    const isDone = () =>
      addresses.every((address) => {
        const record = this.prober.record(address);
        return record === undefined || isSettled(record, from);
      });
    while (!isDone() && monotonic() - from < withinMs)
      await Promise.race([this.prober.nextChange(), timeout]);
    decided.abort(new Error("Decided"));
  }

  /** Reads files and engine, and chooses which peers are probed. Does not reject: other code reports damaged or removed files. */
  async #refresh(): Promise<void> {
    this.#nextRefreshAt = this.#deps.monotonic() + probeEveryMs;
    this.#disk = this.#deps.disk();
    this.#unreached = this.#deps.unreached();
    try {
      await this.#inventory.refresh((address) => this.prober.sentSince(address));
    } catch {
      return;
    }
    this.#judgeSilence();
    this.#largePackets.forgetGone();
    this.#areLighthousesLost = this.#areLighthousesSilent();
    await this.#keepPeers();
    await this.#completeAddresses();
    this.#keptPeers = this.#areLighthousesLost ? Object.keys(readPeerMap(this.#place.directory)) : [];
    this.#chooseTargets();
    await this.#readLog();
  }

  /** Whether no lighthouse answers, by the findings. */
  #areLighthousesSilent(): boolean {
    return this.current()?.findings?.some(({ kind }) => kind === "lighthouses_silent") === true;
  }

  /** Keeps the addresses of peers. A lighthouse needs none: the nodes come to it. */
  async #keepPeers(): Promise<void> {
    const { snapshot, tunnels, reportsTunnels } = this.#inventory;
    const { kept, recentLog } = this.#deps;
    if (kept === undefined || snapshot === undefined || snapshot.facts.isLighthouse) return;
    const { own, lighthouses, relays, isInside } = snapshot.facts;
    await kept.refresh({
      pid: snapshot.engine.pid,
      working: tunnels.all,
      handshakes: reportsTunnels ? undefined : async () => madeHandshakes(await recentLog()),
      areLighthousesLost: this.#areLighthousesLost,
      isPeer: (address) => ![own, lighthouses, relays].some((each) => each.includes(address)),
      isInside,
      goneAmong: (addresses) => this.goneAmong(addresses),
    });
    this.#keptTargets = this.#areLighthousesLost ? kept.nextToProbe(keptAtOnce) : [];
  }

  /** Has a lighthouse know the nodes by each of their addresses. Those of lighthouses and relays are in its configuration. */
  async #completeAddresses(): Promise<void> {
    const { snapshot, tunnels } = this.#inventory;
    if (snapshot?.facts.isLighthouse !== true) return;
    const { otherHubs, relays } = snapshot.facts;
    const hubs = new Set([...otherHubs, ...relays]);
    const ofNodes = tunnels.all.filter(({ addresses }) => !addresses.some((each) => hubs.has(each)));
    const { healer, monotonic, system } = this.#deps;
    const hasBegun = await healer?.completeAddresses(ofNodes, monotonic());
    // A probe before the end of a handshake would begin another one, by the first address.
    if (hasBegun === true) await system.sleep(handshakeMs);
  }

  /** Drops the silence of peers where it says nothing. */
  #judgeSilence(): void {
    this.#forgetGone();
    this.#disregardRefusing();
  }

  /** Forgets peers that are gone. A peer that is probed and answers is there. */
  #forgetGone(): void {
    const targets = new Set(this.prober.targets());
    const unsure = this.prober.records().filter(([address, each]) => isBroken(each) || !targets.has(address));
    for (const address of this.goneAmong(unsure.map(([each]) => each))) {
      this.prober.forget(address);
      this.#inventory.forget(address);
    }
  }

  /**
   * Disregards the silence of peers that refuse ICMP: a silent peer has made another tunnel since its last answer, and the engine
   * has kept it for so long that it works (outlivesMs). The tunnel must still be on the path of its handshake: packets of the peer
   * can move it to a path that loses ours.
   */
  #disregardRefusing(): void {
    const now = this.#deps.monotonic();
    for (const [address, record] of this.prober.records()) {
      const tunnel = this.#inventory.tunnels.get(address);
      if (tunnel === undefined) continue;
      const { index, since, remote, relays } = tunnel;
      // record.index is that of the tunnel in which the peer answered last.
      if (record.missed === 0 && (record.answeredAt ?? -1) >= since) this.prober.noteIndex(address, index);
      const isOther = record.index !== undefined && record.index !== index && now - since >= outlivesMs;
      // A tunnel that is direct now and has relays had its handshake by a relay, so it has left that path.
      const isOnItsPath = remote === undefined || relays.length === 0;
      if (isBroken(record) && isOther && isOnItsPath) this.prober.disregard(address);
    }
  }

  #chooseTargets(): void {
    const { snapshot, tunnels } = this.#inventory;
    if (snapshot === undefined) return this.prober.setTargets([]);
    const now = this.#deps.monotonic();
    const targets = probeTargets({
      facts: snapshot.facts,
      served: this.#inventory.served,
      tunnels,
      reportsTunnels: this.#inventory.reportsTunnels,
      records: this.prober.records(),
      named: [...this.named.addresses(now), ...this.#keptTargets],
      choosesRelays: this.#deps.healer !== undefined,
      now,
    });
    this.prober.setTargets(targets, pacesOf(tunnels.all, now, watchedForTcp(snapshot.facts)));
  }

  /**
   * Reads the engine's log only where it may explain something: why peers are not reached while no lighthouse answers, and whether a
   * silent lighthouse has a tunnel, if the engine does not report its tunnels.
   */
  async #readLog(): Promise<void> {
    const { snapshot, reportsTunnels } = this.#inventory;
    const lighthouses = snapshot?.facts.lighthouses ?? [];
    const isSilent = lighthouses.some((each) => (this.prober.record(each)?.missed ?? 0) >= brokenAfter);
    this.#log =
      this.#areLighthousesLost || (isSilent && !reportsTunnels)
        ? await this.#deps.recentLog().catch(() => [])
        : [];
  }

  /** Sends what is due. Returns the ms until the next probe. */
  async #probe(): Promise<number> {
    if (this.#inventory.snapshot === undefined) return probeEveryMs;
    return this.prober.step((address) => this.#inventory.sourceFor(address));
  }

  async #heal(): Promise<void> {
    const { healer, monotonic } = this.#deps;
    const observed = healer === undefined ? undefined : healerInput(this.#assessmentInput());
    if (healer === undefined || observed === undefined) return;
    const urgent = await healer.step(observed).catch(() => []);
    if (urgent.length === 0) return;
    this.prober.makeDue(urgent);
    this.#nextRefreshAt = Math.min(this.#nextRefreshAt, monotonic() + afterHealingMs);
  }

  /** Resolves at the next announcement. Rejects when the signal aborts. */
  #announcement(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    this.#waiting.add(resolve);
    return promise.finally(() => this.#waiting.delete(resolve));
  }

  /** Tells of the health, if what is announced of it has changed. */
  #announce(): void {
    const { verdict, findings, lighthouses, broken } = this.current() ?? {};
    const shown = JSON.stringify([verdict, findings, lighthouses, broken]);
    if (shown === this.#announced) return;
    this.#announced = shown;
    for (const resolve of this.#waiting) resolve();
    this.#deps.onChange?.();
  }

  #assessmentInput(): AssessmentInput {
    const { healer, known, monotonic, system } = this.#deps;
    return {
      place: this.#place,
      lostLarge: this.lostLarge,
      keptPeers: this.#keptPeers,
      disk: this.#disk,
      unreached: this.#unreached,
      planeFacts: this.planeFacts,
      inventory: this.#inventory,
      prober: this.prober,
      healing: healer ?? known,
      log: this.#log,
      now: monotonic(),
      time: system.now(),
    };
  }
}
