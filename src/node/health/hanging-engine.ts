// Decides whether an engine hangs: its process is there, its control socket accepts connections but does not answer, and no
// peer answers probes. An engine whose socket alone is silent still carries traffic, and must not be restarted.

import { AppError } from "../../base/errors.ts";
import type { ProcessIdentity } from "../../platform/process-identity.ts";
import type { LocalApi, Tunnel } from "../engine/local-api.ts";
import { isAbsent } from "../engine/control-exchange.ts";

/** Beside an engine's log: its last lines before the agent restarted it because it hung. */
export const hangLog = (logPath: string): string => `${logPath}.hang`;

/** An engine hangs after so many questions in a row without an answer. The socket is asked every 10 s, and may take 2 s. */
const missesOfHang = 3;
/** An engine that hangs had no answer to any probe for this time. */
const silentMs = 30_000;
/** An engine that hangs again is left as it is: a restart does not cure it. */
const onceInMs = 3_600_000;

export class HangWatch {
  /** The engine that did not answer, as its process id and start time. */
  #process = "";
  /** Its questions without an answer, in a row. */
  #misses = 0;
  #restartedAt: number;

  /** `restartedAt`: monotonic ms of the last restart, by an earlier process. */
  constructor(restartedAt = Number.NEGATIVE_INFINITY) {
    this.#restartedAt = restartedAt;
  }

  noteAnswer(): void {
    this.#misses = 0;
  }

  /**
   * After a question without an answer. Returns whether this process must be restarted now. `answeredAt`: when any probe was
   * answered last. Both times are monotonic ms.
   */
  noteMiss({ pid, started }: ProcessIdentity, answeredAt: number, now: number): boolean {
    const process = `${pid} ${started}`;
    this.#misses = process === this.#process ? this.#misses + 1 : 1;
    this.#process = process;
    if (this.#misses < missesOfHang || now - answeredAt < silentMs) return false;
    // A restart in the future was noted by a clock that was set back since.
    if (Math.abs(now - this.#restartedAt) < onceInMs) return false;
    this.#restartedAt = now;
    return true;
  }
}

export type Hanging = {
  api: Pick<LocalApi, "hostmap">;
  process(): Promise<ProcessIdentity | undefined> | ProcessIdentity | undefined;
  /** Monotonic ms of the last answer of any probe. */
  answeredAt(): number;
  monotonic(): number;
  /** Does not reject. */
  restart(process: ProcessIdentity): Promise<void>;
};

/** Asks the engine for its tunnels, and restarts it if it hangs. Rejects as the question does. */
export async function tunnelsOrRestart(watch: HangWatch, deps: Hanging): Promise<Tunnel[]> {
  try {
    const found = await deps.api.hostmap();
    watch.noteAnswer();
    return found;
  } catch (error) {
    const isSilent = error instanceof AppError && error.code === "engine_unreachable" && !isAbsent(error);
    const process = isSilent ? await deps.process() : undefined;
    if (process !== undefined && watch.noteMiss(process, deps.answeredAt(), deps.monotonic()))
      void deps.restart(process);
    throw error;
  }
}
