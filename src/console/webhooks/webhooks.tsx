// Webhooks, and the deliveries of one.

import { apiPath, type GivenOf } from "../../api/endpoint.ts";
import {
  webhooksApi,
  webhookSettings,
  type ListedDelivery as Delivery,
  type ListedWebhook as Webhook,
} from "../../api/webhooks.ts";
import { flagWords } from "../../protocol/settings.ts";
import { useState } from "preact/hooks";
import type { Things } from "../activity/activity.ts";
import { request, call } from "../contact/api.ts";
import { nodesIn, standingOf } from "./deliveries.ts";
import { slug } from "../contact/me.ts";
import { useNamed } from "../activity/named-nodes.ts";
import { refresh, useList } from "../contact/resource.ts";
import { go, pathOf, useShownName } from "../frame/router.ts";
import { dayOf } from "../words/ago.ts";
import { Button } from "../ui/button.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { List, textColumn } from "../ui/lists/list.tsx";
import { Confirm, FormDialog, ShownOnce } from "../ui/dialog.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Panel, Why } from "../ui/page.tsx";
import { Empty, Facts, Failure, Loading, State, When } from "../ui/parts.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { Pill } from "../ui/tag.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { SettingFields, useSettings } from "../ui/setting-fields.tsx";
import { useDeliveries, useSending, type Log } from "./use-deliveries.ts";

const webhooksPath = (own: string) => apiPath(webhooksApi.list, { slug: own });

export function Webhooks({ rest: [id] }: { rest: readonly string[] }) {
  return id === undefined ? <WebhookList /> : <WebhookById key={id} id={id} />;
}

function WebhookList() {
  const own = slug.value ?? "";
  const [isMaking, make] = useState(false);
  return (
    <Page
      title="Webhooks"
      terminal={{ command: ["webhook", "list", own], call: ["GET", webhooksPath(own)] }}
      actions={
        <Button kind="primary" icon="plus" onClick={() => make(true)}>
          <span>
            Create<span class="no-phone"> a webhook</span>
          </span>
        </Button>
      }
    >
      <List
        label="Webhooks"
        path={webhooksPath(own)}
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
        linkOf={({ id }: Webhook) => pathOf(own, "webhooks", id)}
        empty="None. A webhook sends events to your program."
      />
      {isMaking ? <Edit close={() => make(false)} /> : null}
    </Page>
  );
}

const stateOf = ({ failing }: Webhook) => (failing ? "failing" : "");

const eventsOf = (events: readonly string[]) => (events.includes("*") ? "all" : events.join(", "));

/** Creates a webhook, or changes the given one. */
function Edit({ webhook: now, close }: { webhook?: Webhook; close(): void }) {
  const own = slug.value ?? "";
  // As it was when the dialog opened, so that only what this user edits is sent.
  const [webhook] = useState(now);
  const form = useSettings<GivenOf<typeof webhooksApi.create>>(webhookSettings, webhook);
  const { now: typed, changes } = form;
  const [secret, setSecret] = useState<string | undefined>(undefined);
  const params = { slug: own, id: webhook?.id ?? 0 };
  const sending = useAction(async () => {
    const made = webhook === undefined ? await call(webhooksApi.create, params, typed) : undefined;
    if (made === undefined) await call(webhooksApi.update, params, changes);
    await refresh(webhooksPath(own));
    if (made === undefined) close();
    else setSecret(made.secret);
  });
  if (secret !== undefined)
    return (
      <ShownOnce title="The secret of the webhook" secret={secret} close={close}>
        It signs each delivery, as standardwebhooks.com describes: the program checks it.
      </ShownOnce>
    );
  const { url: _, ...events } = changes;
  return (
    <FormDialog
      title={webhook === undefined ? "Create a webhook" : "Edit the webhook"}
      hasUnsaved={Object.keys(changes).length > 0}
      close={close}
      action={webhook === undefined ? "Create the webhook" : "Save"}
      form={sending}
      shown={Object.keys(webhookSettings)}
      terminal={{
        command:
          webhook === undefined
            ? ["webhook", "create", own, typed.url, ...flagWords(webhookSettings, events)]
            : ["webhook", "update", own, webhook.id, ...flagWords(webhookSettings, changes)],
        call:
          webhook === undefined
            ? ["POST", webhooksPath(own), typed]
            : ["PATCH", apiPath(webhooksApi.update, params), changes],
      }}
    >
      <SettingFields settings={webhookSettings} form={form} error={sending.error} />
    </FormDialog>
  );
}

