// Proves that the engine's offloads carry traffic, and turns them off where they do not: a driver or a filter may drop the
// large packets that kernel and engine exchange. Packets one by one do not show it, many at once do.

import { defer } from "../../../base/defer.ts";
import { formatTime } from "../../../base/quantities.ts";
import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { NoEcho, OpenEcho } from "../../../platform/network/echo-socket.ts";
import type { System } from "../../../base/system.ts";
import { readTrial, writeTrial, type DataPlane, type Trial } from "../../files/config/data-plane.ts";
import { seenDataPlane } from "../../files/config/data-plane-in-force.ts";
import { readSyncState } from "../../files/generations.ts";
import type { EngineSeen } from "../inventory.ts";

type Waits = Pick<System, "sleep">;
export type Together = "pass" | "lost" | "unknown" | NoEcho;

const count = 16;
const bursts = 4;
const answerMs = 1000;
/** How long a packet that goes alone waits for the answer to the one before. */
const aloneMs = 250;
const lookMs = 20;
/** Headers of IPv4 and ICMP. */
const headerBytes = 28;

/**
 * Whether packets that are sent at once pass as well as packets one by one. lost: in four bursts less than half of them pass,
 * and three quarters of the others.
 */
export async function packetsTogether(
  from: string,
  to: string,
  open: OpenEcho,
  system: Waits,
  bytes: number,
): Promise<Together> {
  const answered = new Set<number>();
  const socket = await open(from, ({ sequence }) => void answered.add(sequence));
  if (typeof socket === "string") return socket;
  let sequence = Math.floor(performance.now()) % 30_000;
  const passedOf = (sent: readonly number[]) => sent.filter((each) => answered.has(each)).length;
  const answers = async (sent: readonly number[], withinMs: number) => {
    for (let waited = 0; waited < withinMs && passedOf(sent) < sent.length; waited += lookMs)
      await system.sleep(lookMs);
  };
  const send = async (areAlone: boolean) => {
    const sent = Array.from({ length: count }, () => (sequence += 1));
    for (const each of sent) {
      socket.send(to, each, new Uint8Array(bytes - headerBytes));
      if (!areAlone) continue;
      await system.sleep(lookMs);
      // An engine that is late would take it together with the next one.
      await answers([each], aloneMs);
    }
    await answers(sent, answerMs);
    return passedOf(sent);
  };
  using _ = defer(() => socket.close());
  let [together, alone] = [0, 0];
  for (let burst = 0; burst < bursts; burst++) {
    together += await send(false);
    // Two, because the engine may be quick enough to take some packets of a burst one by one.
    if (burst === 1 && together >= (2 * count * 3) / 4) return "pass";
    alone += burst === 0 ? 0 : await send(true);
  }
  if (alone < (count * (bursts - 1) * 3) / 4) return "unknown";
  return together < (count * bursts) / 2 ? "lost" : "pass";
}

/** Twice a day: another network may have another driver. */
const againMs = 12 * 3_600_000;
/** While nothing is certain: a few times soon, then rarely. A trial is 300 KB. */
const soonMs = 60_000;
const triesSoon = 5;
const rarelyMs = 3_600_000;
/** After a trial that showed another cause for the loss, which may have ended. */
const clearedMs = 7 * 86_400_000;

export type OffloadDeps = {
  place: { slug: string; directory: string };
  kernel: string;
  /** Decides again (data-plane.ts), for the engine's next start. */
  decide(engine: string): Promise<void>;
  restart(): Promise<void>;
  log: Pick<Log, "warn" | "info">;
  open: OpenEcho;
  system: Pick<System, "now" | "sleep">;
};

export type Probed = {
  engine: EngineSeen;
  from: string;
  to: string;
  name: string;
  bytes: number;
  /** The last lines of the engine's log. */
  recentLog(): Promise<readonly string[]>;
};

