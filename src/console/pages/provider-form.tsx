// The forms of an organization's provider of identities: a new one, and all settings of one that is there.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { apiPath } from "../../api/endpoint.ts";
import { organizationProvidersApi, type Provider } from "../../api/providers.ts";
import { call, type ApiError } from "../api.ts";
import { sentencesOf } from "../field-parts.ts";
import { slug } from "../me.ts";
import {
  changesIn,
  flagsOf,
  settingsIn,
  settingsOf,
  textsOf,
  type ProviderSettings,
  type ProviderTexts,
} from "../provider-settings.ts";
import { refresh } from "../resource.ts";
import { Check, FormFailure, Text, useAction } from "../ui/form.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, FromTerminal, Line, valueOf } from "../ui/parts.tsx";

const usual: ProviderSettings = {
  name: "",
  client_id: "",
  scopes: "openid email profile",
  groups_claim: "groups",
  tenant: null,
  domains: [],
  required_groups: [],
  roles: [],
  node_groups: [],
  creates_users: false,
};
const secretControl = { type: "password", autocomplete: "off" };

/** Input that was not added, for the next time. The secret is not kept. */
let kept = { path: "", issuer: "", settings: usual };

/** `complete`: for a provider that is not registered there yet. */
type Adding = { path: string; complete(made: Provider): void; close(): void };

export function NewProvider({ path, complete, close: shut }: Adding) {
  const before = kept.path === path ? kept : { issuer: "", settings: usual };
  const [issuer, setIssuer] = useState(before.issuer);
  const [secret, setSecret] = useState("");
  const form = useSettings(before.settings);
  const { name, ...rest } = changesIn(usual, form.settings);
  const close = () => {
    kept = { path, issuer, settings: form.settings };
    shut();
  };
  const { error, isRunning, submit } = useAction(async () => {
    const client_secret = secret === "" ? {} : { client_secret: secret };
    const body = { issuer, ...client_secret, ...form.settings };
    const made = await call(organizationProvidersApi.create, { slug: slug.value ?? "" }, body);
    await refresh(path);
    kept = { path: "", issuer: "", settings: usual };
    shut();
    if (made.client_id === "") complete(made);
  });
  return (
    <Dialog title="Add a provider" close={close} hasUnsaved={secret !== ""}>
      <form onSubmit={submit}>
        <p>
          Not registered there yet? Leave the client ID empty: the redirect URI that the provider asks for
          follows, and nobody signs in until you complete it.
        </p>
        <Text
          label="Issuer"
          help="Such as https://login.example.org. It is asked for its configuration now."
          errors={sentencesOf(error?.fields, "issuer")}
          value={issuer}
          set={setIssuer}
          control={{ required: true }}
        />
        <Settings form={form} error={error}>
          <Text
            label="Secret of the client"
            help="Empty for a public client."
            errors={sentencesOf(error?.fields, "client_secret")}
            value={secret}
            set={setSecret}
            control={secretControl}
          />
        </Settings>
        <FormFailure error={error} shown={shownFields} />
        <div class="actions">
          <button class="primary" disabled={isRunning}>
            Add the provider
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
        <FromTerminal
          command={[
            "oidc",
            "create",
            name || "NAME",
            issuer || "ISSUER",
            "--org",
            slug.value ?? "",
            ...flagsOf(rest),
            ...(secret === "" ? [] : ["--client-secret-file", "FILE"]),
          ]}
          call={[
            "POST",
            path,
            { issuer, ...form.settings, ...(secret === "" ? {} : { client_secret: "…" }) },
          ]}
        />
      </form>
    </Dialog>
  );
}

type Editing = { path: string; provider: Provider; close(): void };

