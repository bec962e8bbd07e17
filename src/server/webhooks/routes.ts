// Handlers of src/api/webhooks/webhooks.ts.

import type { DeliveryQuery, webhooksApi } from "../../api/webhooks/webhooks.ts";
import type { ListQuery } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { listReply, pageOf } from "../http/lists.ts";
import type { OrganizationCall } from "../http/route.ts";
import { listRows, type Listed } from "../store/list-rows.ts";
import type { Services } from "../services.ts";
import { queryNumber } from "../store/table.ts";
import {
  changeWebhook,
  createWebhook,
  deleteWebhook,
  deliveriesBeforeSql,
  deliveryColumns,
  findWebhook,
  listedDeliveryOf,
  sendAgain,
  webhookColumns,
  webhookOf,
} from "./webhooks.ts";

/** $1, $2: see `Listed`. */
const listed: Listed<ReturnType<typeof webhookOf>> = {
  table: "webhooks",
  columns: webhookColumns,
  where: "AND deleted_at IS NULL AND lower(url) LIKE $2 ESCAPE '!'",
  bytes: "octet_length(url) + octet_length(events)",
  toItem: webhookOf,
};

export const webhookHandlers = (services: Services): Handlers<typeof webhooksApi> => ({
  list: (call, input) => listRows(services, call, listed, input),
  create: async (call, input) => ({
    // Rights are checked again after the host of the URL was looked up, which takes time.
    body: await createWebhook(services, call.org, input, actorOf(call), () => call.admitAgain()),
  }),
  retrieve: async (call) => ({ body: await findWebhook(services.db, call.org, call.id()) }),
  update: async (call, input) => ({
    body: await changeWebhook(services, call.org, call.id(), input, actorOf(call), () => call.admitAgain()),
  }),
  async delete(call) {
    await deleteWebhook(services, call.org, call.id(), actorOf(call));
  },
  deliveries: (call, input) => listDeliveries(services, call, input),
  async sendAgain(call) {
    const given = { webhookId: call.id(), id: call.id("delivery"), actor: actorOf(call) };
    return { body: await sendAgain(services, call.org, given) };
  },
});

async function listDeliveries(services: Services, call: OrganizationCall, query: DeliveryQuery) {
  const { before, limit, ...page } = query;
  if (before === undefined && limit !== undefined)
    throw new AppError("bad_request", "Give limit with before only. Without before, give page_size.");
  // `page` has defaults: only the parameters as they were sent tell whether both ways were asked for.
  const { page: askedPage, page_size: askedSize } = call.parameters();
  if (before !== undefined && (askedPage ?? askedSize) !== undefined)
    throw new AppError("bad_request", "Give before and limit, or page and page_size, not both.");
  const webhook = await findWebhook(services.db, call.org, call.id());
  return before === undefined
    ? deliveriesOfPage(services, call, { webhookId: webhook.id, page })
    : deliveriesBeforeId(services, call, { webhookId: webhook.id, before, limit: limit ?? 100 });
}

/** The newest first. Older ones are neither read nor counted. */
async function deliveriesBeforeId(
  { db, publicUrl }: Services,
  call: OrganizationCall,
  { webhookId, before, limit }: { webhookId: number; before: number; limit: number },
) {
  const items = (await db.all(deliveriesBeforeSql, [webhookId, before, limit])).map(listedDeliveryOf);
  const last = items[limit - 1];
  if (last === undefined) return { body: items };
  const next = `${publicUrl}${call.path}?before=${last.id}&limit=${limit}`;
  return { body: items, headers: { Link: `<${next}>; rel="next"` } };
}

/** The oldest first, counted. */
async function deliveriesOfPage(
  { db, publicUrl }: Services,
  call: OrganizationCall,
  { webhookId, page }: { webhookId: number; page: ListQuery },
) {
  const { limit, offset } = pageOf(page);
  const rows = await db.all(
    `SELECT ${deliveryColumns} FROM deliveries WHERE webhook_id = $1 ORDER BY id LIMIT $2 OFFSET $3`,
    [webhookId, limit, offset],
  );
  const total = await queryNumber(db, "SELECT count(*) AS n FROM deliveries WHERE webhook_id = $1", [
    webhookId,
  ]);
  return listReply(call, publicUrl, { items: rows.map(listedDeliveryOf), total, query: page });
}
