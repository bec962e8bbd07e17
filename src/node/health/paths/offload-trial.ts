// Proves that the engine's offloads carry traffic, and turns them off where they do not: a driver or a filter may drop the
// large packets that kernel and engine exchange. Packets one by one do not show it, many at once do.

import { measureBurstLoss, type BurstLoss } from "./burst-loss.ts";
import { formatTime } from "../../../base/quantities.ts";
import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { OpenEcho } from "../../../platform/network/echo-socket.ts";
import type { System } from "../../../base/system.ts";
import { readTrial, writeTrial, type DataPlane, type Trial } from "../../files/config/data-plane.ts";
import { shownDataPlane } from "../../files/config/data-plane-in-force.ts";
import { readSyncState } from "../../files/generations.ts";
import type { EngineSeen } from "../inventory.ts";

/** Offloads that work are measured again after this time: another network may have another driver. */
const workingMs = 12 * 3_600_000;
/** After an uncertain result: a few times soon, then rarely. A measurement is 300 KB. */
const soonMs = 60_000;
const triesSoon = 5;
const rarelyMs = 3_600_000;
/** After a trial without offloads lost packets too, so offloads were not the cause. The cause may have ended by then. */
const clearedMs = 7 * 86_400_000;

type OffloadDeps = {
  place: { slug: string; directory: string };
  kernel: string;
  /** Decides anew which offloads the engine gets at its next start, by the saved trial (data-plane.ts). */
  decide(engine: string): Promise<void>;
  restart(): Promise<void>;
  log: Pick<Log, "warn" | "info">;
  open: OpenEcho;
  system: Pick<System, "now" | "sleep">;
};

/** A path whose peer answers. `from`, `to`: overlay addresses. `name`: of the peer. `bytes`: of one packet. */
export type Probed = {
  engine: EngineSeen;
  from: string;
  to: string;
  name: string;
  bytes: number;
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
};

type TrialFacts = {
  engine: string;
  /** The last result for this engine and kernel. */
  trial: Trial | undefined;
  offloads: Offloads;
};

/** Whether the running engine uses offloads. by root: root has decided, so nothing is changed. */
type Offloads = "on" | "off" | "by root";

export class OffloadTrial {
  readonly #deps: OffloadDeps;
  /** The last measurement: the engine's process id, the time (ms since 1970), and how many in a row were uncertain. */
  #last = { pid: 0, at: 0, uncertain: 0 };

  constructor(deps: OffloadDeps) {
    this.#deps = deps;
  }

