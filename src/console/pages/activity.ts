// Everything that was changed, as it happens.

import { html } from "../html.ts";
import { useEvents } from "../events.ts";
import { isLive } from "../live.ts";
import { slug } from "../me.ts";
import { actorOf, Events, subjectOf } from "../ui/events.ts";
import { Empty, FromTerminal, State } from "../ui/parts.ts";
import { Export, Search, searched } from "../ui/tools.ts";
import type { AuditEvent } from "../live.ts";

const columns = [
  { title: "at", text: ({ at }: AuditEvent) => at },
  { title: "type", text: ({ type }: AuditEvent) => type },
  { title: "subject", text: subjectOf },
  { title: "actor", text: actorOf },
  { title: "before", text: ({ before }: AuditEvent) => JSON.stringify(before ?? "") },
  { title: "after", text: ({ after }: AuditEvent) => JSON.stringify(after ?? "") },
];

export function Activity() {
  const own = slug.value ?? "";
  const events = useEvents(own, 1000);
  const isFound = searched();
  const shown = events.filter((event) => isFound(JSON.stringify(event)));
  return html`<h1>Activity</h1>
    <div class="tools">
      <${Search} label="Search events" />
      <${State} name=${isLive.value ? "online" : "away"} word=${isLive.value ? "live" : "not live"} />
      <${Export} file=${`${own}-events.csv`} items=${shown} columns=${columns} />
    </div>
    ${
      shown.length === 0
        ? html`<${Empty} text="No event among the last thousand." />`
        : html`<${Events} events=${shown.slice(0, 200)} />`
    }
    <${FromTerminal} command=${`agent admin events ${own}`} call=${`GET /api/org/${own}/events/`} />`;
}
