// When packets of the full size are measured on the way to a lighthouse that answers small ones, and what that found.

import type { OpenEcho } from "../../platform/echo-socket.ts";
import type { System } from "../../system.ts";
import type { Inventory } from "./inventory.ts";
import type { OffloadTrial } from "./offload-trial.ts";
import { hasTraffic, type MeasurePace } from "./paces.ts";
import { fullBytes, largestThrough } from "./path-mtu.ts";
import { isAnswering, type Prober } from "./prober.ts";

type Deps = {
  system: Pick<System, "sleep">;
  monotonic(): number;
  open: OpenEcho;
  /** Turns offloads off that lose packets. */
  offloads?: Pick<OffloadTrial, "look">;
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
  inventory: Inventory;
  prober: Pick<Prober, "record" | "records">;
  pace: Pick<MeasurePace, "begin" | "end" | "inMs">;
  onMeasured(): void;
};

export class LargePackets {
  /** Packets that are larger are lost on the way to a lighthouse, an overlay address. Only one that passes ends that. */
  lost: { to: string; bytes: number } | undefined;
  readonly #deps: Deps;
  #measuring: Promise<void> | undefined;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** Who answers small packets, and what a measurement of the large ones is of. */
  #measurable(): { to: string; from: string; mtu: number; of: string; isHub: boolean } | undefined {
    const { present } = this.#deps.inventory;
    if (present === undefined) return undefined;
    const { engine, facts } = present;
    const now = this.#deps.monotonic();
    const answers = (each: string) => {
      const record = this.#deps.prober.record(each);
      return record !== undefined && isAnswering(record, now);
    };
    // A lighthouse asks none: the offloads of its engine are tried with any peer.
    const isHub = facts.isLighthouse && facts.lighthouses.length === 0;
    const all = isHub ? this.#deps.prober.records().map(([each]) => each) : facts.lighthouses;
    const to = all.find(answers);
    const from = to === undefined ? undefined : this.#deps.inventory.sourceFor(to);
    if (to === undefined || from === undefined) return undefined;
    const mtu = Math.min(facts.mtu ?? fullBytes, fullBytes);
    const { index, remote } = this.#deps.inventory.tunnels.get(to) ?? {};
    return { to, from, mtu, isHub, of: [engine.pid, mtu, ...(isHub ? [] : [to, index, remote])].join(" ") };
  }

  /** ms until the next measurement. */
  inMs(): number {
    const measurable = this.#measuring === undefined ? this.#measurable() : undefined;
    if (measurable === undefined) return Number.POSITIVE_INFINITY;
    const now = this.#deps.monotonic();
    const isOften = !measurable.isHub && hasTraffic(this.#deps.inventory.tunnels.all, now);
    return this.#deps.pace.inMs(measurable.of, { isOften, isLost: this.lost !== undefined, now });
  }

  /** Whether packets of the full size reach a lighthouse that answers, which small ones do. One measurement at a time. */
  measure(): Promise<void> {
    this.#measuring ??= this.#measureOnce()
      .catch(() => undefined)
      .finally(() => {
        this.#measuring = undefined;
        this.#deps.onMeasured();
      });
    return this.#measuring;
  }

  async #measureOnce(): Promise<void> {
    const measurable = this.#measurable();
    if (measurable === undefined) return;
    const { open, system, monotonic, offloads, recentLog } = this.#deps;
    const { to, from, mtu, of, isHub } = measurable;
    this.#deps.pace.begin(of, this.lost !== undefined);
    try {
      const rttMs = this.#deps.prober.record(to)?.rttMs;
      const through = isHub ? undefined : await largestThrough(from, to, open, system, mtu, rttMs);
      if (typeof through === "object") this.lost = through.isFull ? undefined : { to, bytes: through.bytes };
      const { present } = this.#deps.inventory;
      if (present === undefined || (!isHub && (typeof through !== "object" || !through.isFull))) return;
      const { engine } = present;
      await offloads?.look({
        engine,
        from,
        to,
        name: this.#deps.inventory.nameOf(to),
        bytes: mtu,
        recentLog,
      });
    } finally {
      this.#deps.pace.end(monotonic());
    }
  }
}
