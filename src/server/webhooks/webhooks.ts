// Creates, changes and deletes the webhooks of an organization. outbox.ts selects their events; deliveries.ts sends
// them.

import type {
  Delivery,
  ListedDelivery,
  ListedWebhook,
  NewWebhook,
  Webhook,
  WebhookPatch,
  WebhookRequest,
} from "../../api/webhooks/webhooks.ts";
import { formatFor, type WebhookFormat } from "../../api/webhooks/delivery-formats.ts";
import { eventsFor } from "../../api/webhooks/webhooks.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { AppError, invalidField } from "../../base/errors.ts";
import { sealSecret } from "../../pki/secrets.ts";
import { writeAsAdmin } from "../require-role.ts";
import { principal, record, type Actor } from "../audit/record.ts";
import { ntfyTarget } from "./chat-requests.ts";
import { leaseMs, scheduledTime } from "./outbox.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader, Row, Transaction } from "../store/database.ts";
import { computed, orNull, queryNumber, text, truth } from "../store/table.ts";
import { maxClockGapMs } from "../store/replicas.ts";
import { deliveries, webhooks } from "../store/tables/webhooks.ts";
import { resolveTarget } from "./webhook-target.ts";

type Store = Pick<ServerOptions, "db" | "system" | "secretKey" | "webhookNetworks" | "mail">;
type Org = Pick<OrganizationAccess, "id">;

const maxWebhooks = 20;
const webhookPick = webhooks.pick("id", "url", "events", "format", "quietHours", "createdAt");
const failingPick = computed({ failing: orNull(truth(0)) });
/** With `failing`: whether its newest delivery that has an outcome failed; null: none has. */
export const webhookColumns = `${webhookPick.select()},
  (SELECT CASE WHEN delivered_at IS NULL THEN 1 ELSE 0 END FROM deliveries
   WHERE webhook_id = webhooks.id AND (delivered_at IS NOT NULL OR message IS NOT NULL)
   ORDER BY deliveries.id DESC LIMIT 1) AS failing`;
const eventPick = computed({ eventType: text(), eventSubject: text() });
export const deliveryColumns = `${deliveries.select()},
  (SELECT type FROM events WHERE events.id = deliveries.event_id) AS event_type,
  (SELECT subject FROM events WHERE events.id = deliveries.event_id) AS event_subject`;
/**
 * The newest before an id, newest first. $1: the webhook, $2: the id, $3: how many. Ordered by the whole index, so that
 * PostgreSQL does not walk the primary key through the deliveries of other webhooks.
 */
export const deliveriesBeforeSql = `SELECT ${deliveryColumns} FROM deliveries
  WHERE webhook_id = $1 AND id < $2 ORDER BY webhook_id DESC, id DESC LIMIT $3`;

/** `row`: of `webhookColumns`. */
export function webhookOf(row: Row): ListedWebhook {
  return { ...showWebhook(webhookPick.parse(row)), failing: failingPick.parse(row).failing ?? false };
}

function showWebhook(row: ReturnType<typeof webhookPick.parse>): Webhook {
  const { id, url, events, format, quietHours, createdAt } = row;
  return { id, url, events, format, quiet_hours: quietHours, created_at: formatTime(createdAt) };
}

function deliveryOf(row: Row): Delivery {
  const { id, eventId, attempts, status, message, nextAt, deliveredAt, createdAt } = deliveries.parse(row);
  return {
    id,
    event_id: eventId,
    attempts,
    state: stateOf({ deliveredAt, nextAt }),
    status,
    message,
    next_attempt_at: nextAt === null ? null : formatTime(scheduledTime(nextAt)),
    delivered_at: timeOrNull(deliveredAt),
    created_at: formatTime(createdAt),
  };
}

type DeliveryRow = ReturnType<typeof deliveries.parse>;

function stateOf({ deliveredAt, nextAt }: Pick<DeliveryRow, "deliveredAt" | "nextAt">): Delivery["state"] {
  if (deliveredAt !== null) return "delivered";
  return nextAt === null ? "failed" : "waiting";
}

