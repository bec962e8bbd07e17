// How soon a loop of check-ins asks again, and how long the server may hold the next request. Pauses are randomized, so that
// the nodes of a server that returns do not come all at once.

import { AppError } from "../../base/errors.ts";
import { maxPollWaitS } from "../../protocol/checkin.ts";
import type { System } from "../../base/system.ts";

const revokedPauseMs = 10_000;
/** Pause between check-ins with a server that does not hold requests. */
const unheldPauseMs = 1000;
/** An answer within this time was not held. */
const heldAtLeastMs = 100;
/** Longest pause after a poll that broke: behind a proxy, another server may answer at once. */
const brokenPauseMs = 900;
/** Pause after a failure. Long, because all nodes notice a restart of the control plane at the same moment. */
const firstPauseMs = 4000;
/** The longest pause, whatever the answer asks for: anything on the path can send Retry-After, and a revocation must arrive. */
const longestPauseMs = 60_000;

/** The result of a check-in. */
type Outcome = { isApplied: boolean; isRevoked: boolean; hasChanged: boolean; tookMs: number };

export type Pace = {
  /** How to send the next check-in, with this time left. `repeatable`: it may be sent again after a failed connection. */
  next(leftS: number): { waitS: number; repeatable: boolean };
  /** ms to pause after an answer. */
  answered(outcome: Outcome): number;
  /** ms to pause after a check-in without a usable answer. */
  failed(error: unknown): number;
  /** Whether the last result was the first failure in a row. */
  isFirstFailure(): boolean;
};

export function makePace(system: Pick<System, "random">): Pace {
  /** Failures in a row, of check-ins or of applying what they brought. */
  let failures = 0;
  /** `none`: there was no check-in yet. The first one is not held, so that the server answers at once. */
  let last: "none" | "answered" | "broken" | "failed" = "none";
  let waitS = 0;

  /** From 0 to 1, evenly distributed. */
  const share = () => {
    const [high = 0, low = 0] = system.random(2);
    return (256 * high + low) / 65_536;
  };
  /** Between half of `ms` and all of it. */
  const jitter = (ms: number) => ms * (0.5 + share() / 2);
  /** Counts a failure. Returns the pause after it, in ms. */
  const fail = () => {
    failures++;
    last = "failed";
    // Doubles up to a minute.
    const limit = Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(failures - 1, 10));
    return failures === 1 ? limit * share() : jitter(limit);
  };

  return {
    next(leftS) {
      waitS = last === "answered" ? Math.max(0, Math.min(maxPollWaitS, Math.floor(leftS))) : 0;
      // After a broken poll, repeats would bring all nodes of a server that restarts in the same second.
      return { waitS, repeatable: waitS === 0 && last !== "broken" };
    },
    answered({ isApplied, isRevoked, hasChanged, tookMs }) {
      // Try a rolled back configuration again, with growing pauses.
      if (!isApplied) return fail();
      failures = 0;
      last = "answered";
      if (isRevoked) return jitter(revokedPauseMs);
      // No busy loop with a server that does not hold requests or always announces news.
      return waitS > 0 && !hasChanged && tookMs < heldAtLeastMs ? jitter(unheldPauseMs) : 0;
    },
    failed(error) {
      const askedMs = retryAfterMs(error);
      // The server that held the poll may be gone, and another one there. If the next check-in fails too, that counts.
      if (waitS > 0 && askedMs === 0) {
        last = "broken";
        return brokenPauseMs * share();
      }
      // Add a random part: all nodes get the same Retry-After.
      const wanted = askedMs + fail();
      return wanted > longestPauseMs ? jitter(longestPauseMs) : wanted;
    },
    isFirstFailure: () => last === "failed" && failures === 1,
  };
}

function retryAfterMs(error: unknown): number {
  return error instanceof AppError ? Math.max(0, (error.details.retryAfter ?? 0) * 1000) : 0;
}
