// Decides which router of a network this node uses: the lowest metric that answers, among equals the nearest. A router
// that failed comes back only after a while of answers, longer after each relapse. Pure.

export type RouterSeen = {
  /** The router's overlay address. */
  via: string;
  metric: number;
  /** The router answers, or its first silence is too short to count. */
  isAlive: boolean;
  /** Since when it answers without a gap, monotonic ms. */
  aliveSince: number | undefined;
  rttMs: number | undefined;
  /** Whether it has answered since this program runs. */
  hasAnswered: boolean;
};

export type RouterChoice = {
  via: string;
  /** Monotonic ms of the next comparison of round trips. */
  reviewAt: number;
  /** Failures while in use, by router. */
  failed: Readonly<Record<string, { at: number; times: number }>>;
};

export type Decision = {
  choice: RouterChoice;
  /** The former router works, so open flows may stay with it until they end. */
  isPlanned: boolean;
};

const second = 1000;
/** Round trips are first compared after this time: by then the first answers have come. */
const firstReviewMs = 5 * second;
const reviewEveryMs = 60 * second;
/** How long a router must answer before it is used again; doubled after each relapse. */
const holdMs = 10 * second;
const longestHoldMs = 300 * second;
/** After this time without a failure, the hold is short again. */
const forgetMs = 1800 * second;
/** A nearer router takes over if its round trip is at most this share, and shorter by this time: round trips vary. */
const leastShare = 0.7;
const leastGainMs = 10;

/**
 * `routers`: those that the control plane names, the preferred one first. `before`: the last choice; undefined: this program has
 * not chosen yet. Returns undefined if there is no router.
 */
export function chooseRouter(
  before: RouterChoice | undefined,
  routers: readonly RouterSeen[],
  now: number,
): Decision | undefined {
  // Undefined: none was chosen yet, or the control plane does not name that one any more.
  const inUse = routers.find(({ via }) => via === before?.via);
  const alive = routers.filter((each) => each.isAlive && each.aliveSince !== undefined);
  const ranked = alive.toSorted((a, b) => a.metric - b.metric || rttOf(a) - rttOf(b));
  if (before === undefined || inUse === undefined) {
    const first = ranked[0] ?? routers[0];
    if (first === undefined) return undefined;
    const failed = before?.failed ?? {};
    return {
      choice: { via: first.via, reviewAt: now + firstReviewMs, failed },
      isPlanned: false,
    };
  }
  if (inUse.isAlive) return whileItWorks(before, inUse, ranked, now);
  const [next] = ranked;
  return next === undefined
    ? { choice: { ...before, via: viaWithoutAnswer(before, routers) }, isPlanned: true }
    : { choice: afterFailure(before, next, now), isPlanned: false };
}

/**
 * The router while none answers. If some have answered, keep the one in use: this node itself may have lost its network. If none ever has,
 * they may refuse pings: take the one that the control plane prefers.
 */
function viaWithoutAnswer({ via }: RouterChoice, routers: readonly RouterSeen[]): string {
  return routers.some(({ hasAnswered }) => hasAnswered) ? via : (routers[0]?.via ?? via);
}

/** The router in use has failed: `next` takes over. */
function afterFailure(before: RouterChoice, next: RouterSeen, now: number): RouterChoice {
  const { times = 0, at = 0 } = before.failed[before.via] ?? {};
  const failure = { at: now, times: now - at < forgetMs ? times + 1 : 1 };
  const failed = { ...before.failed, [before.via]: failure };
  return { via: next.via, reviewAt: now + reviewEveryMs, failed };
}

/** The router in use works: a preferred one takes over at once, a nearer one at the next review. */
function whileItWorks(
  before: RouterChoice,
  inUse: RouterSeen,
  ranked: readonly RouterSeen[],
  now: number,
): Decision {
  const isStable = ({ via, aliveSince }: RouterSeen) => now - (aliveSince ?? now) >= holdOf(before, via, now);
  const preferred = ranked.find((each) => each.metric < inUse.metric && isStable(each));
  if (preferred !== undefined)
    return { choice: { ...before, via: preferred.via, reviewAt: now + reviewEveryMs }, isPlanned: true };
  if (now < before.reviewAt) return { choice: before, isPlanned: true };
  const nearer = ranked.find(
    (each) =>
      each.metric === inUse.metric &&
      isNearer(each, inUse) &&
      (before.failed[each.via] === undefined || isStable(each)),
  );
  return {
    choice: { ...before, via: (nearer ?? inUse).via, reviewAt: now + reviewEveryMs },
    isPlanned: true,
  };
}

const rttOf = ({ rttMs }: RouterSeen) => rttMs ?? Number.POSITIVE_INFINITY;

function isNearer(one: RouterSeen, other: RouterSeen): boolean {
  const ownMs = rttOf(one);
  const otherMs = rttOf(other);
  return ownMs < otherMs * leastShare && otherMs - ownMs >= leastGainMs;
}

/** How long a router must have answered before it is used again. */
function holdOf({ failed }: RouterChoice, via: string, now: number): number {
  const failure = failed[via];
  if (failure === undefined || now - failure.at > forgetMs) return holdMs;
  return Math.min(longestHoldMs, holdMs * 2 ** (failure.times - 1));
}
