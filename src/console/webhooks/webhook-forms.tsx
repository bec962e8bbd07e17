// The forms of webhooks: a new one, changes of one, and the question before one is deleted.

import { useSending } from "../ui/form.tsx";
import { apiPath, type GivenOf } from "../../api/endpoint.ts";
import { formatOf } from "../../api/webhooks/delivery-formats.ts";
import { webhooksApi, webhookSettings, type ListedWebhook as Webhook } from "../../api/webhooks/webhooks.ts";
import { flagWords, type Settings } from "../../protocol/settings.ts";
import { useState } from "preact/hooks";
import { request } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { go, pathOf } from "../frame/router.ts";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Confirm, FormDialog, ShownOnce } from "../ui/dialog.tsx";
import { SettingFields, useSettings } from "../ui/setting-fields.tsx";

export const webhooksPath = (slug: string) => apiPath(webhooksApi.list, { slug });

/** What a new webhook begins with: Alarms leads to it. */
const ofAlarms = { events: ["alarm.*"] };

/** The settings, and below their format the one that follows from this URL. */
function settingsFor(url: string): Settings {
  if (!URL.canParse(url)) return webhookSettings;
  const { format } = webhookSettings;
  const found = formatOf(url);
  // In the choice, `json` reads "By the URL, else JSON": here the URL has decided.
  const word = found === "json" ? "JSON" : format.choices[format.words.indexOf(found)];
  return { ...webhookSettings, format: { ...format, more: `${word}, by its address.` } };
}

/** Creates a webhook, or changes the given one. */
export function EditWebhook({ webhook: current, close }: { webhook?: Webhook; close(): void }) {
  const slug = currentSlug.value ?? "";
  // As it was when the dialog opened, so that only what this user edits is sent.
  const [webhook] = useState(current);
  const offered = usePart(parts.activity)?.eventNames;
  const form = useSettings<GivenOf<typeof webhooksApi.create>>(webhookSettings, webhook ?? ofAlarms);
  const { now: typed, changes } = form;
  // A format that is not chosen follows from the URL.
  const isByUrl = changes.url !== undefined && typed.format === "json";
  const given = { ...changes, url: typed.url, events: typed.events };
  const [secret, setSecret] = useState<string>();
  const params = { slug, id: webhook?.id ?? 0 };
  const sends =
    webhook === undefined
      ? request(webhooksApi.create, params, given)
      : request(webhooksApi.update, params, changes);
  const sending = useSending<{ format: string; secret?: string }>(sends, webhooksPath(slug), (made) => {
    if (webhook === undefined && made.format === "json") setSecret(made.secret);
    else close();
  });
  if (secret !== undefined)
    return (
      <ShownOnce title="The secret of the webhook" secret={secret} close={close}>
        It signs each delivery, as standardwebhooks.com describes: the program checks it.
      </ShownOnce>
    );
  // The URL is an argument of the command, the others are flags.
  const { url: _, ...flags } = given;
  return (
    <FormDialog
      title={webhook === undefined ? "Create a webhook" : "Edit the webhook"}
      hasUnsaved={Object.keys(changes).length > 0}
      close={close}
      action={webhook === undefined ? "Create the webhook" : "Save"}
      form={sending}
      shown={Object.keys(webhookSettings)}
      command={
        webhook === undefined
          ? ["webhook", "create", slug, typed.url, ...flagWords(webhookSettings, flags)]
          : ["webhook", "update", slug, webhook.id, ...flagWords(webhookSettings, changes)]
      }
    >
      <SettingFields
        settings={isByUrl ? settingsFor(typed.url) : webhookSettings}
        form={form}
        error={sending.error}
        offered={offered}
      />
    </FormDialog>
  );
}

export function Deletion({ webhook, close }: { webhook: Webhook; close(): void }) {
  const slug = currentSlug.value ?? "";
  const params = { slug, id: webhook.id };
  return (
    <Confirm
      title={`Delete the webhook ${webhook.url}?`}
      action="Delete the webhook"
      // The address of a mailbox has no host.
      typeName={new URL(webhook.url).host || webhook.url}
      effect="There is no way back: deliveries that wait are not sent, and a new webhook has another secret."
      run={() => go(pathOf(slug, "alarms"))}
      close={close}
      command={["webhook", "delete", slug, webhook.id]}
      sends={request(webhooksApi.delete, params)}
    />
  );
}
