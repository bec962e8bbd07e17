// What the deliveries of a webhook say about it. Pure.

export type Delivery = {
  id: number;
  event_id: number;
  event_type: string;
  event_subject: string;
  attempts: number;
  state: "waiting" | "delivered" | "failed";
  status: number | null;
  message: string | null;
  next_attempt_at: string | null;
  delivered_at: string | null;
  created_at: string;
};

/** What came of the last attempt; undefined: it is under way, or none was made. */
export function outcomeOf({ state, status, message }: Delivery): string | undefined {
  if (state === "delivered") return `Delivered: the receiver answered ${status}.`;
  return message === null ? undefined : `Not delivered. ${message}`;
}

/** The machines that deliveries are about. */
export const machinesIn = (all: readonly Delivery[]): readonly number[] => [
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

/** `all`: the oldest first. */
export function standingOf(all: readonly Delivery[]): Standing {
  const tried = all.findLast(({ state, message }) => state === "delivered" || message !== null);
  const arrivals = all.flatMap(({ delivered_at }) => delivered_at ?? []).sort();
  return {
    waiting: all.filter(({ state, attempts }) => state === "waiting" && attempts > 0),
    failure: tried === undefined || tried.state === "delivered" ? undefined : (tried.message ?? undefined),
    lastSuccess: arrivals.at(-1) ?? null,
  };
}
