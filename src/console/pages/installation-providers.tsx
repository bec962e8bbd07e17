// The providers of identities of this control plane, for staff. They are set up on the command line.

import { apiPath } from "../../api/endpoint.ts";
import { providersApi } from "../../api/providers.ts";
import { leavingText } from "../leaving.ts";
import { useResource } from "../resource.ts";
import { Failure, FromTerminal } from "../ui/parts.tsx";

const path = apiPath(providersApi.list, {});

export function InstallationProviders() {
  const { data, error } = useResource(path);
  return (
    <section>
      <h2>Sign-in by providers of identities</h2>
      {error === undefined ? null : <Failure error={error} />}
      {data?.length === 0 ? <p>None. Organizations can have their own.</p> : null}
      <ul class="plain-list">
        {(data ?? []).map(({ id, name, issuer, leaving }) => (
          <li key={id}>
            <strong>
              <bdi>{name}</bdi>
            </strong>{" "}
            <bdi>{issuer}</bdi>
            <p>{leavingText(leaving)}</p>
          </li>
        ))}
      </ul>
      <FromTerminal command={["oidc", "list"]} call={["GET", path]} />
    </section>
  );
}
