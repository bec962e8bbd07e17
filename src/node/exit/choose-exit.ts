// Decides which exit this machine uses: it stays with an exit that answers. After one that does not, it tries the nearest of the
// others. Pure.

import type { Exit, ExitUse } from "../files/granted/exits.ts";

/** One round of use-exit.ts, in ms. */
export const roundMs = 1000;
/** An exit without an answer for this long is dead. The one in use is asked each round. */
const deadMs = 3000;
/** How often the other exits are asked. */
export const othersEveryMs = 4000;
/** An exit that is tried has this time to answer first. */
export const graceMs = 2500;
/** An exit that was left is not tried again for this long. */
const restMs = 30_000;

/** The last echo of an exit: its arrival in monotonic ms, and its round trip. */
export type ExitEcho = { at: number; rttMs: number };

type ExitHistory = {
  /** Monotonic ms, as all times here. */
  now: number;
  /**
   * By overlay address. The exit in use is asked at an address inside of it (`insideExit`): at its overlay address it would answer even if
   * it does not forward.
   */
  heard: ReadonlyMap<string, ExitEcho>;
  /** Since when the exit in use is tried. */
  triedAt: number;
  /** When other exits were left, by overlay address. */
  leftAt: ReadonlyMap<string, number>;
};

/** `isSure`: the exit had enough time to answer, so `isAlive` is final. */
export type Choice = { exit: Exit | undefined; isAlive: boolean; isSure: boolean };

export function chooseExit(
  { candidates, exit }: ExitUse,
  { now, heard, triedAt, leftAt }: ExitHistory,
): Choice {
  const isHeard = ({ ip }: Exit, withinMs: number) => now - (heard.get(ip)?.at ?? -Infinity) < withinMs;
  if (exit !== undefined && isHeard(exit, deadMs)) return { exit, isAlive: true, isSure: true };
  // Wait for the exit in use, also before others are looked at: the first answer need not be that of the best one.
  if (now - triedAt <= graceMs) return { exit, isAlive: false, isSure: false };
  const [nearest] = candidates
    // It answered when it was asked last.
    .filter((each) => each !== exit && isHeard(each, othersEveryMs + roundMs))
    .filter(({ ip }) => now - (leftAt.get(ip) ?? -Infinity) > restMs)
    .toSorted((a, b) => (heard.get(a.ip)?.rttMs ?? 0) - (heard.get(b.ip)?.rttMs ?? 0));
  if (nearest !== undefined) return { exit: nearest, isAlive: false, isSure: false };
  return { exit, isAlive: false, isSure: true };
}
