// The settings of the organization.

import { apiPath } from "../../api/endpoint.ts";
import {
  organizationSettings,
  organizationsApi,
  type Organization,
  type OrganizationPatch,
} from "../../api/organizations.ts";
import { flagWords, type Setting } from "../../protocol/settings.ts";
import "../core.ts";
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { factors, mayAdminister, organization, readMe, slug } from "../me.ts";
import { refresh, useResource } from "../resource.ts";
import { go, pathOf, root } from "../router.ts";
import { FormFailure, useAction } from "../ui/form.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Facts, Failure, FromTerminal, Loading } from "../ui/parts.tsx";
import { tell } from "../ui/told.tsx";
import { SettingField } from "../ui/setting-fields.tsx";
import { differing } from "../setting-values.ts";
import { setUnsaved } from "../unsaved.ts";
import { OwnProviders } from "./own-providers.tsx";

const ownPath = (own: string) => apiPath(organizationsApi.retrieve, { slug: own });
const fields = Object.entries<Setting>(organizationSettings).filter(([, { section }]) => section);

export function Settings() {
  const own = slug.value ?? "";
  const { data, error } = useResource(ownPath(own));
  if (data === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  const facts = [
    ["Slug", data.slug],
    ["Network", data.network],
    ["Machines", `${data.node_count}`],
    ["Configuration", `version ${data.config_version}`],
  ] as const;
  return (
    <>
      <h1>Settings</h1>
      <Facts facts={facts} />
      <Form key={own} present={data} />
      {mayAdminister.value ? <OwnProviders key={`providers ${own}`} /> : null}
      {organization.value?.role === "owner" ? <Deletion present={data} /> : null}
    </>
  );
}

type Edits = OrganizationPatch;

/** What is not saved yet, by organization: it outlives the page, not the tab. */
const drafts = signal<ReadonlyMap<string, Edits>>(new Map());

function keep(own: string, edits: Edits): void {
  drafts.value = new Map(drafts.peek()).set(own, edits);
  setUnsaved(`${own}/settings`, Object.keys(edits).length > 0);
}

function Form({ present }: { present: Organization }) {
  const own = slug.value ?? "";
  const changes = drafts.value.get(own) ?? {};
  const now = { ...present, ...changes };
  const set = (more: object) => keep(own, differing({ ...drafts.peek().get(own), ...more }, present));
  const { error, isRunning, submit } = useAction(async () => {
    await call(organizationsApi.update, { slug: own }, changes);
    await Promise.all([refresh(ownPath(own)), readMe()]);
    // What was typed meanwhile stays.
    keep(own, differing(drafts.peek().get(own) ?? {}, changes));
    tell("Saved.");
  });
  const isSame = Object.keys(changes).length === 0;
  const disabled = !mayAdminister.value;
  return (
    <form class="narrow" onSubmit={submit}>
      {[...Map.groupBy(fields, ([, { section }]) => section)].map(([title, ofIt]) => (
        <>
          <h2>{title}</h2>
          {ofIt.map(([field, setting]) => (
            <SettingField key={field} {...{ field, setting, present, now, error, disabled, set }} />
          ))}
        </>
      ))}
      {changes.second_factor_required && factors.value?.totp === false && factors.value.passkeys === 0 ? (
        <p class="limited" role="status">
          You have none, and would lock yourself out: add one on the page{" "}
          <a href={pathOf("-", "account")}>Account</a> first. What you changed here stays.
        </p>
      ) : null}
      <FormFailure error={error} shown={fields.map(([field]) => field)} />
      {disabled ? (
        <p class="quiet">Administrators change these.</p>
      ) : (
        <>
          <div class="actions">
            <button class="primary" disabled={isRunning || isSame}>
              Save
            </button>
            <button type="button" disabled={isSame} onClick={() => keep(own, {})}>
              Discard
            </button>
          </div>
          <FromTerminal
            command={["org", "update", own, ...flagWords(organizationSettings, changes)]}
            call={["PATCH", ownPath(own), changes]}
          />
        </>
      )}
    </form>
  );
}

function Deletion({ present }: { present: Organization }) {
  const [isAsked, ask] = useState(false);
  return (
    <>
      <h2>Delete the organization</h2>
      <p>All its machines are revoked and its network ends. There is no way back.</p>
      <button type="button" class="danger" onClick={() => ask(true)}>
        Delete {present.slug}
      </button>
      {isAsked ? (
        <Confirm
          title={`Delete ${present.slug}?`}
          action={`Delete ${present.slug} and revoke its ${present.node_count} machines`}
          effect={
            <>
              <p>All tunnels of its machines end within seconds. There is no way back.</p>
              <FromTerminal
                command={["org", "delete", present.slug]}
                call={["DELETE", ownPath(present.slug)]}
              />
            </>
          }
          typeName={present.slug}
          run={async () => {
            await call(organizationsApi.delete, present);
            await readMe();
            go(root);
          }}
          close={() => ask(false)}
        />
      ) : null}
    </>
  );
}
