// The audit log: pages of it, and its stream.

import * as v from "valibot";
import { endpoint } from "./endpoint.ts";
import { Text, Time, whole } from "./values.ts";

/** Every type of event. Webhooks subscribe to these. */
export const eventTypes = [
  "blocklist.filling",
  "ca.expiring",
  "ca.exported",
  "ca.imported",
  "ca.rotated",
  "certificate.expiring",
  "certificate.issued",
  "certificate.renewed",
  "domain.created",
  "domain.deleted",
  "domain.verified",
  "enrollment.confirmed",
  "enrollment.refused",
  "events.archived",
  "group.created",
  "group.deleted",
  "group.updated",
  "member.created",
  "member.deleted",
  "member.invited",
  "member.signed_out",
  "member.updated",
  "name.created",
  "name.deleted",
  "node.away",
  "node.cloned",
  "node.created",
  "node.ended",
  "node.engine_refused",
  "node.healing",
  "node.online",
  "node.reauthenticated",
  "node.reauthentication_due",
  "node.registered",
  "node.relay_limited",
  "node.relay_paused",
  "node.relay_resumed",
  "node.restored",
  "node.returned",
  "node.revoked",
  "node.transferred",
  "node.updated",
  "organization.created",
  "organization.deleted",
  "organization.updated",
  "policy.applied",
  "policy.confirmed",
  "policy.reverted",
  "policy.test_failed",
  "policy.updated",
  "provider.created",
  "provider.deleted",
  "provider.updated",
  "registration.approved",
  "registration.ended",
  "registration.refused",
  "registration.waiting",
  "rule.created",
  "rule.deleted",
  "rule.updated",
  "security.login_failed",
  "server.clock_confirmed",
  "server.clock_jumped",
  "server.clock_returned",
  "server.restored",
  "server.updated",
  "tls.certificate_failed",
  "tls.certificate_issued",
  "token.created",
  "token.revoked",
  "token.used",
  "user.created",
  "user.device_approved",
  "user.disabled",
  "user.enabled",
  "user.factor_added",
  "user.factor_removed",
  "user.identity_linked",
  "user.identity_unlinked",
  "user.left_provider",
  "user.password_changed",
  "webhook.created",
  "webhook.deleted",
  "webhook.updated",
] as const;
export type EventType = (typeof eventTypes)[number];

/** The changes. */
export const Details = v.nullable(v.record(v.string(), v.unknown()));

/** The hash covers all fields but `id` and `hash`, in this order. */
export const Event = v.object({
  id: v.number(),
  at: Time,
  type: Text,
  actor: v.object({ kind: Text, id: v.nullable(v.number()), ip: v.nullable(Text) }),
  subject: Text,
  before: Details,
  after: Details,
  hash: Text,
});
export type Event = v.InferOutput<typeof Event>;

const EventQuery = v.strictObject({
  after: v.optional(whole(0, Number.MAX_SAFE_INTEGER), "0"),
  before: v.optional(whole(1, Number.MAX_SAFE_INTEGER)),
  limit: v.optional(whole(1, 1000), "100"),
});
export type EventQuery = v.InferOutput<typeof EventQuery>;

const answers = {
  200: {
    description: "Events",
    schema: v.array(Event),
    headers: { "Link?": "The next page, if this page is full or there are more events (RFC 8288)" },
  },
};

export const eventsApi = {
  list: endpoint({
    name: "events_list",
    method: "GET",
    path: "/api/org/{slug}/events/",
    access: "member",
    summary:
      "The audit log after the event with the id `after`, oldest first. Use the last id of a page as the next `after`. " +
      "A page ends after `limit` events, or earlier: it has at most 1 MiB, but at least one event. The header `Link` " +
      "tells whether there are more. With `before` instead, the newest events before that id, for reading backwards. In an event, `before` and `after` hold only what changed. " +
      "`hash` is the SHA-256 (hex) of the previous event's hash (empty for the first), a line feed, and the event's " +
      "JSON as in this answer, without spaces, `id` and `hash`. Users with the role member get the addresses of their own " +
      "actions only, and `hash` empty",
    query: EventQuery,
    answers,
  }),
  listOfNone: endpoint({
    name: "control_plane_events_list",
    method: "GET",
    path: "/api/events/",
    access: "staff",
    summary:
      "The audit log of what belongs to no organization: users that were created, disabled or enabled, passwords, second " +
      "factors, wrong passwords, settings and certificates of the control plane. It has a chain of hashes of its own. Pages and " +
      "fields are those of an organization's audit log",
    query: EventQuery,
    answers,
  }),
  stream: endpoint({
    name: "stream_retrieve",
    method: "GET",
    path: "/api/org/{slug}/stream/",
    access: "member",
    quiet: true,
    unattended: true,
    summary:
      "Events of the audit log as they happen, as server-sent events: `event: event`, `data:` as in GET events/, `id:` the " +
      "event's id. With the header `Last-Event-ID`, which browsers send by themselves, it begins after that event, else " +
      "with the next one. `event: seen` names nodes that were in contact with this server: `data:` is a list of `[id, time in ms, applied_config_version]`, at most twice a second; it has no id and is not repeated. `event: beat` says every few seconds that the connection works. The stream ends within 5 s when " +
      "the caller's rights end, and when the client reads too slowly; a caller has at most ten, the oldest ends first",
    query: v.strictObject({}),
    answers: { 200: { description: "The stream", type: "text/event-stream" } },
    errors: ["throttled"],
  }),
};
