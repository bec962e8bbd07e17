// One webhook: its state, and its deliveries.

import { apiPath } from "../../api/endpoint.ts";
import {
  webhooksApi,
  type ListedDelivery as Delivery,
  type ListedWebhook as Webhook,
} from "../../api/webhooks/webhooks.ts";
import { useState } from "preact/hooks";
import type { Things } from "../activity/event-filter.ts";
import { nodesIn, standingOf } from "./deliveries.ts";
import { currentSlug } from "../contact/me.ts";
import { useNamed } from "../activity/named-nodes.ts";
import { useList } from "../contact/resource.ts";
import { pathOf, useShownName } from "../frame/router.ts";
import { dayOf } from "../words/ago.ts";
import { Button } from "../ui/button.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { actionsColumn, List, textColumn } from "../ui/lists/list.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Panel, Why } from "../ui/page.tsx";
import { Empty, Facts, Loading, State, When } from "../ui/parts.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { Pill } from "../ui/tag.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { useDeliveries, useSending, type Log } from "./use-deliveries.ts";
import { EditWebhook, Deletion } from "./webhook-forms.tsx";

export const eventsOf = (events: readonly string[]) => (events.includes("*") ? "all" : events.join(", "));

/** The drawn state and its word. */
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
const eventColumn = (slug: string, things: Things): Column<Delivery> => ({
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
        href={`${pathOf(slug, "activity")}?${words}`}
        title={`${type} ${subject}: event ${event_id}, which is what was sent`}
      >
        <code>{type}</code> <bdi>{things.get(subject) ?? subject}</bdi>
      </a>
    );
  },
});

const columnsOf = (slug: string, things: Things): readonly Column<Delivery>[] => [
  timeColumn("at", "Made", ({ created_at }) => created_at),
  eventColumn(slug, things),
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

export function WebhookById({ id }: { id: string }) {
  const slug = currentSlug.value ?? "";
  const { data: webhooks, error } = useList(apiPath(webhooksApi.list, { slug }, { page_size: "1000" }));
  const webhook = webhooks?.find((each) => `${each.id}` === id);
  // Its path may hold a secret.
  useShownName(webhook === undefined ? "" : new URL(webhook.url).host);
  if (webhook !== undefined) return <WebhookPage webhook={webhook} />;
  if (webhooks === undefined) return <Loading error={error} />;
  return (
    <Empty text="There is no such webhook.">
      <a href={pathOf(slug, "alarms")}>Alarms</a>
    </Empty>
  );
}

function WebhookPage({ webhook }: { webhook: Webhook }) {
  const slug = currentSlug.value ?? "";
  const params = { slug, id: webhook.id };
  const log = useDeliveries(params);
  const { items, isAll } = log;
  const older = useAction(log.older);
  const isPart = items.length > 0 && !isAll;
  // It also names the file of an export.
  const label = isPart ? `Newest ${items.length} deliveries` : "Deliveries";
  const title = `${label} of the last 30 days`;
  const things = useNamed(slug, nodesIn(items), nothing);
  const [asked, setAsked] = useState<"edit" | "delete">();
  const close = () => setAsked(undefined);
  const all = pathOf(slug, "alarms");
  return (
    <Page
      title={new URL(webhook.url).host}
      above={<a href={all}>Alarms</a>}
      pill={
        webhook.failing ? (
          <Pill kind="bad" sign="need">
            failing
          </Pill>
        ) : null
      }
      terminal={{
        command: ["webhook", "deliveries", slug, webhook.id],
        call: ["GET", log.path],
      }}
      actions={
        <>
          <Button onClick={() => setAsked("edit")}>Edit</Button>
          <Menu label="More">
            <button type="button" class="danger" onClick={() => setAsked("delete")}>
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
            ["Format", webhook.format],
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
          ...columnsOf(slug, things),
          actionsColumn(2, (delivery: Delivery) => <SendAgain delivery={delivery} log={log} />),
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
      {asked === "edit" ? <EditWebhook webhook={webhook} close={close} /> : null}
      {asked === "delete" ? <Deletion webhook={webhook} close={close} /> : null}
    </Page>
  );
}
