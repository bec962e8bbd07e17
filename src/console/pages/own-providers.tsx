// How members of the organization sign in by a provider of its own, and the domains whose addresses count there.

import { useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { domainsApi, organizationProvidersApi, type Provider } from "../../api/providers.ts";
import { call } from "../api.ts";
import { leavingText } from "../leaving.ts";
import { slug } from "../me.ts";
import { refresh, useResource } from "../resource.ts";
import { FormFailure, Text, useAction } from "../ui/form.tsx";
import { tell } from "../ui/told.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Empty, Failure, FromTerminal, Line, Loading, State } from "../ui/parts.tsx";
import { EditProvider, NewProvider } from "./provider-form.tsx";

type Domain = SentOf<typeof domainsApi.list>[number];

export function OwnProviders() {
  const own = slug.value ?? "";
  const path = apiPath(organizationProvidersApi.list, { slug: own });
  const { data, error } = useResource(path);
  const [isAdding, add] = useState(false);
  const [editing, edit] = useState<Provider | undefined>(undefined);
  const [removing, remove] = useState<Provider | undefined>(undefined);
  return (
    <section>
      <h2>Sign-in by a provider of your own</h2>
      <p>Its users are valid in this organization only. Owners sign in without it.</p>
      {error === undefined ? data === undefined ? <Loading rows={3} /> : null : <Failure error={error} />}
      {data?.length === 0 ? <Empty text="None. Any provider of OpenID Connect works." /> : null}
      <ul class="plain-list">
        {data?.map((each) => (
          <li key={each.id}>
            <strong>
              <bdi>{each.name}</bdi>
            </strong>{" "}
            <bdi>{each.issuer}</bdi> <span class="quiet">{rolesOf(each)}</span>{" "}
            <button type="button" class="small" onClick={() => edit(each)}>
              Edit<span class="unseen"> {each.name}</span>
            </button>{" "}
            <button type="button" class="small" onClick={() => remove(each)}>
              Remove<span class="unseen"> {each.name}</span>
            </button>
            <p>
              {each.client_id === "" ? (
                <State
                  name="attention"
                  word="Not registered there yet: nobody signs in by it. Enter its client ID with Edit."
                />
              ) : (
                leavingText(each.leaving)
              )}
            </p>
            <p>Register this redirect URI there:</p>
            <Line text={each.redirect_uri} />
          </li>
        ))}
      </ul>
      <button type="button" onClick={() => add(true)}>
        Add a provider
      </button>
      {isAdding ? <NewProvider path={path} complete={edit} close={() => add(false)} /> : null}
      {editing === undefined ? null : (
        <EditProvider path={path} provider={editing} close={() => edit(undefined)} />
      )}
      {removing === undefined ? null : (
        <Confirm
          title={`Remove ${removing.name}?`}
          action={`Remove ${removing.name}`}
          typeName={removing.name}
          effect={
            <>
              <p>Its users are signed out, and cannot sign in any more. There is no way back.</p>
              <FromTerminal
                command={["oidc", "delete", removing.id, "--org", own]}
                call={["DELETE", apiPath(organizationProvidersApi.delete, { slug: own, id: removing.id })]}
              />
            </>
          }
          run={async () => {
            await call(organizationProvidersApi.delete, { slug: own, id: removing.id });
            await refresh(path);
          }}
          close={() => remove(undefined)}
        />
      )}
      <FromTerminal command={["oidc", "list", "--org", own]} call={["GET", path]} />
      <Domains />
    </section>
  );
}

function rolesOf({ roles, creates_users }: Provider): string {
  const given = roles.map(({ group, role }) => `${group}: ${role}`);
  return [...given, ...(creates_users ? ["all others: member"] : [])].join(", ");
}

function Domains() {
  const own = slug.value ?? "";
  const path = apiPath(domainsApi.list, { slug: own });
  const { data, error } = useResource(path);
  const [domain, edit] = useState("");
  const claim = useAction(async () => {
    await call(domainsApi.create, { slug: own }, { domain });
    await refresh(path);
    tell(`${domain} is claimed. Publish its record, then check it.`);
    edit("");
  });
  return (
    <>
      <h3>Domains</h3>
      <p>Addresses of your provider count in domains that a TXT record proves.</p>
      {error === undefined ? null : <Failure error={error} />}
      <ul class="plain-list">
        {data?.map((each) => (
          <OneDomain key={each.id} path={path} domain={each} />
        ))}
      </ul>
      <form class="narrow" onSubmit={claim.submit}>
        <Text
          label="Domain"
          errors={claim.error?.fields["domain"]}
          value={domain}
          set={edit}
          control={{ required: true, placeholder: "example.org" }}
        />
        <FormFailure error={claim.error} shown={["domain"]} />
        <button disabled={claim.isRunning}>Claim the domain</button>
      </form>
      <FromTerminal command={["domain", "list", own]} call={["GET", path]} />
    </>
  );
}

function OneDomain({ path, domain }: { path: string; domain: Domain }) {
  const [isAsked, ask] = useState(false);
  const at = { slug: slug.value ?? "", id: domain.id };
  const check = useAction(async () => {
    await call(domainsApi.check, at);
    await refresh(path);
  });
  return (
    <li>
      <bdi>{domain.domain}</bdi>{" "}
      {domain.verified_by === null ? (
        <>
          <span class="quiet">not verified</span>
          <p>
            Publish this text as TXT record of <bdi>{domain.record_name}</bdi>:
          </p>
          <Line text={domain.record_text} />
          <button type="button" class="small" disabled={check.isRunning} onClick={check.run}>
            Check<span class="unseen"> {domain.domain}</span>
          </button>{" "}
        </>
      ) : (
        <>
          <span class="quiet">verified by {domain.verified_by === "dns" ? "its record" : "staff"}</span>{" "}
        </>
      )}
      <button type="button" class="small" onClick={() => ask(true)}>
        Remove the claim<span class="unseen"> {domain.domain}</span>
      </button>
      {check.error === undefined ? null : <Failure error={check.error} />}
      {isAsked ? (
        <Confirm
          title={`Remove the claim of ${domain.domain}?`}
          action={`Remove ${domain.domain}`}
          effect={
            <>
              <p>
                {domain.verified_by === null
                  ? null
                  : "Users lose their addresses in it at the next sign-in. "}
                To claim it again, a new TXT record is needed.
              </p>
              <FromTerminal
                command={["domain", "delete", slug.value ?? "", domain.domain]}
                call={["DELETE", apiPath(domainsApi.delete, at)]}
              />
            </>
          }
          run={async () => {
            await call(domainsApi.delete, at);
            await refresh(path);
          }}
          close={() => ask(false)}
        />
      ) : null}
    </li>
  );
}
