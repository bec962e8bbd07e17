// The queue of password hashes. A few run at a time (`atOnce` in hash-passwords.ts says how many). Users, sources (networks, devices)
// and the domains of addresses get turns one after the other, so that one with many sign-ins delays others by a few hashes. Known
// sources have a lane of their own with every second turn: a flood from new networks does not keep users out.

import { defer } from "../../../base/defer.ts";
import { AppError } from "../../../base/errors.ts";

/**
 * The owner of a hash. `source`: the network, or the device if it is known. `domain`: that of the address, which
 * mostly stands for one organization. Using the organization itself would reveal by the time whether the user exists.
 * `isKnown`: the user has signed in from this network, or with this device, before.
 */
export type Turn = { user: string; source: string; domain?: string; isKnown: boolean };

/** Runs the work when it is the turn of its user and source. Throws throttled if the queue is full. */
export type InTurn = <T>(turn: Turn, work: () => Promise<T>) => Promise<T>;

/** A sign-in that waits. `since`: the number of turns before it came. */
type Waiting = Turn & { since: number; start(): void; refuse(error: AppError): void };

/** `turnedAway`: how many refused sign-ins are likely to come back, which later ones have to wait for. */
type Lane = { waiting: Set<Waiting>; turnedAway: number };

/** Forgotten users, sources and domains wait like new ones. */
const maxRemembered = 1000;

/**
 * Refused sign-ins get different times to retry, so that they do not all come back at once: about as many in a second
 * as get their turn.
 */
const againPerS = 16;
const firstAgainS = 2;
const lastAgainS = 60;

/** `atOnce`: hashes that run at a time. `maxWaiting`: sign-ins that wait, in each of the two lanes. */
export function makeTurns(atOnce: number, maxWaiting: number): InTurn {
  const order = makeOrder();
  const makeLane = (): Lane => ({ waiting: new Set(), turnedAway: 0 });
  const lanes = { known: makeLane(), others: makeLane() };
  let running = 0;
  /** The last turn was one of a known source. */
  let wasKnown = false;
  /** Called when a hash is done: the next one takes its place among those that run. */
  const startNext = () => {
    const [preferred, other] = wasKnown ? [lanes.others, lanes.known] : [lanes.known, lanes.others];
    const lane = preferred.waiting.size > 0 ? preferred : other;
    const next = order.first(lane.waiting);
    if (next === undefined) {
      running--;
      return;
    }
    lane.waiting.delete(next);
    lane.turnedAway = lane.waiting.size === 0 ? 0 : Math.max(0, lane.turnedAway - 1);
    wasKnown = next.isKnown;
    order.served(next);
    next.start();
  };
  const wait = (turn: Turn) =>
    new Promise<void>((start, refuse) => {
      const lane = turn.isKnown ? lanes.known : lanes.others;
      const { waiting } = lane;
      waiting.add({ ...turn, since: order.now(), start, refuse });
      if (waiting.size <= maxWaiting) return;
      const excess = mostCrowded(waiting);
      if (excess === undefined) return;
      waiting.delete(excess);
      const laterS = Math.floor(lane.turnedAway++ / againPerS);
      excess.refuse(queueFull(firstAgainS + (laterS % (lastAgainS - firstAgainS))));
    });
  return async (turn, work) => {
    if (running < atOnce) {
      running++;
      order.served(turn);
    } else await wait(turn);
    using _ = defer(() => startNext());
    return await work();
  };
}

/** Remembers when users, sources and domains had their last turn. Time is the number of turns so far. */
function makeOrder() {
  const lastTurns = new Map<string, number>();
  let turns = 0;
  const remember = (key: string) => {
    lastTurns.delete(key);
    lastTurns.set(key, turns);
    const oldest = lastTurns.keys().next();
    if (lastTurns.size > maxRemembered && oldest.done !== true) lastTurns.delete(oldest.value);
  };
  return {
    now: () => turns,
    served(turn: Turn) {
      turns++;
      for (const key of keysOf(turn)) remember(key);
    },
    /**
     * The waiting item whose user, source and domain have all waited longest for a turn. New ones count from their
     * arrival: otherwise invented users would always go first.
     */
    first(lane: ReadonlySet<Waiting>): Waiting | undefined {
      return least([...lane], (each) =>
        laterFirst(keysOf(each).map((key) => lastTurns.get(key) ?? each.since)),
      );
    },
  };
}

/** The newest of the user, source or domain that fills most of the lane. */
function mostCrowded(lane: ReadonlySet<Waiting>): Waiting | undefined {
  const waiting = [...lane].reverse();
  const counts = new Map<string, number>();
  for (const key of waiting.flatMap(keysOf)) counts.set(key, (counts.get(key) ?? 0) + 1);
  return least(waiting, (each) => laterFirst(keysOf(each).map((key) => counts.get(key) ?? 0)).map((n) => -n));
}

function keysOf({ user, source, domain }: Turn): string[] {
  return [`user ${user}`, `source ${source}`, ...(domain === undefined ? [] : [`domain ${domain}`])];
}

/** Compared in this order: the latest turn decides first. */
function laterFirst(times: readonly number[]): number[] {
  return times.toSorted((a, b) => b - a);
}

/** The first item of the smallest rank. */
function least<T>(items: readonly T[], rankOf: (item: T) => readonly number[]): T | undefined {
  let found: { item: T; rank: readonly number[] } | undefined;
  for (const item of items) {
    const rank = rankOf(item);
    if (found === undefined || isLess(rank, found.rank)) found = { item, rank };
  }
  return found?.item;
}

function isLess(one: readonly number[], other: readonly number[]): boolean {
  const at = one.findIndex((each, index) => each !== other[index]);
  return at >= 0 && (one[at] ?? 0) < (other[at] ?? -Infinity);
}

function queueFull(retryAfter: number): AppError {
  const message = `Too many users are signing in at the moment. Try again in ${retryAfter} seconds.`;
  return new AppError("throttled", message, { retryAfter });
}
