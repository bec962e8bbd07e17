// The outbox of webhooks: which events are to be sent, and when. Each webhook has a cursor into the audit log, and events become
// deliveries after their commit. So recording an event costs nothing more, and a crash neither loses nor doubles a delivery. One
// statement claims a delivery, so only one of several replicas sends it. deliveries.ts sends. Times are in ms.

import type { Database, Transaction } from "../store/database.ts";
import { maxClockGapMs } from "../store/replicas.ts";
import { computed, integer, queryAll, queryOne } from "../store/table.ts";
import { deliveries, webhooks, type WebhookRow } from "../store/tables/webhooks.ts";
import { events, typesAfter } from "../store/tables/events.ts";
import { organizations } from "../store/tables/organizations.ts";
import { showEvent } from "../audit/read.ts";
import type { Event } from "../../api/events.ts";
import type { WebhookFormat } from "../../api/webhooks/delivery-formats.ts";
import { isUrgentEvent } from "./event-text.ts";
import { quietUntil } from "./quiet-hours.ts";

export type Claimed = {
  id: number;
  webhookId: number;
  url: string;
  secretSealed: string;
  format: WebhookFormat;
  organization: string;
  attempts: number;
  /** Of an attempt that a user requested: when the next scheduled attempt of the delivery is due, ms. */
  scheduledAt?: number;
  event: Event;
};

/** `interrupted`: the sending server stopped, and the next server sends again at once. */
export type Outcome = {
  status: number | null;
  message: string | null;
  delivered: boolean;
  interrupted?: boolean;
};

/**
 * An unsettled claim older than this is free again: its server has died. Longer than any attempt takes (5 s to look the name
 * up, and 10 s for the request), also by the clock of another server.
 */
export const leaseMs = 16_000 + maxClockGapMs;
/** Events of one webhook that one transaction turns into deliveries. */
const batchSize = 500;
/** Deliveries that one turn claims. */
const maxClaims = 32;

/**
 * `next_at` of a delivery that is sent now because a user requested it: the time of its next scheduled attempt, negative. So it is
 * due, and the requested attempt does not change the schedule.
 */
export const requestedBefore = (scheduledAt: number): number => -scheduledAt;
/** The time of the next scheduled attempt, for a `next_at` with or without a requested one. */
export const scheduledTime = (nextAt: number): number => Math.abs(nextAt);
/** The wait after each failed attempt, s. The attempt after the last wait is final: 16 hours in all. */
export const retryAfterS = [5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800];

/** Turns new events into deliveries. Without new events it only reads. */
export async function queueEvents(db: Database, now: number): Promise<void> {
  const due = await queryAll(
    db,
    webhooks.pick("id", "orgId"),
    `SELECT w.id, w.org_id FROM webhooks w WHERE w.deleted_at IS NULL
       AND EXISTS (SELECT 1 FROM events e WHERE e.org_id = w.org_id AND e.id > w.seen_event_id)`,
  );
  for (const { id, orgId } of due) await db.writeFor({ org: orgId }, (tx) => queueFor(tx, id, now));
}

/** Makes deliveries of the next events for one webhook, and moves its cursor. */
async function queueFor(tx: Transaction, webhookId: number, now: number): Promise<void> {
  const webhook = await webhooks.find(tx, { id: webhookId });
  if (webhook === undefined) return;
  const newEvents = await typesAfter(tx, webhook.orgId, webhook.seenEventId, batchSize);
  const last = newEvents.at(-1);
  if (last === undefined) return;
  for (const { id, type } of newEvents) {
    if (!isSubscribed(webhook.events, type)) continue;
    const nextAt = type.startsWith("alarm.") ? await timeOfAlarm(tx, webhook, id, now) : now;
    await deliveries.insert(tx, { webhookId, eventId: id, nextAt, createdAt: now });
  }
  await webhooks.update(tx, { id: webhookId }, { seenEventId: last.id });
}

/** The `message` of a delivery that is not sent. */
const heldBack = "Not sent: the alarm ended in the quiet hours, and the next message tells both";

/**
 * When an alarm is sent: an alarm that is not urgent waits until the quiet hours end. If it ends before, its beginning is not sent:
 * the message about the end tells both.
 */
async function timeOfAlarm(
  tx: Transaction,
  { id: webhookId, quietHours }: Pick<WebhookRow, "id" | "quietHours">,
  eventId: number,
  now: number,
): Promise<number> {
  const until = quietUntil(quietHours, now);
  const row = until === undefined ? undefined : await events.find(tx, { id: eventId });
  if (until === undefined || row === undefined) return now;
  const event = showEvent(row);
  if (isUrgentEvent(event) || event.type === "alarm.tested") return now;
  if (event.type === "alarm.ended")
    await tx.run(
      `UPDATE deliveries SET next_at = NULL, delivered_at = $3, message = $4
       WHERE webhook_id = $1 AND attempts = 0 AND next_at > $3
         AND event_id IN (SELECT e.id FROM events e WHERE e.id = deliveries.event_id AND e.subject = $2)`,
      [webhookId, event.subject, now, heldBack],
    );
  return until;
}

/** Subscriptions are `*`, `node.*` or the type itself. */
export function isSubscribed(subscriptions: readonly string[], type: string): boolean {
  return subscriptions.some((each) => each === "*" || each === type || each === type.replace(/\..*/, ".*"));
}

