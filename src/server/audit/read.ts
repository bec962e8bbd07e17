// Reads the audit log page by page, for readers that follow it. record.ts writes it, verify.ts verifies its chains.

import { Details, Event, type EventHour } from "../../api/events.ts";
import { formatTime } from "../../base/quantities.ts";
import { nextRound } from "../http/heavy-work.ts";
import * as v from "valibot";
import { maxPageBytes } from "../http/lists.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Reader } from "../store/database.ts";
import {
  countsByHour,
  eventsAfter,
  eventsBefore,
  spanOf,
  typesAfter,
  type EventRow,
} from "../store/tables/events.ts";
import { eventTime } from "./record.ts";

/** The event as the API and webhooks show it. */
export function showEvent({ id, at, type, actor, subject, before, after, hash }: EventRow): Event {
  const details = (text: string | null) => (text === null ? null : v.parse(Details, JSON.parse(text)));
  return {
    id,
    at: eventTime(at),
    type,
    actor: v.parse(Event.entries.actor, JSON.parse(actor)),
    subject,
    before: details(before),
    after: details(after),
    hash,
  };
}

type Reading = Pick<OrganizationCall, "caller" | "org">;

/**
 * The id of the caller, if it is a member, who learns no network address of other users. Staff who visit the organization
 * (`visiting`) only have the role; tokens of programs are made by administrators.
 */
const memberIn = ({ caller, org }: Reading): number | undefined =>
  caller.kind === "person" && org.role === "member" && !org.visiting ? caller.userId : undefined;
/** Whether the caller may learn the network addresses of other users. */
export const learnsAddresses = (call: Reading): boolean => memberIn(call) === undefined;

/**
 * The event as this caller may see it. Hashes are left out, too: whoever tries all addresses finds the one that gives the
 * hash.
 */
export function eventShownTo(call: Reading, event: Event): Event {
  const memberId = memberIn(call);
  if (memberId === undefined) return event;
  const { actor, before, after } = event;
  if (actor.kind === "person" && actor.id === memberId) return { ...event, hash: "" };
  // The first repeats hashes, the second has e-mail addresses of members.
  const isHidden = event.type === "events.archived" || event.type === "policy.recorded";
  return {
    ...event,
    actor: { ...actor, ip: null },
    before: withoutAddress(before),
    after: isHidden ? null : withoutAddress(after),
    hash: "",
  };
}

/** `seen_from`: the network address of a machine that asks to join. `log`: a line of an engine, which names those of peers. */
function withoutAddress(details: Event["before"]): Event["before"] {
  if (details === null) return details;
  const { seen_from: _, log: __, ...rest } = details;
  return rest;
}

/** From `from` to before `until`, ms; undefined: without this end. */
export type Span = { from?: number | undefined; until?: number | undefined };

/**
 * The events of an organization, or for null of none, after the one with the id `after`, oldest first. A page ends at its
 * limit or at its maximum of bytes; `next` is the cursor for the rest, undefined if there is none.
 */
export async function listEvents(
  db: Reader,
  orgId: number | null,
  { after, limit, ...span }: { after: number; limit: number } & Span,
): Promise<{ events: Event[]; next: number | undefined }> {
  const within = await withinSpan(db, orgId, span);
  if (within === "nothing") return { events: [], next: undefined };
  const rows = await eventsAfter(db, orgId, after, { limit, bytes: maxPageBytes, within });
  const page = rows.map(showEvent);
  const last = page.at(-1)?.id;
  if (last === undefined) return { events: page, next: undefined };
  // Without a span the cheaper query is enough: typesAfter reads no details.
  const hasMore = async () =>
    within === undefined
      ? (await typesAfter(db, orgId, last, 1)).length > 0
      : (await eventsAfter(db, orgId, last, { limit: 1, bytes: 1, within })).length > 0;
  return { events: page, next: page.length === limit || (await hasMore()) ? last : undefined };
}

/** The newest events before the one with the id `before`, oldest first, with the same maxima. */
export async function listEventsBefore(
  db: Reader,
  orgId: number | null,
  { before, limit, ...span }: { before: number; limit: number } & Span,
): Promise<Event[]> {
  const within = await withinSpan(db, orgId, span);
  if (within === "nothing") return [];
  return (await eventsBefore(db, orgId, before, { limit, bytes: maxPageBytes, within })).map(showEvent);
}

/** Undefined: without a limit. */
async function withinSpan(db: Reader, orgId: number | null, { from, until }: Span) {
  if (from === undefined && until === undefined) return undefined;
  return (await spanOf(db, orgId, { from: from ?? 0, until: until ?? maxTime })) ?? "nothing";
}

/** The last time that JavaScript knows, ms. */
const maxTime = 8.64e15;
const hourMs = 3_600_000;

/** Counts the events of the last days by hour, oldest first. Reads day by day: other requests get their chance in between. */
export async function countEvents(
  db: Reader,
  orgId: number,
  days: number,
  now: number,
): Promise<EventHour[]> {
  const end = now - (now % hourMs) + hourMs;
  const hours: EventHour[] = [];
  for (let from = end - days * 24 * hourMs; from < end; from += 24 * hourMs) {
    const rows = await countsByHour(db, orgId, from, from + 24 * hourMs);
    for (const [at, found] of Map.groupBy(rows, (row) => row.at)) {
      const types = Object.fromEntries(found.map(({ type, n }) => [type, n]));
      const count = found.reduce((sum, { n }) => sum + n, 0);
      hours.push({ at: formatTime(at), count, types });
    }
    await nextRound();
  }
  return hours;
}
