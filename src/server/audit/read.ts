// Reads the audit log page by page, for readers that follow it. record.ts writes it, verify.ts verifies its chains.

import { Details, Event } from "../../api/events.ts";
import * as v from "valibot";
import { maxPageBytes } from "../http/lists.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Reader } from "../store/database.ts";
import { eventsAfter, eventsBefore, typesAfter, type EventRow } from "../store/tables/events.ts";
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

/**
 * The event as this caller may see it. A member does not learn the network addresses of other users. Hashes are left
 * out too: whoever tries all addresses finds the one that gives the hash. Programs have tokens of administrators.
 */
export function shownTo({ caller, org }: Pick<OrganizationCall, "caller" | "org">, event: Event): Event {
  if (caller.kind !== "person" || org.role !== "member" || org.visiting) return event;
  const { actor, before, after } = event;
  if (actor.kind === "person" && actor.id === caller.userId) return { ...event, hash: "" };
  const isCut = event.type === "events.archived";
  return {
    ...event,
    actor: { ...actor, ip: null },
    before: withoutAddress(before),
    // This event repeats hashes.
    after: isCut ? null : withoutAddress(after),
    hash: "",
  };
}

/** `seen_from`: the network address of a machine that asks to join. */
function withoutAddress(details: Event["before"]): Event["before"] {
  if (details === null || !Object.hasOwn(details, "seen_from")) return details;
  const { seen_from: _, ...rest } = details;
  return rest;
}

/**
 * The events of an organization, or for null of none, after the one with the id `after`, oldest first. A page ends at its
 * limit or at its maximum of bytes; `next` is the cursor for the rest, undefined if there is none.
 */
export async function listEvents(
  db: Pick<Reader, "all">,
  orgId: number | null,
  { after, limit }: { after: number; limit: number },
): Promise<{ events: Event[]; next: number | undefined }> {
  const page = (await eventsAfter(db, orgId, after, { limit, bytes: maxPageBytes })).map(showEvent);
  const last = page.at(-1)?.id;
  const isFull = page.length === limit;
  const hasMore = last !== undefined && (isFull || (await typesAfter(db, orgId, last, 1)).length > 0);
  return { events: page, next: hasMore ? last : undefined };
}

/** The newest events before the one with the id `before`, oldest first, with the same maxima. */
export async function listEventsBefore(
  db: Pick<Reader, "all">,
  orgId: number | null,
  { before, limit }: { before: number; limit: number },
): Promise<Event[]> {
  return (await eventsBefore(db, orgId, before, { limit, bytes: maxPageBytes })).map(showEvent);
}
