// Routes for webhooks and their deliveries. Only for admins: a webhook's URL often contains a secret.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { actorOf } from "../audit/record.ts";
import { listReply, pageOf } from "../http/lists.ts";
import { ListQuery, whole } from "../../api/values.ts";
import { created, noContent } from "../http/reply.ts";
import {
  always,
  body,
  id,
  nothing,
  numbered,
  organizationRoute,
  query,
  type OrganizationCall,
  type Reply,
  type Route,
} from "../http/route.ts";
import type { Services } from "../services.ts";
import { queryNumber } from "../store/table.ts";
import {
  changeWebhook,
  createWebhook,
  deleteWebhook,
  deliveriesBefore,
  Delivery,
  deliveryColumns,
  ListedDelivery,
  listedDeliveryOf,
  findWebhook,
  NewWebhook,
  sendAgain,
  Webhook,
  ListedWebhook,
  webhookColumns,
  webhookOf,
  WebhookPatch,
  WebhookRequest,
} from "../webhooks/webhooks.ts";
import { listRows, type Listed } from "./rows.ts";

const DeliveryQuery = v.strictObject({
  ...ListQuery.entries,
  before: v.optional(whole(1, Number.MAX_SAFE_INTEGER)),
  limit: v.optional(whole(1, 1000)),
});
type DeliveryQuery = v.InferOutput<typeof DeliveryQuery>;

export function webhookRoutes(services: Services): Route[] {
  return [...collectionRoutes(services), ...itemRoutes(services), ...deliveryRoutes(services)];
}

function collectionRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "webhooks",
    columns: webhookColumns,
    where: "AND deleted_at IS NULL AND lower(url) LIKE $2 ESCAPE '!'",
    bytes: "octet_length(url) + octet_length(events)",
    toItem: webhookOf,
  };
  return [
    organizationRoute({
      method: "GET",
      path: "webhooks/",
      access: "admin",
      scope: "webhooks",
      name: "webhooks_list",
      summary: "Webhooks",
      takes: query(ListQuery),
      answers: { 200: { description: "Webhooks", schema: v.array(ListedWebhook) } },
      handle: (call, input) => listRows(services, call, listed, input),
    }),
    organizationRoute({
      method: "POST",
      path: "webhooks/",
      access: "admin",
      scope: "webhooks",
      name: "webhooks_create",
      fresh: true,
      summary:
        "Create a webhook, which sends events to a URL. The secret is shown once; it signs each delivery as " +
        "standardwebhooks.com describes (Webhook-Id, Webhook-Timestamp, Webhook-Signature: v1,HMAC-SHA256)",
      grows: always,
      takes: body(WebhookRequest),
      answers: { 201: { description: "The webhook, with its secret", schema: NewWebhook } },
      errors: ["conflict"],
      handle: async (call, input) =>
        created(await createWebhook(services, call.org, input, actorOf(call), () => call.admitAgain())),
    }),
  ];
}

function itemRoutes(services: Services): Route[] {
  const one = `webhooks/${id}/`;
  const answers = { 200: { description: "The webhook", schema: Webhook } };
  return [
    organizationRoute({
      method: "GET",
      path: one,
      access: "admin",
      scope: "webhooks",
      name: "webhooks_retrieve",
      summary: "One webhook",
      takes: nothing,
      answers,
      handle: async (call) => ({ body: await findWebhook(services.db, call.org, call.id()) }),
    }),
    organizationRoute({
      method: "PATCH",
      path: one,
      access: "admin",
      scope: "webhooks",
      name: "webhooks_partial_update",
      fresh: true,
      summary: "Change a webhook's URL or its events. The secret stays the same",
      takes: body(WebhookPatch),
      answers,
      handle: async (call, input) => ({
        body: await changeWebhook(services, call.org, call.id(), input, actorOf(call), () =>
          call.admitAgain(),
        ),
      }),
    }),
    organizationRoute({
      method: "DELETE",
      path: one,
      access: "admin",
      scope: "webhooks",
      name: "webhooks_destroy",
      fresh: true,
      summary: "Delete a webhook. Waiting deliveries are not sent",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      async handle(call) {
        await deleteWebhook(services, call.org, call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}

function deliveryRoutes(services: Services): Route[] {
  const all = `webhooks/${id}/deliveries/`;
  return [
    organizationRoute({
      method: "GET",
      path: all,
      access: "admin",
      scope: "webhooks",
      name: "webhooks_deliveries_list",
      summary:
        "Deliveries of the last 30 days with their results, oldest first. `search` has no effect. With `before` instead of " +
        "`page` and `page_size`, the newest deliveries before that id, newest first: at most `limit` (100), and without " +
        "`X-Total-Count`, because older ones are neither read nor counted",
      takes: query(DeliveryQuery),
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
      handle: (call, input) => listDeliveries(services, call, input),
    }),
    organizationRoute({
      method: "POST",
      path: `${all}${numbered("delivery")}/send_again/`,
      access: "admin",
      scope: "webhooks",
      name: "webhooks_deliveries_send_again",
      fresh: false,
      summary:
        "Send a delivery now, with the same Webhook-Id: one that was delivered or given up once more, or one that waits for its next attempt. " +
        "One that waits keeps the schedule of its own attempts, and `attempts` counts only these. Until the answer is there, `status` and `message` are null",
      takes: body(v.strictObject({})),
      answers: { 202: { description: "The delivery, waiting", schema: Delivery } },
      errors: ["not_found", "conflict"],
      async handle(call) {
        const given = { webhookId: call.id(), id: Number(call.param("delivery")), actor: actorOf(call) };
        return { status: 202, body: await sendAgain(services, call.org, given) };
      },
    }),
  ];
}

async function listDeliveries(
  { db, publicUrl }: Services,
  call: OrganizationCall,
  { before, limit: most, ...list }: DeliveryQuery,
): Promise<Reply> {
  if (before === undefined && most !== undefined)
    throw new AppError("bad_request", "Give limit with before only. Without before, give page_size.");
  if (before !== undefined && list.page > 1)
    throw new AppError("bad_request", "Give before or page, not both.");
  const webhook = await findWebhook(db, call.org, call.id());
  if (before !== undefined) {
    const limit = most ?? 100;
    const items = (await db.all(deliveriesBefore, [webhook.id, before, limit])).map(listedDeliveryOf);
    const last = items[limit - 1];
    if (last === undefined) return { body: items };
    const next = `${publicUrl}${call.path}?before=${last.id}&limit=${limit}`;
    return { body: items, headers: { Link: `<${next}>; rel="next"` } };
  }
  const { limit, offset } = pageOf(list);
  const rows = await db.all(
    `SELECT ${deliveryColumns} FROM deliveries WHERE webhook_id = $1 ORDER BY id LIMIT $2 OFFSET $3`,
    [webhook.id, limit, offset],
  );
  const total = await queryNumber(db, "SELECT count(*) AS n FROM deliveries WHERE webhook_id = $1", [
    webhook.id,
  ]);
  return listReply(call, publicUrl, { items: rows.map(listedDeliveryOf), total, query: list });
}
