// When the quiet hours of a webhook end.

import { quietSpan } from "../../api/webhooks/webhooks.ts";

/** The end of the quiet hours, ms; undefined outside of them. */
export function quietUntil(hours: string | null, now: number): number | undefined {
  const span = hours === null ? undefined : quietSpan(hours);
  if (span === undefined) return undefined;
  const { from, to, zone } = span;
  const clock = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
  /** The minute of the day in the zone. */
  const minuteAt = (ms: number) => {
    const [hour = 0, minute = 0] = clock.format(ms).split(":").map(Number);
    return 60 * hour + minute;
  };
  // `from` after `to`: over midnight.
  const isQuiet = (minute: number) =>
    from < to ? minute >= from && minute < to : minute >= from || minute < to;
  const minuteNow = minuteAt(now);
  if (!isQuiet(minuteNow)) return undefined;
  const beginOfMinute = now - (now % minuteMs);
  const end = beginOfMinute + ((to - minuteNow + minutesOfDay) % minutesOfDay) * minuteMs;
  if (minuteAt(end) === to) return end;
  // Daylight saving time begins or ends in between: search minute by minute.
  let next = beginOfMinute;
  while (isQuiet(minuteAt(next))) next += minuteMs;
  return next;
}

const minuteMs = 60_000;
const minutesOfDay = 1440;
