// The domains of an organization, whose e-mail addresses count at its providers of identities: claimed, proven by a TXT record, removed.

import { useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { domainsApi } from "../../api/providers/domains.ts";
import { request, call } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { Button } from "../ui/button.tsx";
import { Text, useAction, useSending } from "../ui/form.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { Failure, Line, State } from "../ui/parts.tsx";
import { FactRow } from "../ui/setting-fields.tsx";

type Domain = SentOf<typeof domainsApi.list>[number];

export function Domains() {
  const slug = currentSlug.value ?? "";
  const path = apiPath(domainsApi.list, { slug });
  const { data, error } = useResource(path);
  const [isClaiming, setClaiming] = useState(false);
  return (
    <Panel
      title="Verified domains"
      isSettings={true}
      actions={
        <>
          <TerminalButton command={["domain", "list", slug]} call={["GET", path]} />
          <Button isSmall={true} onClick={() => setClaiming(true)}>
            Add a domain
          </Button>
        </>
      }
    >
      <Failure error={error} />
      {data?.length === 0 ? (
        <FactRow title="None." help="Addresses of your provider count in domains that a TXT record proves." />
      ) : null}
      {data?.map((each) => (
        <OneDomain key={each.id} path={path} domain={each} />
      ))}
      {isClaiming ? <Claim path={path} close={() => setClaiming(false)} /> : null}
    </Panel>
  );
}

function Claim({ path, close }: { path: string; close(): void }) {
  const slug = currentSlug.value ?? "";
  const [domain, setDomain] = useState("");
  const form = useSending(request(domainsApi.create, { slug }, { domain }), path, close);
  return (
    <FormDialog
      title="Add a domain"
      close={close}
      hasUnsaved={domain !== ""}
      action="Claim the domain"
      form={form}
      shown={["domain"]}
      command={["domain", "create", slug, domain || "DOMAIN"]}
    >
      <p>Addresses of your provider count in it once its TXT record is published. It is shown next.</p>
      <Text
        label="Domain"
        errors={form.error?.fields["domain"]}
        value={domain}
        set={setDomain}
        control={{ required: true, placeholder: "example.org" }}
      />
    </FormDialog>
  );
}

function OneDomain({ path, domain }: { path: string; domain: Domain }) {
  const [isAsked, setAsked] = useState(false);
  const at = { slug: currentSlug.value ?? "", id: domain.id };
  const check = useAction(async () => {
    await call(domainsApi.check, at);
    await refresh(path);
  });
  const isVerified = domain.verified_by !== null;
  return (
    <FactRow
      title={<bdi>{domain.domain}</bdi>}
      help={
        <>
          {isVerified ? (
            <State
              name="online"
              word={`verified by ${domain.verified_by === "dns" ? "its record" : "staff"}`}
            />
          ) : (
            <>
              <State name="waiting" word="not verified" />
              <p>
                Publish this text as TXT record of <bdi>{domain.record_name}</bdi>, then check it:
              </p>
              <Line text={domain.record_text} isText />
            </>
          )}
          <Failure error={check.error} />
        </>
      }
    >
      <span class="group tight">
        {isVerified ? null : (
          <Button
            isSmall={true}
            kind="tint"
            label={`Check ${domain.domain}`}
            disabled={check.isRunning}
            onClick={check.run}
          >
            Check
          </Button>
        )}
        <Button
          isSmall={true}
          kind="ghost"
          label={`Remove the claim ${domain.domain}`}
          onClick={() => setAsked(true)}
        >
          Remove
        </Button>
        {isAsked ? (
          <Confirm
            title={`Remove the claim of ${domain.domain}?`}
            action={`Remove ${domain.domain}`}
            effect={
              <p>
                {isVerified ? "Users lose their addresses in it at the next sign-in. " : null}
                To claim it again, a new TXT record is needed.
              </p>
            }
            close={() => setAsked(false)}
            command={["domain", "delete", currentSlug.value ?? "", domain.domain]}
            sends={request(domainsApi.delete, at)}
            changes={path}
          />
        ) : null}
      </span>
    </FactRow>
  );
}
