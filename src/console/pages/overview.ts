// What needs a person now, each with the action.

import type { VNode } from "preact";
import { html } from "../html.ts";
import { mayAdminister, slug } from "../me.ts";
import { useNodes } from "../node-list.ts";
import { relayText, useRelays } from "../relays.ts";
import { registrationsPath, type Registration } from "../registrations.ts";
import { useList } from "../resource.ts";
import { pathOf } from "../router.ts";
import { now } from "../times.ts";
import { Empty, Failure, Loading, moment, When } from "../ui/parts.ts";

/** Certificates are renewed long before: a shorter rest means that renewal fails. */
const soonMs = 7 * 86_400_000;
/** Of each kind; the rest is counted. */
const maxShown = 20;

export function Overview() {
  const own = slug.value ?? "";
  const { data: nodes, error } = useNodes();
  if (nodes === undefined)
    return html`<h1>Overview</h1>
      ${error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`}`;
  const active = nodes.filter(({ state }) => state === "active");
  const expiring = active.filter(({ endsAt }) => endsAt !== null && endsAt - now.value < soonMs);
  const waiting = mayAdminister.value ? html`<${Waiting} />` : null;
  if (nodes.length === 0)
    return html`<h1>Overview</h1>
      ${waiting}
      <${Empty}
        text="There is no machine yet. The first one is usually a lighthouse: a machine with a public address."
      >
        <a class="button primary" href=${pathOf(own, "machines", "add")}>Add a machine</a>
      <//>`;
  return html`<h1>Overview</h1>
    <p>${active.filter(({ online }) => online).length} of ${active.length} machines are online.</p>
    ${waiting}
    ${
      expiring.length === 0
        ? html`<p class="quiet">Every certificate is renewed in time.</p>`
        : html`<${Needs}
            title="Certificates that are not renewed"
            items=${expiring.map(
              (node) =>
                html`<a href=${pathOf(own, "machines", node.id)}><bdi>${node.name}</bdi></a> ends
                  ${" "}${moment(node.endsAt)}`,
            )}
          />`
    }
    <${Relays} />`;
}

/** Traffic costs money: shown from the first report on. */
function Relays() {
  const counted = useRelays().filter(({ bytes }) => bytes !== null);
  if (counted.length === 0) return null;
  const order = counted.toSorted(
    (a, b) => Number(b.paused) - Number(a.paused) || (b.bytes ?? 0) - (a.bytes ?? 0),
  );
  return html`<${Needs}
    title="Relays"
    items=${order.map(
      (relay) =>
        html`<a href=${pathOf(slug.value ?? "", "machines", relay.node)}><bdi>${relay.node_name}</bdi></a>
          <span class=${relay.paused ? "limited" : "quiet"}>${" "}${relayText(relay)}</span>`,
    )}
  />`;
}

function Waiting() {
  const own = slug.value ?? "";
  const { data = [] } = useList<Registration>(registrationsPath(own));
  if (data.length === 0) return null;
  return html`<${Needs}
      title="Machines that wait for approval"
      items=${data.map(
        (machine) =>
          html`<bdi>${machine.name}</bdi> <span class="quiet">from ${machine.seen_from}</span>
            <${When} at=${machine.created_at} />`,
      )}
    />
    <p><a class="button primary" href=${pathOf(own, "machines", "waiting")}>Approve or refuse</a></p>`;
}

function Needs({ title, items }: { title: string; items: readonly VNode[] }) {
  return html`<h2>${title}</h2>
    <ul class="plain-list">
      ${items.slice(0, maxShown).map((item, at) => html`<li key=${at}>${item}</li>`)}
      ${items.length > maxShown ? html`<li>and ${items.length - maxShown} more</li>` : null}
    </ul>`;
}
