// The providers of identities of this control plane, for staff. They are set up on the command line.

import { apiPath } from "../../api/endpoint.ts";
import { providersApi } from "../../api/providers/providers.ts";
import { leavingText } from "./leaving.ts";
import { useResource } from "../contact/resource.ts";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { Failure } from "../ui/parts.tsx";

const path = apiPath(providersApi.list, {});

export function InstallationProviders() {
  const { data, error } = useResource(path);
  return (
    <Panel
      title="Sign-in by providers of identities"
      actions={<TerminalButton command={["oidc", "list"]} call={["GET", path]} />}
    >
      <Failure error={error} />
      {data?.length === 0 ? <p class="in quiet">None. Organizations can have their own.</p> : null}
      <ul class="lines">
        {(data ?? []).map(({ id, name, issuer, leaving }) => (
          <li key={id}>
            <p>
              <bdi class="name">{name}</bdi> <bdi class="quiet">{issuer}</bdi>
            </p>
            <p class="quiet">{leavingText(leaving)}</p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
