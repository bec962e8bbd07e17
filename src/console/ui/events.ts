// Events of the audit log, as sentences with what changed.

import { actorOf, type Names } from "../actor.ts";
import { changesOf, subjectOf, thingsOf, type Change, type Things } from "../activity.ts";
import type { AuditEvent } from "../audit-event.ts";
import { html } from "../html.ts";
import { mayAdminister, slug } from "../me.ts";
import { pathOf } from "../router.ts";
import { ruleChangeOf, ruleSentencesOf } from "../rule-change.ts";
import { When } from "./parts.ts";

const noNames: Names = new Map();

type EventsProps = { events: readonly AuditEvent[]; names?: Names; things?: Things };

export function Events({ events, names = noNames, things = thingsOf(events) }: EventsProps) {
  return html`<ol class="events">
    ${events.map(
      (event) =>
        html`<li key=${event.id}>
          <${When} at=${event.at} />
          <span><code>${event.type}</code> <bdi>${subjectOf(event, things)}</bdi></span>
          <bdi class="quiet">${actorOf(event, names)}</bdi>
          <${Changes} event=${event} names=${names} things=${things} />
          ${
            slug.value !== undefined && mayAdminister.value && ruleChangeOf(event) !== undefined
              ? html`<a
                  class="button small"
                  href=${`${pathOf(slug.value, "access")}?undo=${event.id}`}
                  title="Edits that take this change of the rules back, to look at before they are saved"
                  >Undo</a
                >`
              : null
          }
        </li>`,
    )}
  </ol>`;
}

/** Each changed field on a line: what was removed, and what was added. */
function Changes({ event, names, things }: { event: AuditEvent; names: Names; things: Things }) {
  const rules = ruleSentencesOf(event, {
    nodes: (id) => things.get(`node/${id}`),
    members: (id) => names.get(id),
  });
  // Its name is not taken away: it is what the event is about.
  const fields = changesOf(event.type === "node.revoked" ? { ...event, before: null } : event);
  const isOther = ({ field }: Change) => event.subject === "policy" && !/^(counts )?rules? /.test(field);
  const changes = rules === undefined ? fields : [{ field: "rules", ...rules }, ...fields.filter(isOther)];
  if (changes.length === 0) return null;
  return html`<dl class="changes">
    ${changes.map(
      ({ field, removed, added }) =>
        html`<div key=${field}>
          <dt><bdi>${field}</bdi></dt>
          <dd>
            ${removed.map((text) => html`<del key=${`-${text}`}><bdi>${text}</bdi></del> `)}
            ${added.map((text) => html`<ins key=${`+${text}`}><bdi>${text}</bdi></ins> `)}
          </dd>
        </div>`,
    )}
  </dl>`;
}