  /** Measures if it is time, and acts on the result. Returns whether it is to be called soon again. Does not reject. */
  async tryIfDue(probed: Probed): Promise<boolean> {
    const { place, log, system } = this.#deps;
    const now = system.now();
    const { version: engine, pid } = probed.engine;
    if (pid !== this.#last.pid) this.#last = { pid, at: Number.NEGATIVE_INFINITY, uncertain: 0 };
    const isRare = this.#last.uncertain >= triesSoon;
    // Math.abs: the clock may have been set back.
    if (Math.abs(now - this.#last.at) < (isRare ? rarelyMs : soonMs))
      return !isRare && this.#last.uncertain > 0;
    const dataPlane = readSyncState(place.directory)?.data_plane;
    if (engine === undefined || dataPlane === undefined) return false;
    const trial = this.#resultFor(engine);
    const offloads = this.#offloadsNow(dataPlane, probed.engine, now);
    if (!isDue(trial, offloads, pid, now)) return false;
    try {
      const result = await measureBurstLoss(probed, this.#deps);
      const uncertain = result === "unknown" ? this.#last.uncertain + 1 : 0;
      this.#last = { pid, at: now, uncertain };
      await this.#act(probed, { engine, trial, offloads }, result);
      return uncertain > 0 && uncertain < triesSoon;
    } catch (error) {
      log.warn("Cannot change the offloads of an engine", { team: place.slug, reason: messageOf(error) });
      return false;
    }
  }

  /** The last result for this engine and kernel. */
  #resultFor(engine: string): Trial | undefined {
    const trial = readTrial(this.#deps.place.directory);
    return trial?.engine === engine && trial.kernel === this.#deps.kernel ? trial : undefined;
  }

  #offloadsNow(dataPlane: DataPlane, { ageMs }: EngineSeen, now: number): Offloads {
    if (dataPlane.tun.by === "root" || dataPlane.udp.by === "root") return "by root";
    const { data_plane: seen } = shownDataPlane(dataPlane, now - ageMs);
    return seen?.tun_offloads === true || seen?.udp_offloads === true ? "on" : "off";
  }

  /**
   * With offloads: if packets pass, that is noted; if they are lost, the engine is restarted without offloads, for a trial. In that trial:
   * if packets pass, offloads stay off; if they are lost too, offloads are not the cause, and are turned on again.
   */
  async #act(probed: Probed, known: TrialFacts, result: BurstLoss): Promise<void> {
    if (result !== "pass" && result !== "lost") return;
    const { offloads, trial } = known;
    if (offloads === "on")
      return result === "pass" ? this.#notePassed(probed, known) : this.#tryWithout(probed, known);
    if (trial?.state !== "trial") return;
    return result === "pass" ? this.#keepOff(probed, known) : this.#turnOnAgain(probed, known);
  }

  /** Also notes whether the engine itself has turned to single packets, which `status` shows. That holds until the engine ends. */
  async #notePassed({ engine: { pid }, recentLog }: Probed, { engine, trial }: TrialFacts): Promise<void> {
    const wasUnsegmented = trial?.pid === pid && trial.unsegmented === true;
    const unsegmented = wasUnsegmented || sendsOneByOne(await recentLog().catch(() => []));
    this.#write("passed", "", { engine, pid, unsegmented });
    if (unsegmented) await this.#deps.decide(engine);
  }

  async #tryWithout({ engine: { pid }, name }: Probed, { engine }: TrialFacts): Promise<void> {
    const reason = `Offloads are off to see whether they lose packets: those sent together to ${name} were lost`;
    this.#write("trial", reason, { engine, pid });
    this.#warn(
      "Packets that are sent together are lost: restarting the engine without offloads",
      name,
      engine,
    );
    await this.#deps.decide(engine);
    await this.#deps.restart();
  }

  async #keepOff({ engine: { pid }, name }: Probed, { engine }: TrialFacts): Promise<void> {
    const reason = `Offloads are off: with them, packets sent together to ${name} were lost; without them they pass (engine ${engine}, kernel ${this.#deps.kernel})`;
    this.#write("off", reason, { engine, pid });
    this.#warn(
      "Without offloads the packets pass: they stay off with this engine and this kernel",
      name,
      engine,
    );
    await this.#deps.decide(engine);
  }

  async #turnOnAgain({ engine: { pid }, name }: Probed, { engine }: TrialFacts): Promise<void> {
    this.#write("cleared", "", { engine, pid });
    this.#warn("The packets are lost without offloads too: turning them on again", name, engine);
    await this.#deps.decide(engine);
    await this.#deps.restart();
  }

  #write(
    state: Trial["state"],
    reason: string,
    { engine, pid, unsegmented = false }: { engine: string; pid: number; unsegmented?: boolean },
  ): void {
    const { place, kernel, system } = this.#deps;
    const at = formatTime(system.now());
    const trial = { state, engine, kernel, reason, pid, at, ...(unsegmented ? { unsegmented } : {}) };
    writeTrial(place.directory, trial);
  }

  #warn(what: string, peer: string, engine: string): void {
    const { place, kernel, log } = this.#deps;
    log.warn(what, { team: place.slug, peer, engine, kernel });
  }
}

/** Whether the engine found, since its start, that the kernel takes no large packets. The log may no longer reach back so far. */
function sendsOneByOne(lines: readonly string[]): boolean {
  const last = (words: string) => lines.findLastIndex((line) => line.includes(words));
  return last("kernel rejected GSO send") > last("udp: GSO enabled");
}

/**
 * With offloads: at first, after a start of the engine, and now and then. Without: only the engine that was just restarted without
 * them, to see whether that helps.
 */
function isDue(trial: Trial | undefined, offloads: Offloads, pid: number, now: number): boolean {
  if (offloads === "by root") return false;
  if (offloads === "off") return trial?.state === "trial" && trial.pid !== pid;
  if (trial === undefined) return true;
  const age = Math.abs(now - Date.parse(trial.at));
  return trial.state === "cleared" ? age >= clearedMs : trial.pid !== pid || age >= workingMs;
}
