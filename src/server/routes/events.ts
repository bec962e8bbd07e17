// The routes of the audit log: of each organization, and of what belongs to none.

import * as v from "valibot";
import { Event, listEvents, listEventsBefore, shownTo } from "../audit/read.ts";
import { AppError } from "../../errors.ts";
import { whole } from "../../api/values.ts";
import { organizationRoute, query, route, type Reply, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";

const EventQuery = v.strictObject({
  after: v.optional(whole(0, Number.MAX_SAFE_INTEGER), "0"),
  before: v.optional(whole(1, Number.MAX_SAFE_INTEGER)),
  limit: v.optional(whole(1, 1000), "100"),
});
type EventQuery = v.InferOutput<typeof EventQuery>;

const answers = {
  200: {
    description: "Events",
    schema: v.array(Event),
    headers: { "Link?": "The next page, if this page is full or there are more events (RFC 8288)" },
  },
};

export function eventRoutes({ db, publicUrl }: Services): Route[] {
  /** `path`: of the log of this organization; null: of none. */
  const page = async (
    orgId: number | null,
    path: string,
    { after, before, limit }: EventQuery,
  ): Promise<{ events: Event[]; headers?: NonNullable<Reply["headers"]> }> => {
    if (before !== undefined) {
      if (after > 0) throw new AppError("bad_request", "Give after or before, not both.");
      return { events: await listEventsBefore(db, orgId, { before, limit }) };
    }
    const { events, next: last } = await listEvents(db, orgId, { after, limit });
    if (last === undefined) return { events };
    return { events, headers: { Link: `<${publicUrl}${path}?after=${last}&limit=${limit}>; rel="next"` } };
  };
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
      answers,
      async handle(call, input) {
        const { events, ...more } = await page(call.org.id, `/api/org/${call.org.slug}/events/`, input);
        return { body: events.map((event) => shownTo(call, event)), ...more };
      },
    }),
    route({
      method: "GET",
      path: "/api/events/",
      access: "staff",
      name: "control_plane_events_list",
      summary:
        "The audit log of what belongs to no organization: users that were created, disabled or enabled, passwords, second " +
        "factors, wrong passwords, settings and certificates of the control plane. It has a chain of hashes of its own. Pages and " +
        "fields are those of an organization's audit log",
      takes: query(EventQuery),
      answers,
      async handle(_call, input) {
        const { events, ...more } = await page(null, "/api/events/", input);
        return { body: events, ...more };
      },
    }),
  ];
}
