// Chooses the relays through which other nodes may reach this one. Two of them are enough to survive the loss of one, and
// each further one costs every peer handshakes. The shortest round trips win; among similar ones a hash decides, so that
// nodes spread over the relays, also those of a relay that was lost. Pure.

export type RelaySeen = {
  rttMs: number | undefined;
  /** The relay answered probes, and has stopped. */
  isBroken: boolean;
};

/** `chosen`: overlay addresses. `reviewAt`: before this time, in monotonic ms, only the loss of a relay changes the choice. */
export type RelayChoice = { chosen: readonly string[]; reviewAt: number };

export const mostRelays = 2;
/** So many relays are probed to compare their round trips. */
const mostCandidates = 4;
/** Until the review of the first choice, which knew no round trips. */
const firstReviewMs = 45_000;
const reviewEveryMs = 600_000;
/** Other relays must be this much faster, and take at most this share of the time, to be chosen instead: each change is a reload. */
const leastGainMs = 10;
const leastShare = 0.7;
/** Round trip of a relay that was not measured. */
const unknownRttMs = 10_000;

/** The relays that a node measures, in the order of its own hash. */
export function relayCandidates(all: readonly string[], own: string): string[] {
  const weight = (relay: string) => Bun.hash(`${own} ${relay}`);
  return [...new Set(all)].toSorted((a, b) => (weight(a) < weight(b) ? -1 : 1)).slice(0, mostCandidates);
}

/** Undefined: there are so few that all are used. */
export function chooseRelays(
  before: RelayChoice | undefined,
  /** By overlay address, in the order of relayCandidates. */
  seen: ReadonlyMap<string, RelaySeen>,
  now: number,
): RelayChoice | undefined {
  const candidates = [...seen.keys()];
  if (candidates.length <= mostRelays) return undefined;
  const isLost = (relay: string) => seen.get(relay)?.isBroken === true;
  const cost = (relay: string) => seen.get(relay)?.rttMs ?? unknownRttMs;
  // Stable, so that similar round trips keep the order of the hash.
  const ranked = candidates.toSorted(
    (a, b) => Number(isLost(a)) - Number(isLost(b)) || stepOf(cost(a)) - stepOf(cost(b)),
  );
  if (before === undefined) return { chosen: ranked.slice(0, mostRelays), reviewAt: now + firstReviewMs };
  const next = (chosen: readonly string[]) => ({ chosen, reviewAt: now + reviewEveryMs });
  const kept = before.chosen.filter((relay) => candidates.includes(relay) && !isLost(relay));
  if (kept.length < mostRelays) {
    const chosen = [...kept, ...ranked.filter((relay) => !kept.includes(relay))].slice(0, mostRelays);
    // While all others are lost too, keep the choice: one is as good as another.
    return chosen.every((relay) => before.chosen.includes(relay)) ? before : next(chosen);
  }
  if (now < before.reviewAt) return before;
  const sum = (relays: readonly string[]) => relays.reduce((total, relay) => total + cost(relay), 0);
  const best = ranked.slice(0, mostRelays);
  const chosenMs = sum(before.chosen);
  const bestMs = sum(best);
  const isBetter = bestMs < chosenMs * leastShare && chosenMs - bestMs >= leastGainMs;
  return next(isBetter ? best : before.chosen);
}

/** Round trips of one step count as equal: up to 5 ms, up to 10, up to 20, and so on. */
function stepOf(ms: number): number {
  return Math.max(0, Math.ceil(Math.log2(ms / 5)));
}