export class OffloadTrial {
  readonly #deps: OffloadDeps;
  /** Which engine was measured last, when (ms since 1970), and how often in a row nothing was certain. */
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
    if (Math.abs(now - this.#last.at) < (isRare ? rarelyMs : soonMs))
      return !isRare && this.#last.uncertain > 0;
    const plane = readSyncState(place.directory)?.data_plane;
    if (engine === undefined || plane === undefined) return false;
    const trial = this.#present(engine);
    const inForce = this.#inForce(plane, probed.engine, now);
    if (!isDue(trial, inForce, pid, now)) return false;
    try {
      const together = await this.#measure(probed);
      const uncertain = together === "unknown" ? this.#last.uncertain + 1 : 0;
      this.#last = { pid, at: now, uncertain };
      await this.#act(probed, { engine, trial, inForce }, together);
      return uncertain > 0 && uncertain < triesSoon;
    } catch (error) {
      log.warn("Cannot change the offloads of an engine", { team: place.slug, reason: messageOf(error) });
      return false;
    }
  }

  /** The result for this engine and kernel. */
  #present(engine: string): Trial | undefined {
    const trial = readTrial(this.#deps.place.directory);
    return trial?.engine === engine && trial.kernel === this.#deps.kernel ? trial : undefined;
  }

  /** Undefined where root has decided: then nothing is changed. */
  #inForce(plane: DataPlane, { ageMs }: EngineSeen, now: number): boolean | undefined {
    if (plane.tun.by === "root" || plane.udp.by === "root") return undefined;
    const { data_plane: seen } = seenDataPlane(plane, now - ageMs);
    return seen?.tun_offloads === true || seen?.udp_offloads === true;
  }

  #measure({ from, to, bytes }: Probed): Promise<Together> {
    const { open, system } = this.#deps;
    return packetsTogether(from, to, open, system, bytes);
  }

  async #act(
    { engine: { pid }, name, recentLog }: Probed,
    { engine, trial, inForce }: { engine: string; trial: Trial | undefined; inForce: boolean | undefined },
    together: Together,
  ): Promise<void> {
    const { place, kernel, log, decide, restart, system } = this.#deps;
    if (together !== "pass" && together !== "lost") return;
    const doPass = together === "pass";
    const write = (state: Trial["state"], reason: string, unsegmented = false) =>
      writeTrial(place.directory, {
        state,
        engine,
        kernel,
        reason,
        pid,
        at: formatTime(system.now()),
        ...(unsegmented ? { unsegmented } : {}),
      });
    const about = { team: place.slug, peer: name, engine, kernel };
    if (inForce === true && doPass) {
      const wasUnsegmented = trial?.pid === pid && trial.unsegmented === true;
      const unsegmented = wasUnsegmented || sendsOneByOne(await recentLog().catch(() => []));
      write("passed", "", unsegmented);
      if (unsegmented) await decide(engine);
    } else if (inForce === true) {
      write(
        "trial",
        `Offloads are off to see whether they lose packets: those sent together to ${name} were lost`,
      );
      log.warn("Packets that are sent together are lost: restarting the engine without offloads", about);
      await decide(engine);
      await restart();
    } else if (trial?.state === "trial" && doPass) {
      const reason = `Offloads are off: with them, packets sent together to ${name} were lost; without them they pass (engine ${engine}, kernel ${kernel})`;
      write("off", reason);
      log.warn("Without offloads the packets pass: they stay off with this engine and this kernel", about);
      await decide(engine);
    } else if (trial?.state === "trial") {
      write("cleared", "");
      log.warn("The packets are lost without offloads too: turning them on again", about);
      await decide(engine);
      await restart();
    }
  }
}

/** Whether the engine found by itself that the kernel takes no large packets: since its start, which the log may no longer show. */
function sendsOneByOne(lines: readonly string[]): boolean {
  const last = (words: string) => lines.findLastIndex((line) => line.includes(words));
  return last("kernel rejected GSO send") > last("udp: GSO enabled");
}

function isDue(trial: Trial | undefined, inForce: boolean | undefined, pid: number, now: number): boolean {
  if (inForce === undefined) return false;
  if (!inForce) return trial?.state === "trial" && trial.pid !== pid;
  if (trial === undefined) return true;
  const age = Math.abs(now - Date.parse(trial.at));
  return trial.state === "cleared" ? age >= clearedMs : trial.pid !== pid || age >= againMs;
}
