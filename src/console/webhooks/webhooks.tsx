// The webhooks of an organization.

import { alarmsApi } from "../../api/webhooks/alarms.ts";
import type { ListedWebhook as Webhook } from "../../api/webhooks/webhooks.ts";
import { useState } from "preact/hooks";
import { call } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { Button, Words } from "../ui/button.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { tell } from "../ui/toast.tsx";
import { List, textColumn } from "../ui/lists/list.tsx";
import { Page } from "../ui/page.tsx";
import { State } from "../ui/parts.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";

import { EditWebhook, webhooksPath } from "./webhook-forms.tsx";
import { eventsOf, WebhookById } from "./webhook-page.tsx";

export function Webhooks({ rest: [id] }: { rest: readonly string[] }) {
  return id === undefined ? <WebhookList /> : <WebhookById key={id} id={id} />;
}

function WebhookList() {
  const slug = currentSlug.value ?? "";
  const [isMaking, setMaking] = useState(false);
  const test = useAction(async () => {
    const { webhooks } = await call(alarmsApi.test, { slug }, {});
    tell(`A test alarm goes to ${webhooks} of the webhooks.`);
  });
  return (
    <Page
      title="Webhooks"
      terminal={{ command: ["webhook", "list", slug], call: ["GET", webhooksPath(slug)] }}
      actions={
        <>
          <Button disabled={test.isRunning} onClick={test.run}>
            Test alarms
          </Button>
          <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
            <Words first="Create" rest="a webhook" />
          </Button>
        </>
      }
    >
      <FormFailure error={test.error} />
      <List
        label="Webhooks"
        path={webhooksPath(slug)}
        columns={[
          textColumn("url", "URL", 4, ({ url }: Webhook) => url),
          textColumn("events", "Events", 3, ({ events }: Webhook) => eventsOf(events)),
          {
            key: "state",
            title: "State",
            width: 1,
            text: stateOf,
            cell: (webhook: Webhook) =>
              webhook.failing ? <State name="attention" word={stateOf(webhook)} /> : "",
          },
          timeColumn("created", "Created", ({ created_at }: Webhook) => created_at),
        ]}
        keyOf={({ id }: Webhook) => id}
        linkOf={({ id }: Webhook) => pathOf(slug, "webhooks", id)}
        empty="None. A webhook tells alarms by mail or in a chat, or sends events to your program."
      />
      {isMaking ? <EditWebhook close={() => setMaking(false)} /> : null}
    </Page>
  );
}

const stateOf = ({ failing }: Webhook) => (failing ? "failing" : "");