/** `row`: of `deliveryColumns`. */
export function listedDeliveryOf(row: Row): ListedDelivery {
  const { eventType, eventSubject } = eventPick.parse(row);
  return { ...deliveryOf(row), event_type: eventType, event_subject: eventSubject };
}

/** The context that binds a sealed secret to its webhook. */
export function webhookContext(id: number): string {
  return `webhook ${id}`;
}

/**
 * Returns the secret, once. The first delivery is the webhook's own `webhook.created`. Throws validation_failed or
 * conflict. `checkRights` runs after the name lookup: a slow name server must not outlast the caller's rights.
 */
export async function createWebhook(
  services: Store,
  org: Org,
  request: WebhookRequest,
  actor: Actor,
  checkRights: () => Promise<void>,
): Promise<NewWebhook> {
  const { db, system, secretKey } = services;
  const { url, quiet_hours: quietHours = null } = request;
  const format = requireFormat(url, request.format);
  const events = requireAlarms(format, request.events ?? eventsFor(format));
  await requireReceiver(services, url, actor);
  await checkRights();
  const secret = `whsec_${Buffer.from(system.random(32)).toString("base64")}`;
  const now = system.now();
  const id = await writeAsAdmin(db, org.id, actor, async (tx) => {
    const existing = await webhooks.all(tx, { orgId: org.id, deletedAt: null });
    if (existing.length >= maxWebhooks) {
      throw new AppError("conflict", `An organization has at most ${maxWebhooks} webhooks.`);
    }
    const seenEventId = await queryNumber(tx, "SELECT coalesce(max(id), 0) AS n FROM events");
    const fields = { url, events, format, quietHours };
    const row = { orgId: org.id, ...fields, createdAt: now, createdBy: principal(actor), seenEventId };
    // The secret is sealed for the id of the row, so it is stored after the insert.
    const created = await webhooks.insertReturning(tx, { ...row, secretSealed: "" });
    const secretSealed = sealSecret(secretKey, secret, webhookContext(created.id));
    await webhooks.update(tx, { id: created.id }, { secretSealed });
    const event = webhookEvent(org, now, actor, created.id);
    await record(tx, { ...event, type: "webhook.created", after: { events, format } });
    return created.id;
  });
  return { ...showWebhook({ id, url, events, format, quietHours, createdAt: now }), secret };
}

function requireFormat(url: string, given: WebhookFormat | undefined): WebhookFormat {
  const format = formatFor(url, given);
  if (format === undefined) {
    const sentence =
      "The format mail needs a URL with mailto:, and syslog one with syslogs:; these have no other.";
    throw invalidField("format", sentence);
  }
  if (format === "ntfy") requireTopic(new URL(url));
  return format;
}

function requireTopic(url: URL): void {
  try {
    ntfyTarget(url);
  } catch {
    throw invalidField("url", "The topic of this ntfy URL cannot be decoded. Write a percent sign as %25.");
  }
}

/** Mail goes through the operator's server, so only alarms are sent: their number is bounded. */
function requireAlarms(format: WebhookFormat, events: string[]): string[] {
  if (format !== "mail" || events.every((each) => each.startsWith("alarm."))) return events;
  const sentence = "E-mail takes alarms alone: alarm.*, or a type such as alarm.raised.";
  throw invalidField("events", sentence);
}

export const noMail = () => {
  const sentence = "This control plane sends no e-mail: its operator gives smtp-url in its settings.";
  return invalidField("url", sentence);
};

/** Refuses a URL to which every delivery would fail: now the caller sees the reason. */
async function requireReceiver(services: Store, url: string, { kind }: Actor): Promise<void> {
  const target = new URL(url);
  if (target.protocol !== "mailto:") await resolveTarget(target, services);
  // On local data, the operator's command does not know how `serve` was started.
  else if (services.mail === undefined && kind !== "operator") throw noMail();
}

export async function findWebhook(reader: Reader, org: Org, id: number): Promise<Webhook> {
  const found = await webhooks.find(reader, { id, orgId: org.id, deletedAt: null });
  if (found === undefined) throw new AppError("not_found", "There is no such webhook.");
  return showWebhook(found);
}

