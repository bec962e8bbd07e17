// The settings of the organization.

import { apiPath } from "../../api/endpoint.ts";
import { membersApi } from "../../api/members.ts";
import {
  organizationSettings,
  organizationsApi,
  type Organization,
  type OrganizationPatch,
} from "../../api/organizations.ts";
import { flagWords, type Setting } from "../../protocol/settings.ts";
import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { request, call } from "../contact/api.ts";
import { factors, mayAdminister, organization, readMe, currentSlug } from "../contact/me.ts";
import { refresh, useList, useResource } from "../contact/resource.ts";
import { go, pathOf, root } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { DraftBar } from "../ui/draft-bar.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { Loading } from "../ui/parts.tsx";
import { idOf, Sections } from "../ui/sections.tsx";
import { FactRow, SettingField, SettingRow } from "../ui/setting-fields.tsx";
import { differing } from "../ui/setting-values.ts";
import { tell } from "../ui/toast.tsx";
import { setUnsaved } from "../frame/unsaved.ts";
import { OwnProviders } from "../providers/own-providers.tsx";
import { plural } from "../words/numbers.ts";

const ownPath = (slug: string) => apiPath(organizationsApi.retrieve, { slug });
/** In the order of the page. Alarms have a page of their own. */
const sections = ["Organization", "Names", "Sign-in", "Nodes", "Reports", "Certificates"];
const fields = Object.entries<Setting>(organizationSettings).filter(([, { section = "" }]) =>
  sections.includes(section),
);

export function Settings() {
  const slug = currentSlug.value ?? "";
  const { data, error } = useResource(ownPath(slug));
  if (data !== undefined) return <SettingsForm key={slug} present={data} />;
  return (
    <Page title="Settings">
      <Loading rows={14} error={error} />
    </Page>
  );
}

type Edits = OrganizationPatch;

/** Edits that are not saved yet, by slug: they outlive the page, not the tab. */
const drafts = signal<ReadonlyMap<string, Edits>>(new Map());

function keep(slug: string, edits: Edits): void {
  drafts.value = new Map(drafts.peek()).set(slug, edits);
  setUnsaved(`${slug}/settings`, Object.keys(edits).length > 0);
}

/** `present`: as it is saved. */
function SettingsForm({ present }: { present: Organization }) {
  const slug = currentSlug.value ?? "";
  const changes = drafts.value.get(slug) ?? {};
  const now = { ...present, ...changes };
  const set = (more: object) => keep(slug, differing({ ...drafts.peek().get(slug), ...more }, present));
  const { error, isRunning, submit } = useAction(async () => {
    await call(organizationsApi.update, { slug }, changes);
    await Promise.all([refresh(ownPath(slug)), readMe()]);
    // What was typed meanwhile stays.
    keep(slug, differing(drafts.peek().get(slug) ?? {}, changes));
    tell("Saved.");
  });
  const form = useRef<HTMLFormElement>(null);
  const count = Object.keys(changes).length;
  const disabled = !mayAdminister.value;
  const isOwner = organization.value?.role === "owner";
  const all = [...sections, ...(disabled ? [] : ["Providers"]), ...(isOwner ? ["Delete"] : [])];
  const isChanged = (field: string) => Object.hasOwn(changes, field);
  const locksSelfOut =
    changes.second_factor_required && !factors.value?.totp && factors.value?.passkeys === 0;
  const lockoutNote = (
    <p role="status">
      <small class="limited">
        You have none, and would lock yourself out: add one on the page{" "}
        <a href={pathOf("-", "account")}>Account</a> first. What you changed here stays.
      </small>
    </p>
  );
  return (
    <Page
      title="Settings"
      terminal={
        count === 0
          ? { command: ["org", "show", slug], call: ["GET", ownPath(slug)] }
          : {
              command: ["org", "update", slug, ...flagWords(organizationSettings, changes)],
              call: ["PATCH", ownPath(slug), changes],
            }
      }
    >
      <Sections
        all={all}
        changed={(section) =>
          fields.filter(([key, each]) => each.section === section && isChanged(key)).length
        }
      >
        {disabled ? <p class="quiet">Administrators change these.</p> : null}
        <form class="stackd" ref={form} onSubmit={submit}>
          {/* The bar below saves; Enter in a field does, too. */}
          <button hidden />
          {sections.map((title) => (
            <Panel key={title} id={idOf(title)} title={title} isSettings={true}>
              {fields
                .filter(([, { section }]) => section === title)
                .map(([field, setting]) => (
                  <SettingField
                    key={field}
                    {...{ field, setting, present, now, error, disabled, set }}
                    frame={SettingRow}
                    note={field === "second_factor_required" && locksSelfOut ? lockoutNote : null}
                  />
                ))}
              {title === "Organization" ? <Fixed present={present} /> : null}
            </Panel>
          ))}
          <FormFailure error={error} shown={fields.map(([field]) => field)} />
        </form>
        {disabled ? null : <OwnProviders key={`providers ${slug}`} />}
        {isOwner ? <Deletion present={present} /> : null}
      </Sections>
      {disabled || count === 0 ? null : (
        <DraftBar
          changes={`${plural(count, "setting")} changed`}
          more={changes.second_factor_required ? <WithoutFactor slug={slug} /> : null}
          isRunning={isRunning}
          save={() => form.current?.requestSubmit()}
          discard={() => keep(slug, {})}
        />
      )}
    </Page>
  );
}

/** How many members would have to add a second factor. */
function WithoutFactor({ slug }: { slug: string }) {
  const { data = [] } = useList(apiPath(membersApi.list, { slug }, { page_size: "1000" }));
  const active = data.filter(({ state }) => state === "active");
  const without = active.filter(({ second_factors }) => second_factors?.length === 0).length;
  return without === 0 ? null : (
    <>
      {without} of {active.length} members {without === 1 ? "has" : "have"} no second factor yet
    </>
  );
}

/** What stays as it was made. */
const Fixed = ({ present }: { present: Organization }) => (
  <>
    <FactRow title="Short name" help="In addresses, names and commands. It stays.">
      <code>{present.slug}</code>
    </FactRow>
    <FactRow title="Network" help="It stays.">
      <code>{present.network}</code>
    </FactRow>
    <FactRow title="Configuration">
      <span>version {present.config_version}</span>
    </FactRow>
  </>
);

function Deletion({ present }: { present: Organization }) {
  const [isAsked, setAsked] = useState(false);
  const nodeWords = present.node_count === 1 ? "node" : `${present.node_count} nodes`;
  return (
    <Panel id="delete" title="Delete" isSettings={true}>
      <FactRow
        title={
          <>
            Delete <bdi>{present.slug}</bdi>
          </>
        }
        help={
          present.node_count === 0
            ? "Its network ends. There is no way back."
            : `Revokes its ${nodeWords} within seconds. There is no way back.`
        }
      >
        <Button kind="danger" onClick={() => setAsked(true)}>
          Delete {present.slug}…
        </Button>
      </FactRow>
      {isAsked ? (
        <Confirm
          title={`Delete ${present.slug}?`}
          action={`Delete ${present.slug} and revoke its ${nodeWords}`}
          effect="All tunnels of its nodes end within seconds. There is no way back."
          typeName={present.slug}
          run={async () => {
            await readMe();
            go(root);
          }}
          close={() => setAsked(false)}
          command={["org", "delete", present.slug]}
          sends={request(organizationsApi.delete, present)}
        />
      ) : null}
    </Panel>
  );
}
