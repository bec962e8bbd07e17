// The durable outbox of webhooks. An event becomes deliveries after its own commit, by a cursor of each webhook: writing
// events costs nothing more, and none is lost or doubled by a crash. A delivery is claimed in one statement, so that of
// several replicas one sends it.

import { eventColumns, eventOf, type Event } from "./read.ts";
import { numberOf, textOf, textsOf, type Database, type Transaction } from "../store/database.ts";

export type Claimed = {
  id: number;
  webhookId: number;
  url: string;
  sealedSecret: string;
  organization: string;
  attempts: number;
  event: Event;
};

/** `interrupted`: the server that sent it is stopping, and the next one tries at once. */
export type Outcome = {
  status: number | null;
  message: string | null;
  delivered: boolean;
  interrupted?: boolean;
};

/** A claim that is not settled within this is another's: its owner has died. Longer than any request takes. */
const leaseMs = 60_000;
const batch = 500;
const maxClaims = 32;
const keptMs = 30 * 86_400_000;
/** After each failed attempt; after the last it is given up: 16 hours in all. */
export const retryAfterS = [5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800];

/** Queues what has happened since each webhook last looked. Reads alone where there is nothing new. */
export async function queueEvents(db: Database, now: number): Promise<void> {
  const due = await db.all(
    `SELECT w.id FROM webhooks w WHERE w.deleted_at IS NULL
       AND EXISTS (SELECT 1 FROM events e WHERE e.org_id = w.org_id AND e.id > w.seen_event_id)`,
  );
  for (const row of due) await db.write((tx) => queueFor(tx, numberOf(row, "id"), now));
}

async function queueFor(tx: Transaction, webhookId: number, now: number): Promise<void> {
  const webhook = await tx.get("SELECT org_id, events, seen_event_id FROM webhooks WHERE id = $1", [
    webhookId,
  ]);
  if (webhook === undefined) return;
  const events = await tx.all(
    `SELECT id, type FROM events WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT ${batch}`,
    [numberOf(webhook, "org_id"), numberOf(webhook, "seen_event_id")],
  );
  const last = events.at(-1);
  if (last === undefined) return;
  const wanted = textsOf(webhook, "events");
  for (const row of events) {
    if (!matches(wanted, textOf(row, "type"))) continue;
    await tx.run(
      "INSERT INTO deliveries (webhook_id, event_id, next_at, created_at) VALUES ($1, $2, $3, $3)",
      [webhookId, numberOf(row, "id"), now],
    );
  }
  await tx.run("UPDATE webhooks SET seen_event_id = $2 WHERE id = $1", [webhookId, numberOf(last, "id")]);
}

/** `*`, `node.*` or the name itself. */
function matches(wanted: readonly string[], type: string): boolean {
  return wanted.some((each) => each === "*" || each === type || each === type.replace(/\..*/, ".*"));
}

/** The oldest due delivery of each webhook, but of none in `busy`: a webhook is sent one after the other. */
export async function claimDue(db: Database, now: number, busy: ReadonlySet<number>): Promise<Claimed[]> {
  const due = await db.all(
    // `+ 0` keeps SQLite from reading the whole log in the order of webhooks: what is due is little.
    `SELECT webhook_id + 0 AS webhook_id, min(id) AS id FROM deliveries
     WHERE next_at IS NOT NULL AND next_at <= $1 GROUP BY webhook_id + 0 ORDER BY 2`,
    [now],
  );
  const mine = due.filter((row) => !busy.has(numberOf(row, "webhook_id"))).slice(0, maxClaims);
  if (mine.length === 0) return [];
  return db.write(async (tx) => {
    const claimed: Claimed[] = [];
    for (const row of mine) {
      const won = await tx.run(
        "UPDATE deliveries SET attempts = attempts + 1, next_at = $2 WHERE id = $1 AND next_at <= $3",
        [numberOf(row, "id"), now + leaseMs, now],
      );
      if (won > 0) claimed.push(await readClaimed(tx, numberOf(row, "id")));
    }
    return claimed;
  });
}

async function readClaimed(tx: Transaction, id: number): Promise<Claimed> {
  const row =
    (await tx.get(
      `SELECT d.webhook_id, d.event_id, d.attempts, w.url, w.secret_sealed, o.slug FROM deliveries d
       JOIN webhooks w ON w.id = d.webhook_id JOIN organizations o ON o.id = w.org_id WHERE d.id = $1`,
      [id],
    )) ?? {};
  const event = await tx.get(`SELECT ${eventColumns} FROM events WHERE id = $1`, [numberOf(row, "event_id")]);
  return {
    id,
    webhookId: numberOf(row, "webhook_id"),
    url: textOf(row, "url"),
    sealedSecret: textOf(row, "secret_sealed"),
    organization: textOf(row, "slug"),
    attempts: numberOf(row, "attempts"),
    event: eventOf(event ?? {}),
  };
}

/** Writes down how an attempt ended; counts only for who still has the claim. `random` from 0 to 1 spreads the retries. */
export async function settleDelivery(
  db: Database,
  { id, attempts }: Pick<Claimed, "id" | "attempts">,
  { status, message, delivered, interrupted }: Outcome,
  { now, random }: { now: number; random: number },
): Promise<void> {
  const afterS = interrupted === true ? 0 : retryAfterS[attempts - 1];
  const isOver = delivered || afterS === undefined;
  const next = isOver ? null : Math.round(now + afterS * 1000 * (0.8 + 0.4 * random));
  await db.write(async (tx) => {
    await tx.run(
      `UPDATE deliveries SET status = $3, message = $4, delivered_at = $5, next_at = $6
       WHERE id = $1 AND attempts = $2 AND next_at IS NOT NULL`,
      [id, attempts, status, message, delivered ? now : null, next],
    );
  });
}

/** The delivery log goes back 30 days. */
export async function forgetOldDeliveries(db: Database, now: number): Promise<void> {
  await db.write((tx) =>
    tx.run("DELETE FROM deliveries WHERE next_at IS NULL AND created_at < $1", [now - keptMs]),
  );
}
