// The providers of identities of this control plane, for staff. They are set up on the command line.

import { html } from "../html.ts";
import { leavingText, type Leaving } from "../leaving.ts";
import { useResource } from "../resource.ts";
import { Failure, FromTerminal } from "../ui/parts.ts";

const path = "/api/identity_providers/";
type Provider = { id: number; name: string; issuer: string; leaving: Leaving };

export function InstallationProviders() {
  const { data, error } = useResource<readonly Provider[]>(path);
  return html`<section>
    <h2>Sign-in by providers of identities</h2>
    ${error === undefined ? null : html`<${Failure} error=${error} />`}
    ${data?.length === 0 ? html`<p>None. Organizations can have their own.</p>` : null}
    <ul class="plain-list">
      ${(data ?? []).map(
        ({ id, name, issuer, leaving }) =>
          html`<li key=${id}>
            <strong><bdi>${name}</bdi></strong> <bdi>${issuer}</bdi>
            <p>${leavingText(leaving)}</p>
          </li>`,
      )}
    </ul>
    <${FromTerminal} command=${["oidc", "list"]} call=${["GET", path]} />
  </section>`;
}
