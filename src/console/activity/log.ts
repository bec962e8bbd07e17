// The events of an organization, from the newest back, current as they happen.

import { apiPath, type GivenOf } from "../../api/endpoint.ts";
import { eventsApi, type Event as AuditEvent } from "../../api/events.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { behindAll } from "../../api/values.ts";
import { readBack, type Span } from "./read-back.ts";
import { ApiError, get } from "../contact/api.ts";
import { isLive, onEvent } from "../contact/live.ts";
import { utc } from "../words/times.ts";

/** Events of an organization; "": events that belong to none. */
export const eventsPath = (slug: string, query?: GivenOf<typeof eventsApi.list>) =>
  slug === "" ? apiPath(eventsApi.listOfControlPlane, {}, query) : apiPath(eventsApi.list, { slug }, query);
/** Events that belong to no organization are in no stream: they are read again this often. */
const lookEveryMs = 10_000;

/** Maximum events of the page, and of an export. */
export const maxKept = 20_000;
/** Events of the first request: few, so that they are seen early. */
const firstLimit = 200;
/** Events of one request. */
const maxLimit = 1000;
/** A request that failed is sent again after this. */
const restMs = 5000;

const always: Span = { start: undefined, end: undefined };

export type Log = {
  /** Newest first. */
  events: readonly AuditEvent[];
  /** Nothing older is on the control plane. */
  isAll: boolean;
  /** The maximum was read. */
  isFull: boolean;
  isReading: boolean;
  /** The error of the latest request, which is retried. */
  error: ApiError | undefined;
  /** Reads the events before the oldest one. */
  older(): void;
};

/** The newest events of a time, also those that the page has not read. `tell`: how many were read so far. Throws an ApiError. */
export const readEvents = (slug: string, span: Span, tell: (count: number) => void) =>
  readBack(
    (before) => get(eventsPath(slug, { before: `${before}`, limit: `${maxLimit}` })),
    span,
    maxKept,
    tell,
  );

/** `limit`: events of one request but the first, at most 1000. `span`: only events of this time are read. */
export function useLog(slug: string, limit: number, { start, end }: Span = always): Log {
  const [events, setEvents] = useState<readonly AuditEvent[]>([]);
  const [isAll, setAll] = useState(false);
  const [isReading, setReading] = useState(true);
  const [error, setError] = useState<ApiError>();
  // For callbacks of former drawings: the present events.
  const kept = useRef(events);
  kept.current = events;
  // Aborted when another organization or time is shown: late answers are dropped.
  const over = useRef(new AbortController());
  const add = (more: readonly AuditEvent[]) =>
    setEvents((known) => {
      const ids = new Set(known.map(({ id }) => id));
      const fresh = more.filter(({ id }) => !ids.has(id));
      return fresh.length === 0 ? known : [...known, ...fresh].sort((a, b) => b.id - a.id).slice(0, maxKept);
    });
  /**
   * Reads `count` events before an id. `untilId`: reads on, back to this id. Stops earlier if `maxKept` newer ones were read: there
   * is no room for more.
   */
  const read = (before: number, count = limit, untilId?: number) => {
    const { signal } = over.current;
    setReading(true);
    const within = {
      ...(start === undefined ? {} : { from: utc(start) }),
      ...(end === undefined ? {} : { until: utc(end) }),
    };
    get(eventsPath(slug, { before: `${before}`, limit: `${count}`, ...within }), signal).then(
      (found) => {
        if (signal.aborted) return;
        setError(undefined);
        add(found);
        // An answer has the oldest event first, `kept` the newest.
        const oldest = found[0]?.id;
        if (oldest === undefined) setAll(true);
        else if (untilId !== undefined && oldest > Math.max(untilId, kept.current.at(-1)?.id ?? 0))
          return read(oldest, limit, untilId);
        setReading(false);
      },
      (failure: unknown) => {
        if (signal.aborted) return;
        if (!(failure instanceof ApiError)) throw failure;
        setError(failure);
        setTimeout(() => signal.aborted || read(before, count, untilId), restMs);
      },
    );
  };
  useEffect(() => {
    over.current = new AbortController();
    setEvents([]);
    setAll(false);
    kept.current = [];
    const readNewest = () => read(behindAll, Math.min(limit, firstLimit), kept.current[0]?.id);
    // While the stream is open, `subscribe` below calls its function at once, which reads.
    if (!isLive.peek()) readNewest();
    const look = () => document.visibilityState === "visible" && readNewest();
    const timer = slug === "" ? setInterval(look, lookEveryMs) : undefined;
    const leave = onEvent((event) => add([event]));
    // The stream has no events from before it was open.
    const unsubscribe = isLive.subscribe((isOpen) => {
      if (isOpen) readNewest();
    });
    return () => {
      over.current.abort();
      clearInterval(timer);
      leave();
      unsubscribe();
    };
  }, [slug, limit, start, end]);
  const oldest = events.at(-1)?.id;
  return {
    events,
    isAll,
    isFull: events.length >= maxKept,
    isReading,
    error,
    older: () => {
      if (!isReading && oldest !== undefined) read(oldest);
    },
  };
}
