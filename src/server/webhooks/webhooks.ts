// Webhooks of an organization: made, changed, deleted. What they are sent is outbox.ts, how is deliveries.ts.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { sealSecret } from "../../pki/secrets.ts";
import { requireRole } from "../people/late-rights.ts";
import { eventTypes, principal, record, type Actor } from "../audit/record.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  textsOf,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";
import { resolveTarget } from "./webhook-target.ts";

const families = [...new Set(eventTypes.map((type) => type.replace(/\..*/, ".*")))];
const known: readonly string[] = ["*", ...families, ...eventTypes];

const Url = v.pipe(
  v.string(),
  v.maxLength(2048),
  v.check((text) => {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    return (
      url !== undefined && /^https?:$/.test(url.protocol) && url.username + url.password + url.hash === ""
    );
  }, "Enter an address such as https://example.org/hook, without user and fragment."),
);
const Subscribed = v.pipe(
  v.array(
    v.pipe(
      v.string(),
      v.check((name) => known.includes(name), "There is no such event."),
    ),
  ),
  v.minLength(1, "At least one; * is all."),
  v.maxLength(64),
);

export const WebhookRequest = v.strictObject({ url: Url, events: v.optional(Subscribed, ["*"]) });
export const WebhookPatch = v.strictObject({ url: v.optional(Url), events: v.optional(Subscribed) });

export const Webhook = v.object({
  id: v.number(),
  url: v.string(),
  events: v.array(v.string()),
  created_at: v.string(),
});
export type Webhook = v.InferOutput<typeof Webhook>;
export const NewWebhook = v.object({ ...Webhook.entries, secret: v.string() });

export const Delivery = v.object({
  id: v.number(),
  event_id: v.number(),
  attempts: v.number(),
  state: v.picklist(["waiting", "delivered", "failed"]),
  status: v.nullable(v.number()),
  message: v.nullable(v.string()),
  next_attempt_at: v.nullable(v.string()),
  delivered_at: v.nullable(v.string()),
  created_at: v.string(),
});

type Store = Pick<ServerOptions, "db" | "system" | "secretKey" | "webhookNetworks">;
type Org = Pick<OrganizationAccess, "id">;

const maxWebhooks = 20;
export const webhookColumns = "id, url, events, created_at";
export const deliveryColumns = "id, event_id, attempts, status, message, next_at, delivered_at, created_at";

export function webhookOf(row: Row): Webhook {
  return {
    id: numberOf(row, "id"),
    url: textOf(row, "url"),
    events: textsOf(row, "events"),
    created_at: formatTime(numberOf(row, "created_at")),
  };
}

export function deliveryOf(row: Row): v.InferOutput<typeof Delivery> {
  const next = numberOrNull(row, "next_at");
  const delivered = numberOrNull(row, "delivered_at");
  return {
    id: numberOf(row, "id"),
    event_id: numberOf(row, "event_id"),
    attempts: numberOf(row, "attempts"),
    state: delivered !== null ? "delivered" : next !== null ? "waiting" : "failed",
    status: numberOrNull(row, "status"),
    message: textOrNull(row, "message"),
    next_attempt_at: next === null ? null : formatTime(next),
    delivered_at: delivered === null ? null : formatTime(delivered),
    created_at: formatTime(numberOf(row, "created_at")),
  };
}

/** What a webhook's secret is sealed for. */
export function webhookContext(id: number): string {
  return `webhook ${id}`;
}

/**
 * Answers the secret once. Its first delivery is its own `webhook.created`. Throws validation_failed, conflict.
 * `admitAgain`: a name server that is slow must not let anybody outlast their rights.
 */
