// Webhooks and their deliveries. Webhooks are only for admins: their URLs often contain a secret.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { endpoint } from "../endpoint.ts";
import { declare, taken } from "../../protocol/settings.ts";
import { eventTypes, type EventType } from "../events.ts";
import { ListQuery, since, Text, Time, whole, word } from "../values.ts";
import { formatWords, webhookFormats, type WebhookFormat } from "./delivery-formats.ts";

const families = [...new Set(eventTypes.map((type) => type.replace(/\..*/, ".*")))];
const subscribable: readonly string[] = ["*", ...families, ...eventTypes];

type Family = EventType extends `${infer F}.${string}` ? F : never;
const examples: (EventType | `${Family}.*`)[] = ["alarm.*", "node.away", "node.online"];

/** The fingerprint in the URL of a syslog server, as Node's `hash` writes it; undefined: it has none. */
export const pinnedFingerprint = (parameters: URLSearchParams): string | undefined =>
  parameters
    .get("fingerprint")
    ?.toLowerCase()
    .replaceAll(":", "")
    .replace(/^sha256/, "");
/** One address with a whole domain, and nothing that would become another header. */
const isMailAddress = ({ pathname, search }: URL) =>
  search === "" &&
  /^[\w.+-]{1,64}@(?=.{4,253}$)([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]*[a-z0-9])?$/i.test(
    pathname,
  );

const Url = v.pipe(
  foreignText(2048),
  // The URL parser drops line breaks and tabs, so the stored text would not be what is requested.
  v.regex(/^[^\s\p{Cc}\p{Cf}]*$/u, "Enter a URL without spaces, line breaks and control characters."),
  v.check((text) => {
    const url = URL.parse(text);
    if (url === null || url.username + url.password + url.hash !== "") return false;
    if (url.protocol === "mailto:") return isMailAddress(url);
    return /^(https?|syslogs):$/.test(url.protocol) && url.hostname !== "";
  }, "Enter a URL such as https://example.org/hook, mailto:admin@example.org or syslogs://logs.example.org, without user name and fragment."),
  v.check((text) => {
    const url = URL.parse(text);
    if (url?.protocol !== "syslogs:" || url.searchParams.size === 0) return true;
    return url.searchParams.size === 1 && /^[0-9a-f]{64}$/.test(pinnedFingerprint(url.searchParams) ?? "");
  }, "A URL with syslogs: takes one parameter: ?fingerprint=sha256: and 64 hexadecimal digits, with or without colons."),
);
/** The events of a webhook that names none: all for programs (JSON), alarms for people. */
export const eventsFor = (format: WebhookFormat): string[] => (format === "json" ? ["*"] : ["alarm.*"]);

