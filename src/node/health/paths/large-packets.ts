// When packets of the full size are measured on the paths in use whose peers answer small ones, and what that found: the path
// to a lighthouse, and those to peers with traffic.

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
  /** Turns offloads off that lose packets. */
  offloads?: Pick<OffloadTrial, "tryIfDue">;
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
  inventory: Inventory;
  prober: Pick<Prober, "record" | "records">;
  onMeasured(): void;
};

type Path = {
  to: string;
  from: string;
  mtu: number;
  /** Engine, size and tunnel, as one text: after a change of any, an earlier measurement does not count. */
  subject: string;
  /** There is traffic, whose loss a user notices: measure often. */
  isOften: boolean;
  /** Whether the measurement is to a lighthouse; on a lighthouse, which asks none, to any peer. */
  isMain: boolean;
  /** Only the offloads of a lighthouse's engine are tried; the path's size is not measured. */
  isTried: boolean;
};

/** Key of the one pace of the main path, whichever peer it leads to. */
const main = "main";

export class LargePackets {
  /** Overlay address → the largest packet that passes. Only one of full size that passes ends that, or the end of the path. */
  readonly lost = new Map<string, number>();
  readonly #deps: Deps;
  readonly #paces = new Map<string, MeasurePace>();
  #measuring: Promise<void> | undefined;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  #paths(): Path[] {
    const { inventory, prober, monotonic } = this.#deps;
    const { present, tunnels } = inventory;
    if (present === undefined) return [];
    const { engine, facts } = present;
    const now = monotonic();
    const isOften = hasTraffic(tunnels.all, now);
    const mtu = Math.min(facts.mtu ?? fullBytes, fullBytes);
    // A lighthouse asks none: the offloads of its engine are tried with any peer.
    const isHub = facts.isLighthouse && facts.lighthouses.length === 0;
    const answers = (each: string) => {
      const record = prober.record(each);
      return record !== undefined && isAnswering(record, now);
    };
    const pathTo = (to: string, { isMain }: { isMain: boolean }): Path[] => {
      const from = inventory.sourceFor(to);
      const isTried = isMain && isHub;
      const { index, remote } = tunnels.get(to) ?? {};
      const subject = [engine.pid, mtu, ...(isTried ? [] : [to, index, remote])].join(" ");
      return from === undefined
        ? []
        : [{ to, from, mtu, subject, isOften: isOften && !isTried, isMain, isTried }];
    };
    const hub = (isHub ? prober.records().map(([each]) => each) : facts.lighthouses).find(answers);
    const peers = [
      ...busiest(tunnels.all, now),
      ...tunnels.all.filter(({ address }) => this.lost.has(address)),
    ];
    const others = new Set(
      peers.map(({ address }) => address).filter((each) => (isHub || each !== hub) && answers(each)),
    );
    return [
      ...(hub === undefined ? [] : pathTo(hub, { isMain: true })),
      ...[...others].flatMap((each) => pathTo(each, { isMain: false })),
    ];
  }

  /** ms until the next measurement. */
  dueInMs(): number {
    if (this.#measuring !== undefined) return Number.POSITIVE_INFINITY;
    return Math.min(Number.POSITIVE_INFINITY, ...this.#paths().map((each) => this.#dueIn(each)));
  }

  /** Measures the paths that are due. One call at a time. */
  measureDue(): Promise<void> {
    return this.#measure(this.#paths().filter((each) => this.#dueIn(each) <= 0));
  }

  measureAll(): Promise<void> {
    return this.#measure(this.#paths());
  }

  /** Forgets paths whose peer has no tunnel any more. */
  forgetGone(): void {
    const { present, tunnels, reportsTunnels } = this.#deps.inventory;
    const lighthouses = present?.facts.lighthouses ?? [];
    const isThere = (each: string) =>
      each === main || lighthouses.includes(each) || !reportsTunnels || tunnels.get(each) !== undefined;
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
    const key = isMain ? main : to;
    const pace = this.#paces.get(key) ?? new MeasurePace();
    this.#paces.set(key, pace);
    return pace;
  }

  #dueIn(path: Path): number {
    const { to, subject, isOften, isMain } = path;
    const facts = { isOften, isLost: this.lost.has(to), isPeer: !isMain, now: this.#deps.monotonic() };
    return this.#paceOf(path).dueInMs(subject, facts);
  }

  async #measureOnce(path: Path): Promise<void> {
    const { inventory, prober, open, system, monotonic, offloads, recentLog } = this.#deps;
    const { to, from, mtu, subject, isMain, isTried } = path;
    const pace = this.#paceOf(path);
    pace.begin(subject, { isLost: this.lost.has(to) });
    using _ = defer(() => pace.end(monotonic()));
    const { rttMs } = prober.record(to) ?? {};
    const through = isTried
      ? undefined
      : await largestThrough({ from, to, full: mtu, rttMs }, { open, system });
    if (typeof through === "object") {
      if (through.isFull) this.lost.delete(to);
      else this.lost.set(to, through.bytes);
    }
    const { present } = inventory;
    const passed = isTried || (typeof through === "object" && through.isFull);
    if (present === undefined || !isMain || !passed) return;
    const { engine } = present;
    const name = inventory.nameOf(to);
    if ((await offloads?.tryIfDue({ engine, from, to, name, bytes: mtu, recentLog })) === true) pace.attend();
  }
}
