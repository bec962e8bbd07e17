// Looks which nodes are silent, and records when they are away for longer than their organization allows (`notify_away_minutes`)
// and when they are back. A node whose peers say that it answers is not away: what fails is its way to the control plane,
// or the agent on it. The alarms (../../alarms/) use the silence that this file returns.

import { onlineMs } from "../../../api/values.ts";
import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import { formatTime } from "../../../base/quantities.ts";
import { ourselves, record } from "../../audit/record.ts";
import { LeaseLost } from "../../store/leases.ts";
import { forAll } from "../../for-all.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import {
  computed,
  inParts,
  integer,
  joined,
  later,
  places,
  queryAll,
  queryNumber,
  text,
} from "../../store/table.ts";
import { nodes } from "../../store/tables/nodes.ts";
import type { Store } from "../../options.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { countedSilence, gapMs, lateMs, quietMs, changedTogether, watchSilence } from "./silence.ts";

const watchingPick = organizations.pick("id", "notifyAwayMinutes", "notifyAwayFrom");
const organizationsWatching = `SELECT ${watchingPick.select()} FROM organizations
  WHERE notify_away_minutes IS NOT NULL AND deleted_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM drills d WHERE d.org_id = organizations.id AND d.ended_at IS NULL)`;
/** Nodes of one query: few enough that check-ins do not wait for it. */
const sliceSize = 2000;
/** $1: the last id of the slice before. The last id of the next one; 0: there is none. */
const endOfSlice = `SELECT coalesce(max(id), 0) AS n FROM
  (SELECT id FROM nodes WHERE state <> 'revoked' AND id > $1 ORDER BY id LIMIT ${sliceSize}) x`;
const nodePick = nodes.pick(
  "id",
  "orgId",
  "name",
  "ip",
  "ip6",
  "mode",
  "groups",
  "ownerGroups",
  "isLighthouse",
  "isRelay",
  "subnets",
  "exitGroups",
  "awaySince",
);
const sightingPick = computed({ lastCheckinAt: integer(), countedFrom: integer() });
const silentPick = joined("n", nodePick, "s", sightingPick);
/**
 * $1 and $2: the ids of the slice lie after the first and up to the second. Nodes that were silent since $3 (ms), those whose last
 * check-in seems to be after $4, because the clock was ahead, and those that were recorded as away.
 * The silence of a restored node counts from `watched_from` at the earliest.
 */
const silentInSlice = `SELECT ${nodePick.select("n")}, s.last_checkin_at,
    ${later("coalesce(n.watched_from, 0)", "s.last_checkin_at")} AS counted_from
  FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.id > $1 AND n.id <= $2
    AND n.state = 'active' AND n.phone IS NULL AND n.ephemeral_silence_s IS NULL
    AND (s.last_checkin_at <= $3 OR s.last_checkin_at > $4 OR n.away_since IS NOT NULL)
  ORDER BY n.id`;

/** `awaySince`: the last check-in of a node that was recorded as away, ms; null: it was not. */
type Found = ReturnType<(typeof silentPick)["parse"]>;
export type SilentNode = Found & {
  /** For how long it was silent while a server was up, ms. */
  silentMs: number;
  /** Since when it is silent, ms. In the past, also if `lastCheckinAt` is in the future because the clock was ahead. */
  silentFrom: number;
};
export type Silence = {
  now: number;
  /** The end of the last time in which no server was up, or the last time at which the clock was set back, ms. */
  upFrom: number;
  nodes: readonly SilentNode[];
};

/**
 * Finds the silent nodes, and records when nodes are away for longer than their organization allows, once for each absence,
 * and when they are back. Undefined if there is no node. What cannot be recorded is logged: alarms need the silence.
 */
export async function recordAway(services: Store & { log: Pick<Log, "warn"> }): Promise<Silence | undefined> {
  const { db, system, log } = services;
  const now = system.now();
  const watch = await watchSilence(services, now);
  if (watch === undefined) return undefined;
  const { silent, back } = await findSilent(db, watch, now);
  await forAll(
    await queryAll(db, watchingPick, organizationsWatching),
    ({ id }) => id,
    async (org) => {
      // `lateMs`: a check-in may be noticed so much later.
      const allowedMs = (org.notifyAwayMinutes ?? 0) * 60_000 + lateMs;
      const isDue = ({ orgId, awaySince, silentFrom }: SilentNode) =>
        orgId === org.id &&
        awaySince === null &&
        countedSilence(Math.max(silentFrom, org.notifyAwayFrom), now, watch.gaps) >= allowedMs;
      const due = silent.filter(isDue);
      const reached = await reachedBy(db, org.id, due, now);
      const changed = [
        ...due.filter(({ id }) => !reached.has(id)),
        ...back.filter(({ orgId }) => orgId === org.id),
      ];
      for (let at = 0; at < changed.length; at += changedTogether)
        await db.writeFor({ org: org.id }, async (tx) => {
          for (const node of changed.slice(at, at + changedTogether))
            await recordChange(tx, org.id, node, now);
        });
    },
  ).catch((error: unknown) => {
    // Another server does this now: this one stops.
    if (error instanceof LeaseLost) throw error;
    log.warn("Nodes that are away could not be recorded; retrying", { reason: messageOf(error) });
  });
  // Gaps: [from, to] in ms, the newest last.
  const [, lastGapEnd = 0] = watch.gaps.at(-1) ?? [];
  return { now, upFrom: Math.max(lastGapEnd, watch.setBackAt ?? 0), nodes: silent };
}

