// Raises alarms, follows what is left of their causes, and ends them. Each change and its event are one transaction, so each alarm is
// notified once, even if the server is killed at any time. Times are in ms.

import type { AlarmKind } from "../../api/webhooks/alarms.ts";
import { formatTime } from "../../base/quantities.ts";
import { ourselves, record } from "../audit/record.ts";
import type { Database, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { alarms, type AlarmRow } from "../store/tables/webhooks.ts";

/** A cause that no open alarm is about. Keys are ids of nodes, or what a finder says. */
export type Cause = {
  kind: AlarmKind;
  /** The keys that the alarm is named after. It is open as long as one of them is left. */
  heads: readonly string[];
  /** Keys that went wrong together with the heads. */
  rest: readonly string[];
  title: string;
  text: string;
  isUrgent: boolean;
  /** ms */
  since: number;
};

/** What is left of an alarm's cause. `why`: a sentence in place of "Well again". */
export type Left = { heads: readonly string[]; rest: readonly string[]; why?: string | undefined };

/** A cause that is raised for the `flaps`th time within `flapsMs` is reported as flapping. */
const flaps = 3;
const flapsMs = 3 * 3_600_000;
/** A flapping alarm ends only once its cause was gone for so long. */
const steadyMs = 15 * 60_000;
/** When all heads are well, the rest has so long to come back as well, before the alarm ends and the rest is a cause of its own. */
const togetherMs = 120_000;

/** Raises an alarm with its event, unless one about a head of this cause is open. */
export async function raise(db: Database, orgId: number, cause: Cause, now: number): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    const recent = await queryAll(
      tx,
      alarms,
      `SELECT ${alarms.select()} FROM alarms WHERE org_id = $1 AND (raised_at > $2 OR ended_at IS NULL) ORDER BY id`,
      [orgId, now - flapsMs],
    );
    const ofSameCause = recent.filter(
      ({ kind, heads }) => kind === cause.kind && heads.some((key) => cause.heads.includes(key)),
    );
    // Another replica, which is losing its lease, may have raised it since this turn read the open alarms.
    if (ofSameCause.some(({ endedAt }) => endedAt === null)) return;
    const isFlapping = ofSameCause.length + 1 >= flaps;
    const flapping = `Flapping, time ${ofSameCause.length + 1} within 3 hours. This is told again only after 15 minutes without it.`;
    const { kind, heads, rest, title, isUrgent, since } = cause;
    const text = isFlapping ? `${flapping}\n${cause.text}` : cause.text;
    const row = { orgId, kind, heads: [...heads], rest: [...rest], title, text, isUrgent, isFlapping };
    const { id } = await alarms.insertReturning(tx, { ...row, since: Math.min(since, now), raisedAt: now });
    const after = {
      name: title,
      kind,
      urgent: isUrgent,
      flapping: isFlapping,
      since: formatTime(since),
      text,
    };
    await record(tx, { ...eventOf(orgId, id, now), type: "alarm.raised", after });
  });
}

const eventOf = (orgId: number, id: number, at: number) => ({
  orgId,
  at,
  actor: ourselves,
  subject: `alarm/${id}`,
});

/** Removes from an open alarm what is well. The alarm ends when all of its heads are well, after a wait in some cases. */
export async function follow(db: Database, alarm: AlarmRow, left: Left, now: number): Promise<void> {
  const { id, orgId, isFlapping } = alarm;
  if (left.heads.length > 0) {
    const change = { heads: [...left.heads], rest: [...left.rest], wellFrom: null };
    if (isSame(alarm, change)) return;
    await db.writeFor({ org: orgId }, (tx) => alarms.update(tx, { id, endedAt: null }, change));
    return;
  }
  const wellFrom = Math.min(alarm.wellFrom ?? now, now);
  const waitForRestMs = left.rest.length > 0 ? togetherMs : 0;
  const waitMs = isFlapping ? steadyMs : waitForRestMs;
  if (now - wellFrom < waitMs) {
    if (wellFrom === alarm.wellFrom) return;
    await db.writeFor({ org: orgId }, (tx) => alarms.update(tx, { id, endedAt: null }, { wellFrom }));
    return;
  }
  await db.writeFor({ org: orgId }, (tx) => end(tx, alarm, { why: left.why, wellFrom, now }));
}

const isSame = (alarm: AlarmRow, change: Pick<AlarmRow, "heads" | "rest" | "wellFrom">) =>
  alarm.wellFrom === change.wellFrom &&
  alarm.heads.join("\n") === change.heads.join("\n") &&
  alarm.rest.join("\n") === change.rest.join("\n");

async function end(
  tx: Transaction,
  { id, orgId, kind, title, since, isUrgent }: AlarmRow,
  { why, wellFrom, now }: { why: string | undefined; wellFrom: number; now: number },
): Promise<void> {
  if ((await alarms.update(tx, { id, endedAt: null }, { wellFrom, endedAt: now })) === 0) return;
  const minutes = Math.max(1, Math.round((wellFrom - since) / 60_000));
  const text = `${why ?? "Well again"}, after ${minutes} ${minutes === 1 ? "minute" : "minutes"}.`;
  const after = { name: `Over: ${title}`, kind, urgent: isUrgent, since: formatTime(since), text };
  await record(tx, { ...eventOf(orgId, id, now), type: "alarm.ended", after });
}
