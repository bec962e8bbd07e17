// The newest events of an organization, current as they happen.

import { useEffect, useState } from "preact/hooks";
import { ApiError, get, org } from "./api.ts";
import { onEvent, type AuditEvent } from "./live.ts";

const maxShown = 1000;
/** The API takes at most 15 digits. */
const behindAll = 999_999_999_999_999;

/** Newest first. */
export function useEvents(slug: string, limit = 200): readonly AuditEvent[] {
  const [events, setEvents] = useState<readonly AuditEvent[]>([]);
  const add = (more: readonly AuditEvent[]) =>
    setEvents((known) => {
      const ids = new Set(known.map(({ id }) => id));
      const fresh = more.filter(({ id }) => !ids.has(id));
      return fresh.length === 0 ? known : [...known, ...fresh].sort((a, b) => b.id - a.id).slice(0, maxShown);
    });
  useEffect(() => {
    setEvents([]);
    const over = new AbortController();
    const newest = `events/?before=${behindAll}&limit=${limit}`;
    get<AuditEvent[]>(org(slug, newest), over.signal).then(add, (error: unknown) => {
      // The bar says that the control plane is away; the stream brings what is new.
      if (!(error instanceof ApiError) && !over.signal.aborted) throw error;
    });
    const leave = onEvent((event) => add([event]));
    return () => {
      over.abort();
      leave();
    };
  }, [slug, limit]);
  return events;
}
