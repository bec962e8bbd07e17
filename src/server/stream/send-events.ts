// Sends one stream its events, and checks repeatedly whether its caller may still have them.

import { defer } from "../../base/defer.ts";
import { listEvents, eventShownTo } from "../audit/read.ts";
import type { Event } from "../../api/events.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Contact } from "../nodes/contact/reports.ts";
import type { Reader } from "../store/database.ts";
import type { System } from "../../base/system.ts";
import type { Tail } from "./event-tail.ts";

/** A demotion, or the end of a session, closes the stream within this time, ms. */
const checkEveryMs = 3000;
/** How often the client gets data: it takes 25 s without any for the end of the connection. */
const beatEveryMs = 9000;
/** Events that wait to be sent. With more, the stream ends: the client comes again, and reads them from the database. */
const maxWaiting = 1000;

export type StreamCall = Pick<OrganizationCall, "caller" | "org" | "request" | "admitAgain">;

type Deps = { db: Reader; system: Pick<System, "sleep">; tail: Tail };

/** `send` returns false if the client does not take more. */
type Client = { signal: AbortSignal; send(text: string): boolean };

/**
 * Sends the events after the one with the id `after`: first those that the client missed, from the database, then new ones as they
 * come. Returns when the client or the server ends, and throws when the caller's rights end.
 */
export async function sendEvents(
  { db, system, tail }: Deps,
  call: StreamCall,
  after: number,
  { signal, send }: Client,
): Promise<void> {
  let lastSent = after;
  /** False if the client does not take more. */
  const sendAll = (events: readonly Event[]) => {
    for (const event of events) {
      if (event.id <= lastSent) continue;
      // With the role that the caller has now.
      if (!send(messageOf(eventShownTo(call, event)))) return false;
      lastSent = event.id;
    }
    return true;
  };
  const inbox = openInbox({ system, tail }, call.org.id);
  using _ = defer(() => inbox.close());
  // The client sees at once that it is connected.
  send(": open\n\n");
  // Missed events are read after the first look of the tail: nothing falls between.
  const ended = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  await Promise.race([inbox.begun, ended]);
  for (let isBehind = true; isBehind && !signal.aborted;) {
    // There may be a million events to read, and the rights may end meanwhile.
    await call.admitAgain();
    const { events, next } = await listEvents(db, call.org.id, { after: lastSent, limit: 200 });
    if (!sendAll(events)) return;
    isBehind = next !== undefined;
  }
  for (let sentAt = performance.now(); !signal.aborted; await inbox.wait(signal)) {
    await call.admitAgain();
    const { events, contacts } = inbox.take();
    if (events.length > maxWaiting) return;
    if (contacts.length > 0 && !send(`event: seen\ndata: ${JSON.stringify(contacts)}\n\n`)) return;
    if (!sendAll(events)) return;
    const isBeatDue = events.length === 0 && performance.now() - sentAt >= beatEveryMs;
    if (isBeatDue && !send("event: beat\ndata:\n\n")) return;
    if (isBeatDue || events.length > 0) sentAt = performance.now();
  }
}

/** Collects what the tail hands over, until it is sent. */
function openInbox({ system, tail }: Pick<Deps, "system" | "tail">, orgId: number) {
  let events: Event[] = [];
  /** The newest contact of each node, by its id. */
  let contacts = new Map<number, Contact>();
  let wake: (() => void) | undefined;
  const { begun, leave } = tail.follow(orgId, (newEvents, newContacts) => {
    events.push(...newEvents);
    for (const contact of newContacts) {
      const [nodeId] = contact;
      contacts.set(nodeId, contact);
    }
    wake?.();
  });
  return {
    /** Resolves at the first look of the tail: from then on all new events are collected. */
    begun,
    take() {
      const taken = { events, contacts: [...contacts.values()] };
      events = [];
      contacts = new Map();
      return taken;
    },
    /** Until there is something to take, or it is time to look at the rights. */
    async wait(signal: AbortSignal) {
      if (events.length + contacts.size > 0) return;
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
      });
      const timer = new AbortController();
      const either = AbortSignal.any([signal, timer.signal]);
      await Promise.race([woken, system.sleep(checkEveryMs, either).catch(() => undefined)]);
      timer.abort();
    },
    close: leave,
  };
}

/** The browser sends the id of the last event when it connects again. */
function messageOf(event: Event): string {
  return `id: ${event.id}\nevent: event\ndata: ${JSON.stringify(event)}\n\n`;
}
