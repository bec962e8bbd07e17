// Decides whether an engine hangs: its process is there, its control socket accepts connections but does not answer, and no
// peer answers probes. An engine whose socket alone is silent still carries traffic, and must not be restarted.

import type { ProcessIdentity } from "../../platform/process-identity.ts";

/** The socket is asked every 10 s, and may take 2 s. */
const missesOfHang = 3;
const silentMs = 30_000;
/** An engine that hangs again is left as it is: a restart does not cure it. */
const onceInMs = 3_600_000;

export class HangWatch {
  #process = "";
  #misses = 0;
  #restartedAt = Number.NEGATIVE_INFINITY;

  answered(): void {
    this.#misses = 0;
  }

  /** After a question without an answer. True if this process must be restarted now. `answeredAt`: of any probe. */
  missed({ pid, started }: ProcessIdentity, answeredAt: number, now: number): boolean {
    const process = `${pid} ${started}`;
    this.#misses = process === this.#process ? this.#misses + 1 : 1;
    this.#process = process;
    if (this.#misses < missesOfHang || now - answeredAt < silentMs) return false;
    if (now - this.#restartedAt < onceInMs) return false;
    this.#restartedAt = now;
    return true;
  }
}