const states = {
  waiting: ["waiting", "waiting"],
  delivered: ["online", "delivered"],
  failed: ["attention", "failed"],
} as const;

function SendAgain({ delivery, log }: { delivery: Delivery; log: Log }) {
  const { error, run, isBusy } = useSending(log, [delivery]);
  const words = delivery.state === "waiting" ? "Send now" : "Send again";
  return (
    <button type="button" class="small" disabled={isBusy} title={error?.message} onClick={run}>
      {error === undefined ? words : "Not sent"}
      <span class="unseen">: event {delivery.event_id}</span>
    </button>
  );
}

/** The state of the webhook, as its read deliveries tell it; if it fails, why and what to do. */
function Standing({ log, failing }: { log: Log; failing?: boolean }) {
  const { waiting, failure, lastSuccess } = standingOf(log.items);
  const { error, run, isBusy } = useSending(log, waiting);
  if (log.items.length === 0) return null;
  // If none of these has been tried yet, only the control plane knows.
  const isFailing = failure !== undefined || (lastSuccess === null && failing === true);
  const last = (
    <>
      Last success: <When at={lastSuccess} never="none" />.
    </>
  );
  const again =
    waiting.length === 0 ? null : (
      <Button disabled={isBusy} onClick={run}>
        Send all of them now
      </Button>
    );
  const waits = waiting.length === 0 ? null : <>Waiting for the next attempt: {waiting.length}.</>;
  return (
    <>
      {isFailing ? (
        <Why title="Deliveries are failing" actions={again}>
          <p>
            {last}{" "}
            {failure === undefined ? null : (
              <>
                The last attempt failed: <bdi>{failure}</bdi>
              </>
            )}{" "}
            {waits}
          </p>
        </Why>
      ) : (
        <p class="group quiet">
          <span>
            {last} {waits}
          </span>
          {again}
        </p>
      )}
      <FormFailure error={error} />
    </>
  );
}

/** A delivery is made after its event, which may be of the day before. */
const lateMs = 3_600_000;

/** The event's type and what it is about, with a link to these events on its day. */
const eventColumn = (own: string, things: Things): Column<Delivery> => ({
  key: "event",
  title: "Event",
  width: 3,
  // Names come after the rest.
  isRestless: true,
  text: ({ event_type, event_subject: subject }) =>
    `${event_type} ${subject} ${things.get(subject) ?? ""}`.trim(),
  cell: ({ event_id, event_type: type, event_subject: subject, created_at }) => {
    const made = Date.parse(created_at);
    const words = new URLSearchParams({ type, subject, from: dayOf(made - lateMs), to: dayOf(made) });
    return (
      <a
        href={`${pathOf(own, "activity")}?${words}`}
        title={`${type} ${subject}: event ${event_id}, which is what was sent`}
      >
        <code>{type}</code> <bdi>{things.get(subject) ?? subject}</bdi>
      </a>
    );
  },
});

const columnsOf = (own: string, things: Things): readonly Column<Delivery>[] => [
  timeColumn("at", "Made", ({ created_at }) => created_at),
  eventColumn(own, things),
  {
    key: "state",
    title: "State",
    width: 3,
    text: ({ state }) => state,
    cell: ({ state, next_attempt_at }) => {
      const [name, word] = states[state];
      return (
        <>
          <State name={name} word={word} />
          {state === "waiting" && next_attempt_at !== null ? (
            <>
              {" "}
              <span class="quiet">
                next <When at={next_attempt_at} />
              </span>
            </>
          ) : null}
        </>
      );
    },
  },
  textColumn("attempts", "Attempts", 1, ({ attempts }) => `${attempts}`),
  textColumn("answer", "Answer", 5, ({ status, message }) =>
    [status, message].filter((each) => each !== null).join(" "),
  ),
];

