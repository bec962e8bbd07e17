// Handlers of src/api/events.ts.

import type { Event, EventQuery, eventsApi } from "../../api/events.ts";
import { AppError } from "../../base/errors.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";
import { eventTime } from "./record.ts";
import { countEvents, listEvents, listEventsBefore, eventShownTo } from "./read.ts";

export const eventHandlers = (services: Services): Handlers<typeof eventsApi> => ({
  async list(call, input) {
    const { body, ...more } = await page(services, call.org.id, call.path, input);
    return { body: body.map((event) => eventShownTo(call, event)), ...more };
  },
  hours: async ({ org }, { days }) => ({
    body: await countEvents(services.db, org.id, days, services.system.now()),
  }),
  listOfControlPlane: (call, input) => page(services, null, call.path, input),
  async stream(call) {
    const after = lastEventId(call.request.headers.get("last-event-id"));
    // A HEAD request gets no stream: nothing reads it, so nothing would end it before the caller's rights end.
    const raw = call.request.method === "HEAD" ? "" : await services.streams.open(call, after);
    // Proxies such as nginx would hold the events back otherwise.
    return {
      raw,
      headers: { "Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no" },
    };
  },
});

/** Events of an organization; `orgId` null: those of none. `path`: of the request, for the link to the next page. */
async function page(
  { db, publicUrl }: Services,
  orgId: number | null,
  path: string,
  { after, before, limit, from, until }: EventQuery,
): Promise<{ body: Event[]; headers?: Record<string, string> }> {
  if (before !== undefined) {
    if (after > 0) throw new AppError("bad_request", "Give after or before, not both.");
    return { body: await listEventsBefore(db, orgId, { before, limit, from, until }) };
  }
  const { events: body, next } = await listEvents(db, orgId, { after, limit, from, until });
  if (next === undefined) return { body };
  const times = Object.entries({ from, until }).filter(
    (entry): entry is [string, number] => entry[1] !== undefined,
  );
  const more = times.map(([name, at]) => `&${name}=${eventTime(at)}`).join("");
  return { body, headers: { Link: `<${publicUrl}${path}?after=${next}&limit=${limit}${more}>; rel="next"` } };
}

function lastEventId(text: string | null): number | undefined {
  if (text === null || text === "") return undefined;
  if (!/^\d{1,15}$/.test(text)) throw new AppError("bad_request", "Last-Event-ID is not the id of an event.");
  return Number(text);
}