export async function createWebhook(
  services: Store,
  org: Org,
  { url, events }: v.InferOutput<typeof WebhookRequest>,
  actor: Actor,
  admitAgain: () => Promise<void>,
): Promise<v.InferOutput<typeof NewWebhook>> {
  const { db, system, secretKey } = services;
  await resolvable(services, url);
  await admitAgain();
  const secret = `whsec_${Buffer.from(system.random(32)).toString("base64")}`;
  const now = system.now();
  const made = await db.write(async (tx) => {
    await requireRole(tx, org.id, actor);
    const count = await tx.get(
      "SELECT count(*) AS n FROM webhooks WHERE org_id = $1 AND deleted_at IS NULL",
      [org.id],
    );
    if (numberOf(count ?? {}, "n") >= maxWebhooks) {
      throw new AppError("conflict", `An organization has at most ${maxWebhooks} webhooks.`);
    }
    const row = await tx.get(
      `INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at, created_by, seen_event_id)
       VALUES ($1, $2, $3, '', $4, $5, (SELECT coalesce(max(id), 0) FROM events)) RETURNING ${webhookColumns}`,
      [org.id, url, JSON.stringify(events), now, principal(actor)],
    );
    const created = webhookOf(row ?? {});
    await tx.run("UPDATE webhooks SET secret_sealed = $2 WHERE id = $1", [
      created.id,
      sealSecret(secretKey, secret, webhookContext(created.id)),
    ]);
    await record(tx, {
      ...happened(org, now, actor, created.id),
      type: "webhook.created",
      after: { events },
    });
    return created;
  });
  return { ...made, secret };
}

/** Also refused where a later delivery would be: who makes it should hear of it now. */
async function resolvable(services: Store, url: string): Promise<void> {
  await resolveTarget(new URL(url), services);
}

export async function findWebhook(reader: Pick<Reader, "get">, org: Org, id: number): Promise<Webhook> {
  const row = await reader.get(
    `SELECT ${webhookColumns} FROM webhooks WHERE id = $1 AND org_id = $2 AND deleted_at IS NULL`,
    [id, org.id],
  );
  if (row === undefined) throw new AppError("not_found", "There is no such webhook.");
  return webhookOf(row);
}

export async function changeWebhook(
  services: Store,
  org: Org,
  id: number,
  patch: v.InferOutput<typeof WebhookPatch>,
  actor: Actor,
  admitAgain: () => Promise<void>,
): Promise<Webhook> {
  const { db, system } = services;
  if (patch.url !== undefined) await resolvable(services, patch.url);
  await admitAgain();
  return db.write(async (tx) => {
    await requireRole(tx, org.id, actor);
    const before = await findWebhook(tx, org, id);
    const after = { ...before, url: patch.url ?? before.url, events: patch.events ?? before.events };
    await tx.run("UPDATE webhooks SET url = $2, events = $3 WHERE id = $1", [
      id,
      after.url,
      JSON.stringify(after.events),
    ]);
    const changed = { before: { events: before.events }, after: { events: after.events } };
    await record(tx, { ...happened(org, system.now(), actor, id), type: "webhook.updated", ...changed });
    return after;
  });
}

/** What still waits for it is not sent any more. */
export async function deleteWebhook(
  { db, system }: Pick<Store, "db" | "system">,
  org: Org,
  id: number,
  actor: Actor,
): Promise<void> {
  await db.write((tx) => deleteWebhookInside(tx, org, id, { actor, now: system.now() }));
}

export async function deleteWebhookInside(
  tx: Transaction,
  org: Org,
  id: number,
  { actor, now }: { actor: Actor; now: number },
): Promise<void> {
  const { events } = await findWebhook(tx, org, id);
  await tx.run("UPDATE webhooks SET deleted_at = $2 WHERE id = $1", [id, now]);
  await tx.run("UPDATE deliveries SET next_at = NULL WHERE webhook_id = $1", [id]);
  await record(tx, { ...happened(org, now, actor, id), type: "webhook.deleted", before: { events } });
}

/** Never with the address: it may be as good as a password. */
function happened(org: Org, at: number, actor: Actor, id: number) {
  return { orgId: org.id, at, actor, subject: `webhook/${id}` };
}
