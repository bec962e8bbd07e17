// Reads the log back, page by page, from its newest event. Pure.

import type { Event as AuditEvent } from "../../api/events.ts";
import { behindAll } from "../../api/values.ts";

/** Both in ms; the end is not included. */
export type Span = { start: number | undefined; end: number | undefined };

/**
 * The events of a time, the newest first, about `max` at most. `page`: those before an id, the oldest first. `tell`: how
 * many were read so far. Among the events are those before `start` that the last page has.
 */
export async function readBack(
  page: (before: number) => Promise<AuditEvent[]>,
  { start = 0, end = Number.POSITIVE_INFINITY }: Span,
  max: number,
  tell: (count: number) => void,
): Promise<{ events: AuditEvent[]; isAll: boolean }> {
  const events: AuditEvent[] = [];
  let read = 0;
  for (let before = behindAll; ;) {
    const found = await page(before);
    events.push(...found.toReversed().filter(({ at }) => Date.parse(at) < end));
    tell((read += found.length));
    const [oldest] = found;
    const isAll = oldest === undefined || Date.parse(oldest.at) < start;
    if (isAll || events.length >= max) return { events, isAll };
    before = oldest.id;
  }
}
