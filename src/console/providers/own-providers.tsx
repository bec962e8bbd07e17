// The providers of identities of an organization, by which its members sign in. Below them its domains.

import { useState } from "preact/hooks";
import { apiPath } from "../../api/endpoint.ts";
import { organizationProvidersApi, type Provider } from "../../api/providers/providers.ts";
import { request } from "../contact/api.ts";
import { leavingText } from "./leaving.ts";
import { currentSlug } from "../contact/me.ts";
import { useResource } from "../contact/resource.ts";
import { Button } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { Line, Loading, State } from "../ui/parts.tsx";
import { FactRow } from "../ui/setting-fields.tsx";
import { EditProvider, NewProvider } from "./provider-form.tsx";
import { Domains } from "./domains.tsx";

export function OwnProviders() {
  const slug = currentSlug.value ?? "";
  const path = apiPath(organizationProvidersApi.list, { slug });
  const { data, error } = useResource(path);
  const [isAdding, setAdding] = useState(false);
  const [editing, setEditing] = useState<Provider>();
  const [removing, setRemoving] = useState<Provider>();
  return (
    <>
      <Panel
        id="providers"
        title="Providers of sign-in"
        isSettings={true}
        actions={
          <>
            <TerminalButton command={["oidc", "list", "--org", slug]} call={["GET", path]} />
            <Button isSmall={true} onClick={() => setAdding(true)}>
              Add a provider
            </Button>
          </>
        }
      >
        {data === undefined ? (
          <div class="in">
            <Loading rows={1} error={error} />
          </div>
        ) : null}
        {data?.length === 0 ? (
          <FactRow
            title="None. Any provider of OpenID Connect works."
            help="Its users are valid in this organization only. Owners sign in without it."
          />
        ) : null}
        {data?.map((each) => (
          <FactRow key={each.id} title={<bdi>{each.name}</bdi>} help={<OneProvider provider={each} />}>
            <span class="group tight">
              <Button isSmall={true} label={`Edit ${each.name}`} onClick={() => setEditing(each)}>
                Edit
              </Button>
              <Button
                isSmall={true}
                kind="ghost"
                label={`Remove ${each.name}`}
                onClick={() => setRemoving(each)}
              >
                Remove
              </Button>
            </span>
          </FactRow>
        ))}
      </Panel>
      <Domains />
      {isAdding ? <NewProvider path={path} complete={setEditing} close={() => setAdding(false)} /> : null}
      {editing === undefined ? null : (
        <EditProvider path={path} provider={editing} close={() => setEditing(undefined)} />
      )}
      {removing === undefined ? null : (
        <Confirm
          title={`Remove ${removing.name}?`}
          action={`Remove ${removing.name}`}
          typeName={removing.name}
          effect="Its users are signed out, and cannot sign in any more. There is no way back."
          close={() => setRemoving(undefined)}
          command={["oidc", "delete", removing.id, "--org", slug]}
          sends={request(organizationProvidersApi.delete, { slug, id: removing.id })}
          changes={path}
        />
      )}
    </>
  );
}

/** Where it is, what it gives, and what it still needs. */
const OneProvider = ({ provider }: { provider: Provider }) => (
  <>
    <p>
      <bdi>{provider.issuer}</bdi> <bdi>{rolesOf(provider)}</bdi>
    </p>
    {provider.client_id === "" ? (
      <State
        name="attention"
        word="Not registered there yet: nobody signs in by it. Enter its client ID with Edit."
      />
    ) : (
      <p>{leavingText(provider.leaving)}</p>
    )}
    <p>Register this redirect URI there:</p>
    <Line text={provider.redirect_uri} isText />
  </>
);

function rolesOf({ roles, creates_users }: Provider): string {
  const given = roles.map(({ group, role }) => `${group}: ${role}`);
  return [...given, ...(creates_users ? ["all others: member"] : [])].join(", ");
}
