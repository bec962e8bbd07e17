// Phones whose users have to import them again: the certificate nears its end, or the CAs or their groups have changed.

import { html } from "./html.ts";
import type { Machine } from "./machines.ts";
import { isImportDue } from "./nodes.ts";
import { pathOf } from "./router.ts";

const maxShown = 20;

export function DuePhones({ own, machines }: { own: string; machines: readonly Machine[] }) {
  const due = machines.filter(({ state, phone }) => state === "active" && isImportDue(phone));
  if (due.length === 0) return null;
  const more = due.length - maxShown;
  return html`<h2>Phones to import again</h2>
    <p>
      Their users do it, before the certificate or the CA ends:${" "}<a href=${pathOf(own, "phones")}
        >Phones</a
      >
    </p>
    <ul class="plain-list">
      ${due.slice(0, maxShown).map(
        ({ id, name }) =>
          html`<li key=${id}>
            <a href=${pathOf(own, "machines", id)}><bdi>${name}</bdi></a>
          </li>`,
      )}
      ${more > 0 ? html`<li class="quiet">${more} more</li>` : null}
    </ul>`;
}