const quietText = /^([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d) ([A-Za-z0-9_+/-]{1,40})$/;

/** The minutes of the day at which quiet hours begin and end, and their zone. Undefined for another text. */
export function quietSpan(text: string): { from: number; to: number; zone: string } | undefined {
  const [, fromHour, fromMinute, toHour, toMinute, zone = ""] = quietText.exec(text) ?? [];
  const [from, to] = [60 * Number(fromHour) + Number(fromMinute), 60 * Number(toHour) + Number(toMinute)];
  if (zone === "" || from === to) return undefined;
  try {
    // Throws for a zone that does not exist.
    const { timeZone } = new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions();
    return timeZone === "" ? undefined : { from, to, zone };
  } catch {
    return undefined;
  }
}
const Quiet = v.pipe(
  foreignText(64),
  v.check(
    (text) => quietSpan(text) !== undefined,
    "Enter hours and a time zone, such as 22:00-07:00 Europe/Berlin.",
  ),
);

const Subscribed = v.pipe(
  v.array(
    v.pipe(
      foreignText(64),
      v.check(
        (name) => subscribable.includes(name),
        `This event type does not exist. There are * and ${families.join(", ")}, and types such as node.revoked.`,
      ),
    ),
  ),
  v.minLength(1, "Enter at least one event type; * means all."),
  v.maxLength(64),
);

/** What administrators change of a webhook. */
export const webhookSettings = declare({
  url: {
    takes: Url,
    flag: "url",
    hint: "URL",
    help: "Another URL; the secret stays",
    section: "Webhook",
    label: "URL",
    placeholder: "https://example.org/hook",
  },
  events: {
    takes: Subscribed,
    flag: "event",
    hint: "TYPE",
    whole: true,
    help: "Only events of this type, such as node.revoked or node.* (repeatable; default: all as JSON, else alarm.*)",
    section: "Webhook",
    label: "Events",
    more: `Separated by commas, such as ${examples.join(", ")}. Machines are called node; * means all.`,
    initial: ["*"],
  },
  format: {
    takes: v.picklist(webhookFormats),
    flag: "format",
    words: webhookFormats,
    help: "What the receiver understands (default: by the URL, else json, which is signed)",
    section: "Webhook",
    label: "Format",
    choices: Object.values(formatWords),
    initial: "json",
  },
  quiet_hours: {
    takes: v.nullable(Quiet),
    flag: "quiet-hours",
    hint: "HOURS",
    none: "none",
    help: "Alarms that are not urgent wait until these hours end, such as '22:00-07:00 Europe/Berlin'",
    section: "Webhook",
    label: "Quiet hours",
    more: "Alarms that are not urgent wait until they end.",
    placeholder: "22:00-07:00 Europe/Berlin",
    initial: null,
  },
});
/** Without `format`: by the URL. Without `events`: by the format. */
export const WebhookRequest = v.strictObject({
  url: Url,
  events: v.optional(Subscribed),
  format: v.optional(webhookSettings.format.takes),
  quiet_hours: v.optional(webhookSettings.quiet_hours.takes),
});
export type WebhookRequest = v.InferOutput<typeof WebhookRequest>;
const WebhookPatch = v.partial(v.strictObject(taken(webhookSettings)));
export type WebhookPatch = v.InferOutput<typeof WebhookPatch>;

export const Webhook = v.object({
  id: v.number(),
  url: Text,
  events: v.array(Text),
  format: since("0.2.0", word(webhookFormats)),
  quiet_hours: since("0.2.0", v.nullable(Text)),
  created_at: Time,
});
export type Webhook = v.InferOutput<typeof Webhook>;
/** `failing`: its newest delivery that has an outcome did not arrive. */
const ListedWebhook = v.object({ ...Webhook.entries, failing: since("0.2.0", v.boolean()) });
export type ListedWebhook = v.InferOutput<typeof ListedWebhook>;
export const NewWebhook = v.object({ ...Webhook.entries, secret: Text });
export type NewWebhook = v.InferOutput<typeof NewWebhook>;

export const Delivery = v.object({
  id: v.number(),
  event_id: v.number(),
  attempts: v.number(),
  state: word(["waiting", "delivered", "failed"]),
  /** The HTTP status of the last attempt; null: none yet, no answer, or another protocol. */
  status: v.nullable(v.number()),
  /** Why the last attempt failed. */
  message: v.nullable(Text),
  next_attempt_at: v.nullable(Time),
  delivered_at: v.nullable(Time),
  created_at: Time,
});
export type Delivery = v.InferOutput<typeof Delivery>;
/** `event_type`: such as `node.created`. `event_subject`: such as `node/7`. */
export const ListedDelivery = v.object({
  ...Delivery.entries,
  event_type: since("0.2.0", Text),
  event_subject: since("0.2.0", Text),
});
export type ListedDelivery = v.InferOutput<typeof ListedDelivery>;

const DeliveryQuery = v.strictObject({
  ...ListQuery.entries,
  before: v.optional(whole(1, Number.MAX_SAFE_INTEGER)),
  limit: v.optional(whole(1, 1000)),
});
export type DeliveryQuery = v.InferOutput<typeof DeliveryQuery>;

const oneWebhook = { 200: { description: "The webhook", schema: Webhook } };

export const webhooksApi = {
  list: endpoint({
    name: "webhooks_list",
    method: "GET",
    path: "/api/org/{slug}/webhooks/",
    access: "admin",
    scope: "webhooks",
    summary: "Webhooks",
    query: ListQuery,
    answers: { 200: { description: "Webhooks", schema: v.array(ListedWebhook) } },
  }),
  create: endpoint({
    name: "webhooks_create",
    method: "POST",
    path: "/api/org/{slug}/webhooks/",
    access: "admin",
    scope: "webhooks",
    summary:
      "Create a webhook, which sends events to a URL. Without `format`: what the URL says, such as `mail` for mailto: and `slack` for hooks.slack.com, else `json`. " +
      "Without `events`: all for `json`, else `alarm.*`. The secret is shown once; it signs each delivery as " +
      "standardwebhooks.com describes (Webhook-Id, Webhook-Timestamp, Webhook-Signature: v1,HMAC-SHA256)",
    grows: true,
    fresh: true,
    body: WebhookRequest,
    answers: { 201: { description: "The webhook, with its secret", schema: NewWebhook } },
    errors: ["conflict"],
  }),
  retrieve: endpoint({
    name: "webhooks_retrieve",
    method: "GET",
    path: "/api/org/{slug}/webhooks/{id}/",
    access: "admin",
    scope: "webhooks",
    summary: "One webhook",
    answers: oneWebhook,
  }),
  update: endpoint({
    name: "webhooks_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/webhooks/{id}/",
    access: "admin",
    scope: "webhooks",
    summary: "Change a webhook's URL, events, format or quiet hours. The secret stays the same",
    fresh: true,
    body: WebhookPatch,
    answers: oneWebhook,
  }),
  delete: endpoint({
    name: "webhooks_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/webhooks/{id}/",
    access: "admin",
    scope: "webhooks",
    summary: "Delete a webhook. Waiting deliveries are not sent",
    fresh: true,
    answers: { 204: { description: "Deleted" } },
  }),
  deliveries: endpoint({
    name: "webhooks_deliveries_list",
    method: "GET",
    path: "/api/org/{slug}/webhooks/{id}/deliveries/",
    access: "admin",
    scope: "webhooks",
    summary:
      "Deliveries of the last 30 days with their results, oldest first. `search` has no effect. With `before` instead of " +
      "`page` and `page_size`, the newest deliveries before that id, newest first: at most `limit` (100), and without " +
      "`X-Total-Count`, because older ones are neither read nor counted",
    query: DeliveryQuery,
    answers: {
      200: {
        description: "Deliveries",
        schema: v.array(ListedDelivery),
        headers: {
          "Link?":
            "The pages `next`, `prev`, `first` and `last` (RFC 8288); with `before`, `next` if the page is full",
          "X-Total-Count?": "The number of items on all pages",
        },
      },
    },
  }),
  sendAgain: endpoint({
    name: "webhooks_deliveries_send_again",
    method: "POST",
    path: "/api/org/{slug}/webhooks/{id}/deliveries/{delivery}/send_again/",
    access: "admin",
    scope: "webhooks",
    summary:
      "Send a delivery now, with the same Webhook-Id: one that was delivered or given up once more, or one that waits for its next attempt. " +
      "One that waits keeps the schedule of its own attempts, and `attempts` counts only these. Until the answer is there, `status` and `message` are null",
    fresh: false,
    body: v.strictObject({}),
    answers: { 202: { description: "The delivery, waiting", schema: Delivery } },
    errors: ["conflict"],
  }),
};