export async function changeWebhook(
  services: Store,
  org: Org,
  id: number,
  patch: WebhookPatch,
  actor: Actor,
  checkRights: () => Promise<void>,
): Promise<Webhook> {
  const { db, system } = services;
  if (patch.url !== undefined) await requireReceiver(services, patch.url, actor);
  await checkRights();
  return writeAsAdmin(db, org.id, actor, async (tx) => {
    const before = await findWebhook(tx, org, id);
    const { url = before.url, quiet_hours = before.quiet_hours } = patch;
    // `json` may have been chosen by the former URL, so a new URL chooses again. Undefined: by the URL.
    const keptFormat =
      before.format === "json" && patch.url !== undefined ? undefined : formatFor(url, before.format);
    const format = requireFormat(url, patch.format ?? keptFormat);
    const events = requireAlarms(format, patch.events ?? before.events);
    await webhooks.update(tx, { id }, { url, events, format, quietHours: quiet_hours });
    await record(tx, {
      ...webhookEvent(org, system.now(), actor, id),
      type: "webhook.updated",
      before: { events: before.events, format: before.format, quiet_hours: before.quiet_hours },
      after: { events, format, quiet_hours },
    });
    return { ...before, url, events, format, quiet_hours };
  });
}

/**
 * Sends a delivery now: one that has ended once more, or one that waits. It has the same Webhook-Id, so that a receiver which has it
 * already can discard it. One that waits keeps its schedule. Throws not_found, or conflict if it may be under way.
 */
export async function sendAgain(
  { db, system }: Pick<Store, "db" | "system">,
  org: Org,
  { webhookId, id, actor }: { webhookId: number; id: number; actor: Actor },
): Promise<Delivery> {
  return writeAsAdmin(db, org.id, actor, async (tx) => {
    await findWebhook(tx, org, webhookId);
    const now = system.now();
    // If it is due sooner, a server whose clock is ahead may have claimed it.
    const claimedUntil = now + leaseMs + maxClockGapMs;
    // `-next_at`: see requestedBefore in outbox.ts. Without a status and a message, it has no answer yet.
    const row = await tx.get(
      `UPDATE deliveries SET next_at = CASE WHEN next_at IS NULL THEN $3 ELSE -next_at END,
         delivered_at = NULL, status = NULL, message = NULL
       WHERE id = $1 AND webhook_id = $2 AND (next_at IS NULL OR next_at > $4) RETURNING ${deliveryColumns}`,
      [id, webhookId, now, claimedUntil],
    );
    if (row !== undefined) return deliveryOf(row);
    if ((await deliveries.find(tx, { id, webhookId })) === undefined)
      throw new AppError("not_found", "There is no such delivery. They are kept for 30 days.");
    throw new AppError("conflict", "This delivery is under way, or tried within seconds.", {
      hint: `Look at its result in ${(leaseMs + maxClockGapMs) / 1000} seconds.`,
    });
  });
}

/** Waiting deliveries are not sent. */
export async function deleteWebhook(
  { db, system }: Pick<Store, "db" | "system">,
  org: Org,
  id: number,
  actor: Actor,
): Promise<void> {
  await db.writeFor({ org: org.id }, (tx) => deleteWebhookInside(tx, org, id, { actor, now: system.now() }));
}

/** Within the caller's transaction. */
export async function deleteWebhookInside(
  tx: Transaction,
  org: Org,
  id: number,
  { actor, now }: { actor: Actor; now: number },
): Promise<void> {
  const { events } = await findWebhook(tx, org, id);
  await webhooks.update(tx, { id }, { deletedAt: now });
  await deliveries.update(tx, { webhookId: id }, { nextAt: null });
  await record(tx, { ...webhookEvent(org, now, actor, id), type: "webhook.deleted", before: { events } });
}

/** Without the URL: it may contain a secret. */
function webhookEvent(org: Org, at: number, actor: Actor, id: number) {
  return { orgId: org.id, at, actor, subject: `webhook/${id}` };
}
