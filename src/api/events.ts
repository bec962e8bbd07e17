// The audit log: pages of it, and its stream.

import * as v from "valibot";
import { endpoint } from "./endpoint.ts";
import { Moment, Text, Time, whole } from "./values.ts";

/** What an event is about: the first word of its `subject`, as in `node/7`, with the noun of the pages. */
export const eventNouns = {
  alarm: "alarm",
  authority: "CA",
  domain: "domain",
  drill: "drill",
  enrollment: "enrollment",
  events: "events",
  group: "group",
  member: "member",
  name: "alias",
  node: "node",
  organization: "organization",
  policy: "policy",
  provider: "provider",
  registration: "registration",
  registration_token: "join key",
  rollout: "rollout",
  rule: "rule",
  server: "server",
  service_token: "service token",
  tls: "certificate",
  user: "user",
  webhook: "webhook",
} as const;
type Subject = keyof typeof eventNouns;

/**
 * `words`: the sentence of the pages and documents. `@` is the actor, `#` the name of the subject, `&` the name after its
 * noun: "the node web". `since`: the first version that records the type.
 */
type EventKind = {
  words: string;
  subjects: readonly Subject[];
  since: "0.1.0" | "0.2.0";
  /** Something failed, or will soon. */
  fails?: true;
};
/** A type that is recorded since 0.1.0. */
const kept = (words: string, ...subjects: Subject[]): EventKind => ({ words, subjects, since: "0.1.0" });
/** A type that is recorded since 0.2.0. */
const added = (words: string, ...subjects: Subject[]): EventKind => ({ words, subjects, since: "0.2.0" });
const failing = (declared: EventKind): EventKind => ({ ...declared, fails: true });

/** Every type of event. Webhooks subscribe to these; the pages' sentences and the documents follow. */
export const eventKinds = {
  "alarm.ended": added("Alarm: #", "alarm"),
  "alarm.raised": failing(added("Alarm: #", "alarm")),
  "alarm.tested": added("@ tested the alarms", "alarm"),
  "blocklist.filling": failing(added("The blocklist of # fills up", "organization")),
  "ca.added": added("@ added the offline CA #", "authority"),
  "ca.expiring": failing(kept("The CA of # ends soon", "authority")),
  "ca.exported": kept("@ exported the CA of #", "organization"),
  "ca.imported": kept("@ imported a CA", "authority"),
  "ca.rotated": kept("@ changed the rotation of the CAs", "organization"),
  "certificate.expiring": failing(kept("The certificate of # ends soon, and was not renewed", "node")),
  "certificate.issued": kept("@ issued a certificate for #", "node"),
  "certificate.renewed": kept("@ renewed the certificate of #", "node"),
  "domain.created": added("@ created &", "domain"),
  "domain.deleted": added("@ deleted &", "domain"),
  "domain.verified": added("@ verified &", "domain"),
  "drill.aborted": added("@ ended &", "drill"),
  "drill.began": added("@ began &", "drill"),
  "drill.ended": added("& ended", "drill"),
  "enrollment.confirmed": added("@ let # join", "registration_token"),
  "enrollment.refused": added("@ did not let # join", "enrollment"),
  "events.archived": added("@ archived old events", "events"),
  "flows.exported": added("@ read the flows of #", "organization"),
  "group.created": kept("@ created &", "group"),
  "group.deleted": kept("@ deleted &", "group"),
  "group.updated": kept("@ changed &", "group"),
  "member.created": kept("@ made # a member", "member"),
  "member.deleted": kept("@ removed #", "member"),
  "member.invited": kept("@ invited #", "member"),
  "member.signed_out": added("@ signed # out", "member"),
  "member.updated": kept("@ changed the role of #", "member"),
  "name.created": added("@ created &", "name"),
  "name.deleted": added("@ deleted &", "name"),
  "node.away": added("# is away", "node"),
  "node.cloned": failing(added("Two machines use the keys of #", "node")),
  "node.created": kept("@ created &", "node"),
  "node.ended": added("# ended", "node"),
  "node.engine_refused": failing(added("The engine of # is refused", "node")),
  "node.healing": added("# repaired a tunnel", "node"),
  "node.online": added("# is online again", "node"),
  "node.reauthenticated": added("@ confirmed the node #", "node"),
  "node.reauthentication_due": added("The user of # has to confirm it", "node"),
  "node.registered": kept("# joined", "node"),
  "node.relay_limited": added("@ limited what # relays", "node"),
  "node.relay_paused": failing(added("# stopped relaying: its limit is reached", "node")),
  "node.relay_resumed": added("# relays again", "node"),
  "node.restored": kept("@ restored &", "node"),
  "node.returned": added("# returned", "node"),
  "node.revoked": kept("@ revoked &", "node"),
  "node.route_offered": added("# offers to route networks behind it", "node"),
  "node.seal_refused": failing(added("The seal of # refuses a change", "node")),
  "node.transferred": added("@ changed the owner of #", "node"),
  "node.updated": kept("@ changed &", "node"),
  "organization.created": kept("@ created &", "organization"),
  "organization.deleted": kept("@ deleted &", "organization"),
  "organization.updated": kept("@ changed &", "organization"),
  "policy.applied": added("@ changed the policy", "policy"),
  "policy.confirmed": added("@ confirmed &", "policy"),
  "policy.recorded": added("@ noted what decides who reaches whom", "policy"),
  "policy.reverted": added("@ rolled the policy back", "policy"),
  "policy.sealed": added("@ published a seal", "policy"),
  "policy.seals_forgotten": added("@ made the control plane forget the seals", "policy"),
  "policy.test_failed": failing(added("A test of the policy fails", "policy")),
  "policy.updated": added("@ changed &", "policy"),
  "provider.created": added("@ created &", "provider"),
  "provider.deleted": added("@ deleted &", "provider"),
  "provider.updated": added("@ changed &", "provider"),
  "registration.approved": added("@ approved the node #", "registration"),
  "registration.ended": added("The request of # ended", "registration"),
  "registration.refused": added("@ refused the node #", "registration"),
  "registration.waiting": added("# waits for approval", "registration"),
  "rollout.changed": added("@ changed &", "rollout"),
  "rollout.created": added("@ started &", "rollout"),
  "rollout.passed": added("& is finished", "rollout"),
  "rollout.ring_passed": added("A ring of & works", "rollout"),
  "rollout.stopped": failing(added("& stopped: a node does not work with it", "rollout")),
  "rule.created": kept("@ created &", "rule"),
  "rule.deleted": kept("@ deleted &", "rule"),
  "rule.updated": kept("@ changed &", "rule"),
  "security.login_failed": failing(kept("Wrong password or code for #", "user")),
  "server.clock_confirmed": added("@ confirmed the clock of the control plane", "server"),
  "server.clock_jumped": failing(added("The clock of # jumped: no certificate is signed", "server")),
  "server.clock_returned": added("The clock of # is right again", "server"),
  "server.restored": kept("@ restored a backup", "server"),
  "server.updated": added("@ changed the control plane", "server"),
  "tls.certificate_failed": failing(added("The certificate for # was not renewed", "tls")),
  "tls.certificate_issued": added("@ got a certificate for #", "tls"),
  "token.created": kept("@ created &", "registration_token", "service_token"),
  "token.revoked": kept("@ revoked &", "registration_token", "service_token"),
  "token.used": kept("A machine joined with the join key #", "registration_token"),
  "user.created": kept("@ created &", "user"),
  "user.device_approved": added("@ let the command line of # sign in", "user"),
  "user.disabled": kept("@ disabled &", "user"),
  "user.enabled": kept("@ enabled &", "user"),
  "user.factor_added": added("@ added a second factor of #", "user"),
  "user.factor_removed": added("@ removed a second factor of #", "user"),
  "user.identity_linked": added("@ linked a provider to #", "user"),
  "user.identity_unlinked": added("@ unlinked a provider from #", "user"),
  "user.left_provider": added("# has left the provider", "user"),
  "user.password_changed": kept("@ changed the password of #", "user"),
  "user.signed_out": added("@ signed # out", "user"),
  "webhook.created": kept("@ created &", "webhook"),
  "webhook.deleted": kept("@ deleted &", "webhook"),
  "webhook.updated": kept("@ changed &", "webhook"),
};
export type EventType = keyof typeof eventKinds;
export const eventTypes = Object.keys(eventKinds) as EventType[];

