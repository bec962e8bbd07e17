// Events of the audit log, as sentences with what changed.

import { html } from "../html.ts";
import type { AuditEvent } from "../live.ts";
import { When } from "./parts.ts";

export function Events({ events }: { events: readonly AuditEvent[] }) {
  return html`<ol class="events">
    ${events.map(
      (event) =>
        html`<li key=${event.id}>
          <${When} at=${event.at} />
          <span><code>${event.type}</code> <bdi>${subjectOf(event)}</bdi></span>
          <span class="quiet">${actorOf(event)}</span>
          <${Changes} event=${event} />
        </li>`,
    )}
  </ol>`;
}

/** The name that the event gives, beside the subject, which has the id. */
export function subjectOf({ subject, before, after }: AuditEvent): string {
  const name = after?.["name"] ?? before?.["name"];
  return typeof name === "string" ? `${name} (${subject})` : subject;
}

export function actorOf({ actor }: AuditEvent): string {
  const who = actor.id === null || actor.id === 0 ? actor.kind : `${actor.kind} ${actor.id}`;
  return actor.ip === null ? who : `${who} from ${actor.ip}`;
}

/** Each changed field on a line: before, and after. */
function Changes({ event: { before, after } }: { event: AuditEvent }) {
  const fields = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  if (fields.length === 0) return null;
  return html`<dl class="changes">
    ${fields.map(
      (field) =>
        html`<div key=${field}>
          <dt>${field}</dt>
          <dd>
            ${before?.[field] === undefined ? null : html`<del><bdi>${shown(before[field])}</bdi></del> `}
            ${after?.[field] === undefined ? null : html`<ins><bdi>${shown(after[field])}</bdi></ins>`}
          </dd>
        </div>`,
    )}
  </dl>`;
}

function shown(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