const nothing: Things = new Map();

function WebhookById({ id }: { id: string }) {
  const own = slug.value ?? "";
  const { data: webhooks, error } = useList(apiPath(webhooksApi.list, { slug: own }, { page_size: "1000" }));
  const webhook = webhooks?.find((each) => `${each.id}` === id);
  // Its path may hold a secret.
  useShownName(webhook === undefined ? "" : new URL(webhook.url).host);
  if (webhook !== undefined) return <WebhookPage webhook={webhook} />;
  if (webhooks === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  return (
    <Empty text="There is no such webhook. It may have been deleted.">
      <a href={pathOf(own, "webhooks")}>All webhooks</a>
    </Empty>
  );
}

function WebhookPage({ webhook }: { webhook: Webhook }) {
  const own = slug.value ?? "";
  const params = { slug: own, id: webhook.id };
  const log = useDeliveries(params);
  const { items, isAll } = log;
  const older = useAction(log.older);
  const isPart = items.length > 0 && !isAll;
  // It also names the file of an export.
  const label = isPart ? `Newest ${items.length} deliveries` : "Deliveries";
  const title = `${label} of the last 30 days`;
  const things = useNamed(own, nodesIn(items), nothing);
  const [asked, ask] = useState<"edit" | "delete" | undefined>(undefined);
  const close = () => ask(undefined);
  const all = pathOf(own, "webhooks");
  return (
    <Page
      title={new URL(webhook.url).host}
      above={<a href={all}>Webhooks</a>}
      pill={
        webhook.failing ? (
          <Pill kind="bad" sign="need">
            failing
          </Pill>
        ) : null
      }
      terminal={{
        command: ["webhook", "deliveries", own, webhook.id],
        call: ["GET", log.path],
      }}
      actions={
        <>
          <Button onClick={() => ask("edit")}>Edit</Button>
          <Menu label="More">
            <button type="button" class="danger" onClick={() => ask("delete")}>
              Delete…
            </button>
          </Menu>
        </>
      }
    >
      <Standing log={log} failing={webhook.failing} />
      <Panel hasRoom={true}>
        <Facts
          facts={[
            ["URL", <code>{webhook.url}</code>],
            ["Events", eventsOf(webhook.events)],
            ["Created", <When at={webhook.created_at} />],
          ]}
        />
      </Panel>
      <List
        label={label}
        title={title}
        path={log.path}
        read={{ data: isPart || isAll ? items : undefined, error: log.error }}
        columns={[
          ...columnsOf(own, things),
          {
            key: "actions",
            title: "Actions",
            width: 2,
            text: () => "",
            cell: (delivery: Delivery) => <SendAgain delivery={delivery} log={log} />,
          },
        ]}
        keyOf={(delivery: Delivery) => delivery.id}
        empty="None yet. The next event makes one."
      />
      {isPart ? (
        <>
          <p class="group quiet">
            Search and export cover these.
            <Button isSmall={true} disabled={older.isRunning} onClick={older.run}>
              Older deliveries
            </Button>
          </p>
          <FormFailure error={older.error} />
        </>
      ) : null}
      {asked === "edit" ? <Edit webhook={webhook} close={close} /> : null}
      {asked === "delete" ? <Deletion webhook={webhook} close={close} /> : null}
    </Page>
  );
}

function Deletion({ webhook, close }: { webhook: Webhook; close(): void }) {
  const own = slug.value ?? "";
  const params = { slug: own, id: webhook.id };
  return (
    <Confirm
      title={`Delete the webhook ${webhook.url}?`}
      action="Delete the webhook"
      typeName={new URL(webhook.url).host}
      effect="There is no way back: deliveries that wait are not sent, and a new webhook has another secret."
      run={() => go(pathOf(own, "webhooks"))}
      close={close}
      command={["webhook", "delete", own, webhook.id]}
      sends={request(webhooksApi.delete, params)}
    />
  );
}
