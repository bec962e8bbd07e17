// The state of a webhook by its deliveries. Pure.

import type { ListedDelivery as Delivery } from "../../api/webhooks/webhooks.ts";

/** The outcome of the last attempt; undefined: it is under way, or none was made. */
export function outcomeOf({ state, status, message }: Delivery): string | undefined {
  if (state === "delivered") return `Delivered: the receiver answered ${status}.`;
  return message === null ? undefined : `Not delivered. ${message}`;
}

/** The outcome of deliveries that were sent together; undefined: there are none, or some have no outcome yet. */
export function outcomeOfAll(all: readonly Delivery[]): { words: string; isFailure: boolean } | undefined {
  const outcomes = all.map(outcomeOf);
  const [first] = outcomes;
  if (first === undefined || outcomes.includes(undefined)) return undefined;
  const arrived = all.filter(({ state }) => state === "delivered").length;
  const words = all.length === 1 ? first : `Delivered: ${arrived} of ${all.length}.`;
  return { words, isFailure: arrived < all.length };
}

/** While a server sends, `next_attempt_at` is the end of its lease, 26 seconds later. Clocks differ, too. */
const soonMs = 60_000;

/** It is being sent, or will be soon. Without a message no attempt was made, or a requested one has no answer yet. */
export const isUnderWay = ({ state, message, next_attempt_at }: Delivery, now: number): boolean =>
  state === "waiting" && (message === null || Date.parse(next_attempt_at ?? "") < now + soonMs);

/** The deliveries that a page has read, the newest first. `isAll`: nothing older is on the control plane. */
export type Known = { items: readonly Delivery[]; isAll: boolean };

/**
 * Adds the newest deliveries, or, with `before`, those that are older than this id. `isEnd`: nothing is older than what was found.
 */
export function withFound(
  known: Known,
  {
    found,
    isEnd = false,
    before,
  }: { found: readonly Delivery[]; isEnd?: boolean; before?: number | undefined },
): Known {
  /** The delivery at which both lists must meet, so that none is missing in between. */
  const seam = before ?? found.at(-1)?.id;
  // They do not meet. Newest ones: nothing was read yet, or more are new than one request reads. The page begins with these.
  // Older ones: the page has begun anew since they were asked for. They are dropped.
  if (!known.items.some(({ id }) => id === seam))
    return before === undefined ? { items: found, isAll: isEnd } : known;
  const all = new Map([...known.items, ...found].map((each) => [each.id, each]));
  return { items: [...all.values()].sort((a, b) => b.id - a.id), isAll: known.isAll || isEnd };
}

/** The nodes that deliveries are about. */
export const nodesIn = (all: readonly Delivery[]): readonly number[] => [
  ...new Set(all.flatMap(({ event_subject }) => /^node\/(\d+)$/.exec(event_subject)?.[1] ?? []).map(Number)),
];

export type Standing = {
  /** Those that wait for another attempt. One that no attempt was made for is sent within seconds. */
  waiting: readonly Delivery[];
  /** The answer to the newest delivery that did not arrive, if none arrived after it. */
  failure: string | undefined;
  /** ISO 8601; null: none of these arrived. */
  lastSuccess: string | null;
};

/** `all`: the newest first. */
export function standingOf(all: readonly Delivery[]): Standing {
  const tried = all.find(({ state, message }) => state === "delivered" || message !== null);
  const arrivals = all.flatMap(({ delivered_at }) => delivered_at ?? []).sort();
  return {
    waiting: all.filter(({ state, attempts }) => state === "waiting" && attempts > 0),
    failure: tried === undefined || tried.state === "delivered" ? undefined : (tried.message ?? undefined),
    lastSuccess: arrivals.at(-1) ?? null,
  };
}