export function EditProvider({ path, provider, close }: Editing) {
  const [secret, setSecret] = useState("");
  const form = useSettings(provider);
  const changes = changesIn(settingsOf(provider), form.settings);
  const body = { ...changes, ...(secret === "" ? {} : { client_secret: secret }) };
  const at = { slug: slug.value ?? "", id: provider.id };
  const { error, isRunning, submit } = useAction(async () => {
    await call(organizationProvidersApi.update, at, body);
    await refresh(path);
    close();
  });
  const isSame = Object.keys(body).length === 0;
  const flags = [...flagsOf(changes), ...(secret === "" ? [] : ["--client-secret-file", "FILE"])];
  const shown = { ...changes, ...(secret === "" ? {} : { client_secret: "…" }) };
  return (
    <Dialog title={`Edit ${provider.name}`} close={close} hasUnsaved={!isSame}>
      <form onSubmit={submit}>
        <p>Register this redirect URI there:</p>
        <Line text={provider.redirect_uri} />
        <Settings form={form} error={error}>
          <Text
            label="New secret of the client"
            help={provider.has_secret ? "Empty: the present one stays." : "Empty: it stays a public client."}
            errors={sentencesOf(error?.fields, "client_secret")}
            value={secret}
            set={setSecret}
            control={secretControl}
          />
        </Settings>
        <FormFailure error={error} shown={shownFields} />
        <p class="quiet">Roles and groups of machines change at each user's next sign-in.</p>
        <div class="actions">
          <button class="primary" disabled={isRunning || isSame}>
            Save the provider
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
        {isSame ? null : (
          <FromTerminal
            command={["oidc", "update", provider.id, "--org", slug.value ?? "", ...flags]}
            call={["PATCH", apiPath(organizationProvidersApi.update, at), shown]}
          />
        )}
      </form>
    </Dialog>
  );
}

type SettingsForm = {
  texts: ProviderTexts;
  createsUsers: boolean;
  settings: ProviderSettings;
  edit(key: keyof ProviderTexts, text: string): void;
  create(isOn: boolean): void;
};

function useSettings(present: ProviderSettings): SettingsForm {
  const [texts, setTexts] = useState(() => textsOf(present));
  const [createsUsers, create] = useState(present.creates_users);
  const edit = (key: keyof ProviderTexts, text: string) => setTexts({ ...texts, [key]: text });
  return { texts, createsUsers, settings: settingsIn(texts, createsUsers), edit, create };
}

const shownFields = ["issuer", "client_secret", ...Object.keys(textsOf(usual))];

type Shown = { form: SettingsForm; error: ApiError | undefined; children: ComponentChildren };

/** `children`: the secret, beside the client that it belongs to. */
function Settings({ form, error, children }: Shown) {
  const { texts, edit, createsUsers, create } = form;
  const line = (
    key: keyof ProviderTexts,
    label: string,
    help: string,
    control: Readonly<Record<string, unknown>> = {},
  ) => (
    <Text
      label={label}
      help={help}
      errors={sentencesOf(error?.fields, key)}
      value={texts[key]}
      set={(text: string) => edit(key, text)}
      control={control}
    />
  );
  const lines = (key: keyof ProviderTexts, label: string, help: string) => (
    <Field label={label} help={help} errors={sentencesOf(error?.fields, key)}>
      <textarea rows={3} value={texts[key]} onInput={(event: Event) => edit(key, valueOf(event))} />
    </Field>
  );
  // Rarely needed, so out of sight, unless one is set or refused.
  const more = ["node_groups", "required_groups", "domains", "tenant", "groups_claim", "scopes"] as const;
  const [isSet] = useState(() => more.some((key) => texts[key] !== textsOf(usual)[key]));
  return (
    <>
      {line("name", "Name", "On the button of the sign-in page.", { required: true })}
      {line("client_id", "Client ID", "Empty: not registered yet.")} {children}
      {lines("roles", "Roles of groups", "One a line, such as net-admins=admin or staff=member.")}
      <Check label="All others become members" checked={createsUsers} set={create} />
      <details open={isSet || more.some((key) => sentencesOf(error?.fields, key).length > 0)}>
        <summary>More: groups, domains, claims</summary>
        {lines(
          "node_groups",
          "Groups of machines",
          "One a line, GROUP=GROUP OF MACHINES, such as developers=build: for the machines of these users.",
        )}
        {lines("required_groups", "Groups that may sign in", "One a line. Empty: all.")}
        {line("domains", "Domains that may sign in", "Verified ones, separated by commas. Empty: all.")}
        {line(
          "tenant",
          "Tenant",
          "For issuers that many organizations share: CLAIM=VALUE, such as hd=example.org.",
        )}
        {line(
          "groups_claim",
          "Claim of the groups",
          "Its name, or the way to it with dots: realm_access.roles.",
          { required: true },
        )}
        {line(
          "scopes",
          "Scopes",
          "With spaces between. With offline_access most providers can be asked whether users are still there.",
          { required: true },
        )}
      </details>
    </>
  );
}
