// The queue of password hashes. A few run at a time. Users and sources (networks, devices) get turns one after the
// other, so that one with many sign-ins delays others by a few hashes. Known sources have a lane of their own with every
// second turn: a flood from new networks does not keep users out.

import { AppError } from "../../errors.ts";

/** On whose behalf a password is hashed. `source`: the network, or the device if it is known. */
export type Turn = { user: string; source: string; isKnown: boolean };

/** Runs the work when it is the turn of its user and source. Throws throttled if the queue is full. */
export type InTurn = <T>(turn: Turn, work: () => Promise<T>) => Promise<T>;

type Waiting = Turn & { since: number; start(): void; refuse(error: AppError): void };

/** Waiting ones, and how many more will try again. */
type Lane = { waiting: Set<Waiting>; turnedAway: number };

/** Forgotten users and sources wait like new ones. */
const maxRemembered = 1000;

/**
 * Refused ones are told different times, so that they do not all come back at once: about as many in a second as get their
 * turn.
 */
const againPerS = 16;
const firstAgainS = 2;
const lastAgainS = 60;

/** `maxWaiting`: in each of the two lanes. */
export function makeTurns(atOnce: number, maxWaiting: number): InTurn {
  const order = makeOrder();
  const makeLane = (): Lane => ({ waiting: new Set(), turnedAway: 0 });
  const lanes = { known: makeLane(), others: makeLane() };
  let running = 0;
  let wasKnown = false;
  const startNext = () => {
    const [first, second] = wasKnown ? [lanes.others, lanes.known] : [lanes.known, lanes.others];
    const lane = first.waiting.size > 0 ? first : second;
    const next = order.first(lane.waiting);
    if (next === undefined) return void running--;
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
    try {
      return await work();
    } finally {
      startNext();
    }
  };
}

/** Remembers when users and sources had their last turn. Time is the number of turns so far. */
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
    served({ user, source }: Turn) {
      turns++;
      remember(`user ${user}`);
      remember(`source ${source}`);
    },
    /**
     * The one whose user and source have both waited longest for a turn. New ones wait since they came: otherwise invented
     * users would always go first.
     */
    first(lane: ReadonlySet<Waiting>): Waiting | undefined {
      const sinceLastTurn = ({ user, source, since }: Waiting) =>
        [lastTurns.get(`user ${user}`) ?? since, lastTurns.get(`source ${source}`) ?? since] as const;
      return least([...lane], (each) => laterFirst(sinceLastTurn(each)));
    },
  };
}

/** The newest of the user or source that fills most of the lane. */
function mostCrowded(lane: ReadonlySet<Waiting>): Waiting | undefined {
  const waiting = [...lane].reverse();
  const users = Map.groupBy(waiting, ({ user }) => user);
  const sources = Map.groupBy(waiting, ({ source }) => source);
  return least(waiting, ({ user, source }) => {
    const [most, fewer] = laterFirst([users.get(user)?.length ?? 0, sources.get(source)?.length ?? 0]);
    return [-most, -fewer];
  });
}

function laterFirst([a, b]: readonly [number, number]): readonly [number, number] {
  return a > b ? [a, b] : [b, a];
}

/** The first item of the smallest rank. */
function least<T>(items: readonly T[], rank: (item: T) => readonly [number, number]): T | undefined {
  let found: { item: T; rank: readonly [number, number] } | undefined;
  for (const item of items) {
    const [first, second] = rank(item);
    const isLess =
      found === undefined || first < found.rank[0] || (first === found.rank[0] && second < found.rank[1]);
    if (isLess) found = { item, rank: [first, second] };
  }
  return found?.item;
}

function queueFull(retryAfter: number): AppError {
  const message = `Too many users are signing in at the moment. Try again in ${retryAfter} seconds.`;
  return new AppError("throttled", message, { retryAfter });
}
