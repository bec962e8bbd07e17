// What needs a person now, each with the action.

import type { Node } from "../../protocol.ts";
import { org } from "../api.ts";
import { html } from "../html.ts";
import { slug } from "../me.ts";
import { useList } from "../resource.ts";
import { pathOf } from "../router.ts";
import { now } from "../times.ts";
import { Empty, Failure, Loading, When } from "../ui/parts.ts";

/** Certificates are renewed long before: a shorter rest means that renewal fails. */
const soonMs = 7 * 86_400_000;

export function Overview() {
  const own = slug.value ?? "";
  const { data: nodes, error } = useList<Node>(org(own, "nodes/?page_size=1000"));
  if (nodes === undefined)
    return error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`;
  const active = nodes.filter(({ state }) => state === "active");
  const expiring = active.filter(
    ({ certificate }) => certificate !== null && Date.parse(certificate.not_after) - now.value < soonMs,
  );
  if (nodes.length === 0)
    return html`<h1>Overview</h1>
      <${Empty}
        text="There is no machine yet. The first one is usually a lighthouse: a machine with a public address."
      >
        <a class="button primary" href=${pathOf(own, "machines", "add")}>Add a machine</a>
      <//>`;
  return html`<h1>Overview</h1>
    <p>${active.filter(({ online }) => online).length} of ${active.length} machines are online.</p>
    ${
      expiring.length === 0
        ? html`<p class="quiet">Nothing needs you now.</p>`
        : html`<h2>Certificates that are not renewed</h2>
            <ul class="plain-list">
              ${expiring.map(
                (node) =>
                  html`<li key=${node.id}>
                    <a href=${pathOf(own, "machines", node.id)}><bdi>${node.name}</bdi></a> ends
                    ${" "}<${When} at=${node.certificate?.not_after ?? null} />
                  </li>`,
              )}
            </ul>`
    }`;
}
