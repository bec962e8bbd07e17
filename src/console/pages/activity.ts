// Everything that was changed, as it happens.

import { html } from "../html.ts";
import { useEvents } from "../events.ts";
import { isLive } from "../live.ts";
import { slug } from "../me.ts";
import { query, setQuery } from "../router.ts";
import { actorOf, Events, subjectOf } from "../ui/events.ts";
import { Empty, FromTerminal, State, valueOf } from "../ui/parts.ts";
import { download, toCsv } from "../ui/rows.ts";
import type { AuditEvent } from "../live.ts";

const columns = [
  { key: "at", title: "at", width: 1, text: ({ at }: AuditEvent) => at, cell: ({ at }: AuditEvent) => at },
  {
    key: "type",
    title: "type",
    width: 1,
    text: ({ type }: AuditEvent) => type,
    cell: ({ type }: AuditEvent) => type,
  },
  { key: "subject", title: "subject", width: 1, text: subjectOf, cell: subjectOf },
  { key: "actor", title: "actor", width: 1, text: actorOf, cell: actorOf },
  {
    key: "before",
    title: "before",
    width: 1,
    text: ({ before }: AuditEvent) => JSON.stringify(before ?? ""),
    cell: () => "",
  },
  {
    key: "after",
    title: "after",
    width: 1,
    text: ({ after }: AuditEvent) => JSON.stringify(after ?? ""),
    cell: () => "",
  },
];

export function Activity() {
  const own = slug.value ?? "";
  const events = useEvents(own, 1000);
  const search = query.value.get("search") ?? "";
  const words = search.toLowerCase().split(/\s+/);
  const shown = events.filter((event) => {
    const text = JSON.stringify(event).toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return html`<h1>Activity</h1>
    <div class="tools">
      <input
        type="search"
        aria-label="Search events"
        placeholder="Search"
        value=${search}
        onInput=${(event: Event) => setQuery({ search: valueOf(event) })}
      />
      <${State} name=${isLive.value ? "online" : "away"} word=${isLive.value ? "live" : "not live"} />
      <button type="button" onClick=${() => download(`${own}-events.csv`, toCsv(shown, columns))}>
        Export CSV
      </button>
    </div>
    ${
      shown.length === 0
        ? html`<${Empty} text="No event among the last thousand." />`
        : html`<${Events} events=${shown.slice(0, 200)} />`
    }
    <${FromTerminal} command=${`agent admin events ${own}`} call=${`GET /api/org/${own}/events/`} />`;
}
