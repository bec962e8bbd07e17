// Measures on the paths in use whether packets of the full size pass, where small ones do: on the main path, which leads to a
// lighthouse, and on those to peers with traffic. Decides when, and remembers what was found.

import { defer } from "../../../base/defer.ts";
import type { OpenEcho } from "../../../platform/network/echo-socket.ts";
import type { System } from "../../../base/system.ts";
import type { Inventory } from "../inventory.ts";
import type { OffloadTrial } from "./offload-trial.ts";
import { busiest, hasTraffic, MeasurePace } from "../probe-paces.ts";
import { fullBytes, largestThrough } from "./path-mtu.ts";
import type { Prober } from "../prober.ts";
import { isAnswering } from "../probe-record.ts";

type Deps = {
  system: Pick<System, "sleep">;
  monotonic(): number;
  open: OpenEcho;
  /** Turns off offloads that lose packets. */
  offloads?: Pick<OffloadTrial, "tryIfDue">;
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
  inventory: Inventory;
  prober: Pick<Prober, "record" | "records">;
  /** Measurements have ended, so dueInMs() has changed. */
  onMeasured(): void;
};

/** `to`, `from`: overlay addresses. */
type Path = {
  to: string;
  from: string;
  mtu: number;
  /** Engine, size and tunnel, as one text: after a change of any, an earlier measurement does not count. */
  subject: string;
  /** There is traffic, whose loss a user notices: measure often. */
  isOften: boolean;
  /** The main path: to a lighthouse, or from a lighthouse that asks no other one to any peer. */
  isMain: boolean;
  /** Only the engine's offloads are tried; the path's size is not measured. */
  onlyOffloads: boolean;
};

/** Key of the pace of the main path, whichever peer it leads to. */
const mainKey = "main";

export class LargePackets {
  /** Overlay address → the largest packet that passes, in bytes. An entry ends when a full one passes, or with the path. */
  readonly lost = new Map<string, number>();
  readonly #deps: Deps;
  /** By overlay address, or mainKey. */
  readonly #paces = new Map<string, MeasurePace>();
  /** The measurement that runs. */
  #measuring: Promise<void> | undefined;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** The paths that are measured now: their peers answer small packets. */
  #paths(): Path[] {
    const { inventory, prober, monotonic } = this.#deps;
    const { snapshot, tunnels } = inventory;
    if (snapshot === undefined) return [];
    const { engine, facts } = snapshot;
    const now = monotonic();
    const isOften = hasTraffic(tunnels.all, now);
    const mtu = Math.min(facts.mtu ?? fullBytes, fullBytes);
    // The main path of a lighthouse leads to any peer, and shows only whether the offloads of its own engine work.
    const asksNoLighthouse = facts.isLighthouse && facts.lighthouses.length === 0;
    const answers = (each: string) => {
      const record = prober.record(each);
      return record !== undefined && isAnswering(record, now);
    };
    const pathTo = (to: string, { isMain }: { isMain: boolean }): Path[] => {
      const from = inventory.sourceFor(to);
      const onlyOffloads = isMain && asksNoLighthouse;
      const { index, remote } = tunnels.get(to) ?? {};
      const subject = [engine.pid, mtu, ...(onlyOffloads ? [] : [to, index, remote])].join(" ");
      return from === undefined
        ? []
        : [{ to, from, mtu, subject, isOften: isOften && !onlyOffloads, isMain, onlyOffloads }];
    };
    const mainCandidates = asksNoLighthouse ? prober.records().map(([each]) => each) : facts.lighthouses;
    const mainPeer = mainCandidates.find(answers);
    const peers = [
      ...busiest(tunnels.all, now),
      ...tunnels.all.filter(({ address }) => this.lost.has(address)),
    ];
    const others = new Set(
      peers
        .map(({ address }) => address)
        // The main path of a lighthouse does not measure the size, so its peer is measured here too.
        .filter((each) => (asksNoLighthouse || each !== mainPeer) && answers(each)),
    );
    return [
      ...(mainPeer === undefined ? [] : pathTo(mainPeer, { isMain: true })),
      ...[...others].flatMap((each) => pathTo(each, { isMain: false })),
    ];
  }

  /** ms until the next measurement; infinite while one runs. */
  dueInMs(): number {
    if (this.#measuring !== undefined) return Number.POSITIVE_INFINITY;
    return Math.min(Number.POSITIVE_INFINITY, ...this.#paths().map((each) => this.#dueIn(each)));
  }

  /** Measures the paths that are due. While a measurement runs, no other one begins, and its end is awaited. */
  measureDue(): Promise<void> {
    return this.#measure(this.#paths().filter((each) => this.#dueIn(each) <= 0));
  }

  measureAll(): Promise<void> {
    return this.#measure(this.#paths());
  }

  /** Forgets paths whose peer has no tunnel any more. */
  forgetGone(): void {
    const { snapshot, tunnels, reportsTunnels } = this.#deps.inventory;
    const lighthouses = snapshot?.facts.lighthouses ?? [];
    const isThere = (each: string) =>
      each === mainKey || lighthouses.includes(each) || !reportsTunnels || tunnels.get(each) !== undefined;
    for (const map of [this.lost, this.#paces])
      for (const each of map.keys()) if (!isThere(each)) map.delete(each);
  }

  /** A user looks at the state: what was measured rarely is measured soon. */
  attend(): void {
    for (const pace of this.#paces.values()) pace.attend();
  }

  #measure(paths: readonly Path[]): Promise<void> {
    this.#measuring ??= Promise.all(paths.map((each) => this.#measureOnce(each).catch(() => undefined)))
      .then(() => undefined)
      .finally(() => {
        this.#measuring = undefined;
        this.#deps.onMeasured();
      });
    return this.#measuring;
  }

  #paceOf({ isMain, to }: Path): MeasurePace {
    const key = isMain ? mainKey : to;
    const pace = this.#paces.get(key) ?? new MeasurePace();
    this.#paces.set(key, pace);
    return pace;
  }

  #dueIn(path: Path): number {
    const { to, subject, isOften, isMain } = path;
    const facts = { isOften, isLost: this.lost.has(to), isPeer: !isMain, now: this.#deps.monotonic() };
    return this.#paceOf(path).dueInMs(subject, facts);
  }

  /** Measures one path, and tries the offloads if they are due. */
  async #measureOnce(path: Path): Promise<void> {
    const { inventory, prober, open, system, monotonic, offloads, recentLog } = this.#deps;
    const { to, from, mtu, subject, isMain, onlyOffloads } = path;
    const pace = this.#paceOf(path);
    pace.begin(subject, { isLost: this.lost.has(to) });
    using _ = defer(() => pace.end(monotonic()));
    const { rttMs } = prober.record(to) ?? {};
    const through = onlyOffloads
      ? undefined
      : await largestThrough({ from, to, full: mtu, rttMs }, { open, system });
    // Otherwise nothing was measured: a text says why, such as that even small packets got no answer.
    if (typeof through === "object") {
      if (through.isFull) this.lost.delete(to);
      else this.lost.set(to, through.bytes);
    }
    const { snapshot } = inventory;
    const mayTryOffloads = onlyOffloads || (typeof through === "object" && through.isFull);
    if (snapshot === undefined || !isMain || !mayTryOffloads) return;
    const { engine } = snapshot;
    const name = inventory.nameOf(to);
    // True: the result is uncertain, and it wants to be asked again soon.
    if ((await offloads?.tryIfDue({ engine, from, to, name, bytes: mtu, recentLog })) === true) pace.attend();
  }
}