/** Fields by name. Of a change, `before` and `after` hold only those that differ. */
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
  /** Only events since this time, and before that one. */
  from: v.optional(Moment),
  until: v.optional(Moment),
});
export type EventQuery = v.InferOutput<typeof EventQuery>;

const HoursQuery = v.strictObject({
  days: v.optional(v.pipe(v.picklist(["1", "7", "30"]), v.transform(Number)), "7"),
});
const EventHour = v.object({
  /** The beginning of the hour (UTC). */
  at: Time,
  count: v.number(),
  /** By type of event; those without an event are left out. */
  types: v.record(v.string(), v.number()),
});
export type EventHour = v.InferOutput<typeof EventHour>;

const answers = {
  200: {
    description: "Events",
    schema: v.array(Event),
    // `?`: not every answer has it.
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
      "tells whether there are more. With `before` instead, the newest events before that id, for reading backwards. `from` and `until` (ISO 8601) leave only the events of a time. In an event, `before` and `after` hold only what changed. " +
      "`hash` is the SHA-256 (hex) of the previous event's hash (empty for the first), a line feed, and the event's " +
      "JSON as in this answer, without spaces, `id` and `hash`. Users with the role member get the addresses of their own " +
      "actions only, and `hash` empty",
    query: EventQuery,
    answers,
  }),
  hours: endpoint({
    name: "events_hours",
    method: "GET",
    path: "/api/org/{slug}/events/hours/",
    access: "member",
    summary:
      "How many events the audit log has of each hour (UTC) of the last `days`, by type, oldest first. Hours without an event are left out. Their events: GET events/ with `from` and `until`",
    query: HoursQuery,
    answers: { 200: { description: "Hours", schema: v.array(EventHour) } },
  }),
  listOfControlPlane: endpoint({
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
  }),
};
