// The forms of an organization's provider of identities: a new one, and all settings of one that is there.

import { FormDialog } from "../ui/dialog.tsx";
import { useState } from "preact/hooks";
import type { GivenOf } from "../../api/endpoint.ts";
import {
  organizationProvidersApi,
  organizationProviderSettings,
  type Provider,
} from "../../api/providers/providers.ts";
import { flagWords, type Settings } from "../../protocol/settings.ts";
import { type ApiError, request } from "../contact/api.ts";
import { sentencesOf } from "../words/field-parts.ts";
import { currentSlug } from "../contact/me.ts";
import { differing, valuesOf } from "../ui/setting-values.ts";
import { Text, useSending } from "../ui/form.tsx";
import { Line } from "../ui/parts.tsx";
import { SettingFields, useSettings, type SettingsForm } from "../ui/setting-fields.tsx";

type Values = Omit<GivenOf<typeof organizationProvidersApi.create>, "issuer">;
/** The values that a new provider begins with. */
const usual: Values = valuesOf(organizationProviderSettings);
const withSecret = (more: string): Settings => {
  const { client_secret } = organizationProviderSettings;
  return { ...organizationProviderSettings, client_secret: { ...client_secret, more } };
};

const empty = { issuer: "", values: usual };
/** Input that was not added, for the next time. The secret is not kept. */
let draft = { path: "", ...empty };

/** `complete`: called with the new provider if its client ID is missing, because it is not registered there yet. */
type Adding = { path: string; complete(made: Provider): void; close(): void };

export function NewProvider({ path, complete, close }: Adding) {
  const initial = draft.path === path ? draft : empty;
  const [issuer, setIssuer] = useState(initial.issuer);
  const form = useSettings(organizationProviderSettings, undefined, initial.values);
  // The name is an argument of the command, the others are flags.
  const { name, ...flags } = form.changes;
  const body = { issuer, ...form.now };
  const closeWithDraft = () => {
    const { client_secret: _, ...values } = form.now;
    draft = { path, issuer, values };
    close();
  };
  const sends = request(organizationProvidersApi.create, { slug: currentSlug.value ?? "" }, body);
  const sending = useSending(sends, path, (made) => {
    draft = { path: "", ...empty };
    close();
    if (isIncomplete(made)) complete(made);
  });
  return (
    <FormDialog
      title="Add a provider"
      close={closeWithDraft}
      // All else is in the draft.
      hasUnsaved={flags.client_secret !== undefined}
      action="Add the provider"
      form={sending}
      shown={shownFields}
      command={[
        "oidc",
        "create",
        name || "NAME",
        issuer || "ISSUER",
        "--org",
        currentSlug.value ?? "",
        ...flagWords(organizationProviderSettings, flags),
      ]}
    >
      <p>
        Not registered there yet? Leave the client ID empty: the redirect URI that the provider asks for
        follows, and nobody signs in until you complete it.
      </p>
      <Text
        label="Issuer"
        help="Such as https://login.example.org. It is asked for its configuration now."
        errors={sentencesOf(sending.error?.fields, "issuer")}
        value={issuer}
        set={setIssuer}
        control={{ required: true }}
      />
      <Fields settings={withSecret("Empty for a public client.")} form={form} error={sending.error} />
    </FormDialog>
  );
}

const isIncomplete = ({ client_id }: Provider) => client_id === "";

type Editing = { path: string; provider: Provider; close(): void };

export function EditProvider({ path, provider, close }: Editing) {
  const form = useSettings<Values>(organizationProviderSettings, provider);
  const { changes } = form;
  const at = { slug: currentSlug.value ?? "", id: provider.id };
  const sending = useSending(request(organizationProvidersApi.update, at, changes), path, close);
  const isSame = Object.keys(changes).length === 0;
  return (
    <FormDialog
      title={`Edit ${provider.name}`}
      close={close}
      hasUnsaved={!isSame}
      action="Save the provider"
      form={sending}
      disabled={isSame}
      shown={shownFields}
      command={
        isSame
          ? undefined
          : [
              "oidc",
              "update",
              provider.id,
              "--org",
              currentSlug.value ?? "",
              ...flagWords(organizationProviderSettings, changes),
            ]
      }
    >
      <p>Register this redirect URI there:</p>
      <Line text={provider.redirect_uri} isText />
      <Fields
        settings={withSecret(
          `Empty: ${provider.has_secret ? "the present one stays" : "it stays a public client"}.`,
        )}
        form={form}
        error={sending.error}
      />
      <p class="quiet">Roles and groups of nodes change at each user's next sign-in.</p>
    </FormDialog>
  );
}

const shownFields = ["issuer", ...Object.keys(organizationProviderSettings)];

type Shown = { settings: Settings; form: SettingsForm<Values>; error: ApiError | undefined };

/** The fields of a titled section are rarely needed: out of sight, unless one is set or refused. Those of the section "" come first. */
function Fields({ settings, form, error }: Shown) {
  const sections = Map.groupBy(Object.entries(settings), ([, { section }]) => section);
  const ofSection = (section: string) => Object.fromEntries(sections.get(section) ?? []);
  // As the form was opened: a section must not close while the user empties its field.
  const [isSet] = useState(() => Object.keys(differing(form.now, usual)));
  return (
    <>
      <SettingFields settings={ofSection("")} form={form} error={error} />
      {[...sections.keys()].map((title) =>
        title ? (
          <details
            key={title}
            open={Object.keys(ofSection(title)).some(
              (field) => isSet.includes(field) || sentencesOf(error?.fields, field).length > 0,
            )}
          >
            <summary>{title}</summary>
            <SettingFields settings={ofSection(title)} form={form} error={error} />
          </details>
        ) : null,
      )}
    </>
  );
}
