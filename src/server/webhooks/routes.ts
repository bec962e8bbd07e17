// Handlers of src/api/webhooks.ts.

import type { DeliveryQuery, webhooksApi } from "../../api/webhooks.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { listReply, pageOf } from "../http/lists.ts";
import { noContent } from "../http/reply.ts";
import type { OrganizationCall } from "../http/route.ts";
import { listRows, type Listed } from "../store/list-rows.ts";
import type { Services } from "../services.ts";
import { queryNumber } from "../store/table.ts";
import {
  changeWebhook,
  createWebhook,
  deleteWebhook,
  deliveriesBefore,
  deliveryColumns,
  findWebhook,
  listedDeliveryOf,
  sendAgain,
  webhookColumns,
  webhookOf,
} from "./webhooks.ts";

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
    status: 201,
    body: await createWebhook(services, call.org, input, actorOf(call), () => call.admitAgain()),
  }),
  retrieve: async (call) => ({ body: await findWebhook(services.db, call.org, call.id()) }),
  update: async (call, input) => ({
    body: await changeWebhook(services, call.org, call.id(), input, actorOf(call), () => call.admitAgain()),
  }),
  async delete(call) {
    await deleteWebhook(services, call.org, call.id(), actorOf(call));
    return noContent;
  },
  deliveries: (call, input) => listDeliveries(services, call, input),
  async sendAgain(call) {
    const given = { webhookId: call.id(), id: call.id("delivery"), actor: actorOf(call) };
    return { status: 202, body: await sendAgain(services, call.org, given) };
  },
});

async function listDeliveries(
  { db, publicUrl }: Services,
  call: OrganizationCall,
  { before, limit: most, ...list }: DeliveryQuery,
) {
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
