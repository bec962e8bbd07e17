// The route of an organization's audit log.

import * as v from "valibot";
import { Event, listEvents, listEventsBefore, shownTo } from "../audit/read.ts";
import { AppError } from "../../errors.ts";
import { organizationRoute, query, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";

const whole = (min: number, max: number) =>
  v.pipe(
    v.string(),
    v.regex(/^\d{1,15}$/, "A whole number is required."),
    v.transform(Number),
    v.minValue(min, `At least ${min}.`),
    v.maxValue(max, `At most ${max}.`),
  );

const EventQuery = v.strictObject({
  after: v.optional(whole(0, Number.MAX_SAFE_INTEGER), "0"),
  before: v.optional(whole(1, Number.MAX_SAFE_INTEGER)),
  limit: v.optional(whole(1, 1000), "100"),
});

export function eventRoutes({ db, publicUrl }: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "events/",
      access: "member",
      name: "events_list",
      summary:
        "The audit log after the event with the id `after`, oldest first. Use the last id of a page as the next `after`. " +
        "A page ends after `limit` events, or earlier: it has at most 1 MiB, but at least one event. The header `Link` " +
        "tells whether there are more. With `before` instead, the newest events before that id, for reading backwards. In an event, `before` and `after` hold only what changed. " +
        "`hash` is the SHA-256 (hex) of the previous event's hash (empty for the first), a line feed, and the event's " +
        "JSON as in this answer, without spaces, `id` and `hash`. Users with the role member get the addresses of their own " +
        "actions only, and `hash` empty",
      takes: query(EventQuery),
      answers: {
        200: {
          description: "Events",
          schema: v.array(Event),
          headers: { "Link?": "The next page, if this page is full or there are more events (RFC 8288)" },
        },
      },
      async handle(call, input) {
        const { before, limit } = input;
        const shown = (events: readonly Event[]) => events.map((event) => shownTo(call, event));
        if (before !== undefined) {
          if (input.after > 0) throw new AppError("bad_request", "Give after or before, not both.");
          return { body: shown(await listEventsBefore(db, call.org.id, { before, limit })) };
        }
        const { events, next: last } = await listEvents(db, call.org.id, input);
        if (last === undefined) return { body: shown(events) };
        const path = `${publicUrl}/api/org/${call.org.slug}/events/`;
        const next = `<${path}?after=${last}&limit=${input.limit}>; rel="next"`;
        return { body: shown(events), headers: { Link: next } };
      },
    }),
  ];
}
