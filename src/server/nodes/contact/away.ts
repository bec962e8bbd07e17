// Tells when nodes are away for longer than their organization allows (`notify_away_minutes`), and when they are back. A node
// whose peers say that it answers is not away: what fails is its way to the control plane, or the agent on it.

import { onlineMs } from "../../../api/values.ts";
import { formatTime } from "../../../base/quantities.ts";
import { ourselves, record } from "../../audit/record.ts";
import type { Transaction } from "../../store/database.ts";
import { computed, integer, integerOrNull, later, queryAll, queryNumber, text } from "../../store/table.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { countedSilence, gapMs, lateMs, together, watchSilence, type Services } from "./silence.ts";

const watching = organizations.pick("id", "notifyAwayMinutes", "notifyAwayFrom");
const organizationsWatching = `SELECT ${watching.select()} FROM organizations
  WHERE notify_away_minutes IS NOT NULL AND deleted_at IS NULL`;
/** Nodes of one query: few enough that check-ins do not wait for it. */
const sliceSize = 2000;
const endOfSlice = `SELECT coalesce(max(id), 0) AS n FROM
  (SELECT id FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND id > $2 ORDER BY id LIMIT ${sliceSize}) x`;
const changed = computed({
  id: integer(),
  name: text(),
  awaySince: integerOrNull(),
  lastCheckinAt: integer(),
  countedFrom: integer(),
});
/** Nodes that may have become away ($4: silent since then), and those that were reported and are online ($5) again. */
const changedInSlice = `SELECT n.id, n.name, n.away_since, s.last_checkin_at,
    ${later("coalesce(n.watched_from, 0)", "s.last_checkin_at")} AS counted_from
  FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.org_id = $1 AND n.id > $2 AND n.id <= $3
    AND n.state = 'active' AND n.phone IS NULL AND n.ephemeral_silence_s IS NULL
    AND ((n.away_since IS NULL AND (s.last_checkin_at <= $4 OR s.last_checkin_at > $6))
      OR (n.away_since <> s.last_checkin_at AND s.last_checkin_at > $5 AND s.last_checkin_at <= $6))
  ORDER BY n.id`;
/** What nodes that are online report of their peers; may be some seconds old. */
type Reached = {
  groupPaths: { of(orgId: number, ownerId: undefined): Promise<{ isReached(nodeId: number): boolean }> };
};
type Changed = ReturnType<(typeof changed)["parse"]>;

/** Records when nodes are away for longer than their organization allows, once for each absence, and when they are back. */
export async function recordAway(services: Services & Reached): Promise<void> {
  const { db, system, groupPaths } = services;
  const now = system.now();
  const watch = await watchSilence(services, now);
  if (watch === undefined) return;
  for (const org of await queryAll(db, watching, organizationsWatching)) {
    const allowedMs = (org.notifyAwayMinutes ?? 0) * 60_000 + lateMs;
    const isDue = ({ awaySince, lastCheckinAt, countedFrom }: Changed) => {
      if (awaySince !== null) return true;
      const last = lastCheckinAt > now + gapMs ? (watch.setBackAt ?? now) : countedFrom;
      return countedSilence(Math.max(last, org.notifyAwayFrom), now, watch.gaps) >= allowedMs;
    };
    for (let after = 0, end; (end = await queryNumber(db, endOfSlice, [org.id, after])) > 0; after = end) {
      const params = [org.id, after, end, now - allowedMs, now - onlineMs, now + gapMs];
      const silent = (await queryAll(db, changed, changedInSlice, params)).filter(isDue);
      if (silent.length === 0) continue;
      const { isReached } = await groupPaths.of(org.id, undefined);
      const found = silent.filter(({ id, awaySince }) => awaySince !== null || !isReached(id));
      for (let at = 0; at < found.length; at += together)
        await db.writeFor({ org: org.id }, async (tx) => {
          for (const node of found.slice(at, at + together)) await recordChange(tx, org.id, node, now);
        });
    }
  }
}

/** In one statement each: a check-in may have come since, the node may be revoked, the setting off. */
const markAway = `UPDATE nodes SET away_since = $2 WHERE id = $1 AND state = 'active' AND away_since IS NULL
  AND EXISTS (SELECT 1 FROM sightings s WHERE s.node_id = nodes.id AND s.last_checkin_at = $2)
  AND EXISTS (SELECT 1 FROM organizations o WHERE o.id = nodes.org_id AND o.notify_away_minutes IS NOT NULL)`;
const markBack = "UPDATE nodes SET away_since = NULL WHERE id = $1 AND state = 'active' AND away_since = $2";

async function recordChange(tx: Transaction, orgId: number, node: Changed, at: number): Promise<void> {
  const { id, name, awaySince, lastCheckinAt } = node;
  const since = awaySince ?? lastCheckinAt;
  if ((await tx.run(awaySince === null ? markAway : markBack, [id, since])) === 0) return;
  const type = awaySince === null ? "node.away" : "node.online";
  const event = { orgId, at, actor: ourselves, subject: `node/${id}` };
  await record(tx, { ...event, type, after: { name, away_since: formatTime(Math.min(since, at)) } });
}
