// The route of an organization's stream of events.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { organizationRoute, query, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";

const StreamQuery = v.strictObject({});

export function streamRoutes({ streams }: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "stream/",
      access: "member",
      quiet: true,
      unattended: true,
      name: "stream_retrieve",
      summary:
        "Events of the audit log as they happen, as server-sent events: `event: event`, `data:` as in GET events/, `id:` the " +
        "event's id. With the header `Last-Event-ID`, which browsers send by themselves, it begins after that event, else " +
        "with the next one. `event: seen` names nodes that were in contact with this server: `data:` is a list of `[id, time in ms, applied_config_version]`, at most twice a second; it has no id and is not repeated. `event: beat` says every few seconds that the connection works. The stream ends within 5 s when " +
        "the caller's rights end, and when the client reads too slowly; a caller has at most ten, the oldest ends first",
      takes: query(StreamQuery),
      answers: { 200: { description: "The stream", type: "text/event-stream" } },
      errors: ["throttled"],
      async handle(call) {
        const after = lastEventId(call.request.headers.get("last-event-id"));
        // The answer to HEAD is not read, so nothing would end its stream before the caller's rights end.
        const isRead = call.request.method !== "HEAD";
        return {
          ...(isRead ? { raw: await streams.open(call, after) } : {}),
          // Proxies such as nginx would hold the events back otherwise.
          headers: { "Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no" },
        };
      },
    }),
  ];
}

function lastEventId(text: string | null): number | undefined {
  if (text === null || text === "") return undefined;
  if (!/^\d{1,15}$/.test(text)) throw new AppError("bad_request", "Last-Event-ID is not the id of an event.");
  return Number(text);
}