/** `back`: nodes that were recorded as away, and have checked in since. */
async function findSilent(
  db: Reader,
  watch: NonNullable<Awaited<ReturnType<typeof watchSilence>>>,
  now: number,
): Promise<{ silent: SilentNode[]; back: Found[] }> {
  const silent: SilentNode[] = [];
  const back: Found[] = [];
  for (let after = 0; ;) {
    const end = await queryNumber(db, endOfSlice, [after]);
    if (end === 0) return { silent, back };
    for (const node of await queryAll(db, silentPick, silentInSlice, [
      after,
      end,
      now - quietMs,
      now + gapMs,
    ])) {
      const { lastCheckinAt, awaySince, countedFrom } = node;
      const isAhead = lastCheckinAt > now + gapMs;
      const silentFrom = isAhead ? (watch.setBackAt ?? now) : countedFrom;
      const silentMs = countedSilence(silentFrom, now, watch.gaps);
      if (silentMs >= quietMs) silent.push({ ...node, silentFrom, silentMs });
      const hasReturned = awaySince !== null && awaySince !== lastCheckinAt;
      if (hasReturned && !isAhead && lastCheckinAt > now - onlineMs) back.push(node);
    }
    after = end;
  }
}

const reachedPick = computed({ peer: text(), n: integer() });

/** By node: how many peers that are online say that it answers. Those without one are left out. */
export async function reachedBy(
  reader: Reader,
  orgId: number,
  of: readonly Pick<SilentNode, "id" | "ip" | "ip6">[],
  now: number,
): Promise<Map<number, number>> {
  const owners = new Map(of.flatMap(({ id, ip, ip6 }) => [[ip, id] as const, [ip6 ?? ip, id] as const]));
  const counts = new Map<number, number>();
  await inParts([...owners.keys()], async (some) => {
    const rows = await queryAll(
      reader,
      reachedPick,
      `SELECT x.peer, count(*) AS n FROM paths x JOIN sightings s ON s.node_id = x.node_id
       WHERE x.org_id = $1 AND x.peer IN (${places(some, 4)}) AND x.probe = 'answers'
         AND s.last_checkin_at > $2 AND s.last_checkin_at < $3
       GROUP BY x.peer`,
      [orgId, now - onlineMs, now + gapMs, ...some],
    );
    // A peer reports a node by one of its addresses.
    for (const { peer, n } of rows) {
      const id = owners.get(peer) ?? 0;
      counts.set(id, (counts.get(id) ?? 0) + n);
    }
  });
  return counts;
}

// Each checks again in its one statement: meanwhile a check-in may have come, the node may be revoked, or the setting be off.
// $1: the node. $2: its last check-in before the absence, ms.
const markAway = `UPDATE nodes SET away_since = $2 WHERE id = $1 AND state = 'active' AND away_since IS NULL
  AND EXISTS (SELECT 1 FROM sightings s WHERE s.node_id = nodes.id AND s.last_checkin_at = $2)
  AND EXISTS (SELECT 1 FROM organizations o WHERE o.id = nodes.org_id AND o.notify_away_minutes IS NOT NULL)`;
const markBack = "UPDATE nodes SET away_since = NULL WHERE id = $1 AND state = 'active' AND away_since = $2";

/** A node that was not recorded as away is away now; one that was is back. */
async function recordChange(tx: Transaction, orgId: number, node: Found, at: number): Promise<void> {
  const { id, name, awaySince, lastCheckinAt } = node;
  const since = awaySince ?? lastCheckinAt;
  if ((await tx.run(awaySince === null ? markAway : markBack, [id, since])) === 0) return;
  const type = awaySince === null ? "node.away" : "node.online";
  const event = { orgId, at, actor: ourselves, subject: `node/${id}` };
  await record(tx, { ...event, type, after: { name, away_since: formatTime(Math.min(since, at)) } });
}