/** A due delivery: `id`. */
const duePick = computed({ webhookId: integer(), id: integer(), orgId: integer() });

/**
 * Claims the oldest due delivery of each webhook that is not in `busy`: one webhook gets one delivery at a time. `served`: the ids
 * of organizations, those that were served longest ago first. It is updated.
 */
export async function claimDue(
  db: Database,
  now: number,
  busy: ReadonlySet<number>,
  served: Set<number>,
): Promise<Claimed[]> {
  const due = await queryAll(
    db,
    duePick,
    // `+ 0` keeps SQLite from reading the whole log in the order of webhooks: few deliveries are due.
    `SELECT d.webhook_id, d.id, w.org_id FROM (SELECT webhook_id + 0 AS webhook_id, min(id) AS id FROM deliveries
       WHERE next_at IS NOT NULL AND next_at <= $1 GROUP BY webhook_id + 0) d
     JOIN webhooks w ON w.id = d.webhook_id ORDER BY d.id`,
    [now],
  );
  const chosen = inTurns(
    due.filter(({ webhookId }) => !busy.has(webhookId)),
    served,
  );
  if (chosen.length === 0) return [];
  return db.writeFor("rows", async (tx) => {
    const claimed: Claimed[] = [];
    for (const { id } of chosen) claimed.push(...(await claim(tx, id, now)));
    return claimed;
  });
}

/** Takes deliveries of all organizations in turn, so that one with many deliveries delays another by one only. */
function inTurns<T extends { orgId: number }>(due: readonly T[], served: Set<number>): T[] {
  const ranks = new Map([...served].map((orgId, index) => [orgId, index]));
  // Organizations that were never served go first.
  const rankOf = (orgId: number) => ranks.get(orgId) ?? -1;
  const queues = [...Map.groupBy(due, ({ orgId }) => orgId)]
    .sort(([one], [other]) => rankOf(one) - rankOf(other))
    .map(([, queue]) => queue);
  const longest = Math.max(0, ...queues.map(({ length }) => length));
  const rounds = Array.from({ length: longest }, (_, round) => queues.flatMap((queue) => queue[round] ?? []));
  const chosen = rounds.flat().slice(0, maxClaims);
  for (const { orgId } of chosen) {
    // A Set keeps the order of insertion: this moves it to the end.
    served.delete(orgId);
    served.add(orgId);
  }
  return chosen;
}

const targetPick = webhooks.pick("url", "secretSealed", "format");
const slugPick = organizations.pick("slug");

/** Empty if another replica has claimed the delivery first. */
async function claim(tx: Transaction, id: number, now: number): Promise<Claimed[]> {
  const dueAt = (await deliveries.find(tx, { id }))?.nextAt ?? null;
  if (dueAt === null || dueAt > now) return [];
  // If the scheduled attempt is due by now as well, the requested one counts as that attempt.
  const isExtra = dueAt < 0 && scheduledTime(dueAt) > now;
  const delivery = await queryOne(
    tx,
    deliveries,
    // Only if the row is as it was read: another replica or a request may have changed it.
    `UPDATE deliveries SET attempts = attempts + $4, next_at = $2 WHERE id = $1 AND next_at = $3
     RETURNING ${deliveries.select()}`,
    [id, now + leaseMs, dueAt, isExtra ? 0 : 1],
  );
  if (delivery === undefined) return [];
  const { webhookId, attempts } = delivery;
  const rows = await tx.all(
    `SELECT ${targetPick.select("w")}, ${slugPick.select("o")}, ${events.select("e")} FROM webhooks w
     JOIN organizations o ON o.id = w.org_id JOIN events e ON e.id = $2 WHERE w.id = $1`,
    [webhookId, delivery.eventId],
  );
  return rows.map((row) => {
    const { slug: organization } = slugPick.parse(row);
    const event = showEvent(events.parse(row));
    const claimed = { id, webhookId, attempts, ...targetPick.parse(row), organization, event };
    return { ...claimed, ...(isExtra ? { scheduledAt: scheduledTime(dueAt) } : {}) };
  });
}

/** Records the outcome, unless another server has taken the claim over. `random`, from 0 to 1, spreads the retries by a fifth. */
export async function settleDelivery(
  db: Database,
  { id, attempts, scheduledAt }: Pick<Claimed, "id" | "attempts" | "scheduledAt">,
  { status, message, delivered, interrupted }: Outcome,
  { now, random }: { now: number; random: number },
): Promise<void> {
  const retryInS = interrupted === true ? 0 : retryAfterS[attempts - 1];
  const retryAt = retryInS === undefined ? null : Math.round(now + retryInS * 1000 * (0.8 + 0.4 * random));
  // A requested attempt that failed leaves the schedule as it was; an interrupted one is requested again.
  const keptAt =
    scheduledAt !== undefined && interrupted === true ? requestedBefore(scheduledAt) : scheduledAt;
  const next = delivered ? null : (keptAt ?? retryAt);
  await db.writeFor("rows", (tx) =>
    tx.run(
      `UPDATE deliveries SET status = $3, message = $4, delivered_at = $5, next_at = $6
       WHERE id = $1 AND attempts = $2 AND next_at IS NOT NULL`,
      [id, attempts, status, message, delivered ? now : null, next],
    ),
  );
}
