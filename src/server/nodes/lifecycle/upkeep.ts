// Does what becomes due with time or when nodes confirm a version: blocks former certificates that granted more, frees
// names and addresses of revoked nodes. Each step is one transaction and may be repeated.

import type { Store } from "../../options.ts";
import type { Transaction } from "../../store/database.ts";
import { boundHolds, mayRelease, organizationsWithHolds, releaseHolds } from "../../allocation/holds.ts";
import { announceBlocklist } from "../../certificates/blocklist.ts";
import { flowTimes, longestFlowMs } from "../../config/flow-timeout.ts";
import { forAll, inTurn } from "../../for-all.ts";
import { queryAll, queryNumber } from "../../store/table.ts";
import { certificates } from "../../store/tables/certificates.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { raiseConfigVersion, readConfigVersion } from "../../store/versions.ts";

/** A former certificate that granted more is blocked after this time at the latest, confirmed or not. */
export const blockAfterMs = 10 * 60_000;

/** For a certificate whose block is not urgent: it is blocked at its time, whatever the node confirms. */
export const atLeisure = Number.MAX_SAFE_INTEGER;

/**
 * Marks the former certificates of a node, which granted more than the current ones. They are blocked once the node has confirmed
 * `version`, or in ten minutes. Returns their number. One that is marked already keeps its time and the lower version: further
 * changes must not postpone its block.
 */
export async function blockFormerLater(
  tx: Transaction,
  nodeId: number,
  version: number,
  now: number,
): Promise<number> {
  return tx.run(
    `UPDATE certificates SET block_after = coalesce(block_after, $2), block_version = CASE WHEN block_version < $3 THEN block_version ELSE $3 END
     WHERE node_id = $1 AND state = 'former' AND kind = 'overlay' AND not_after > $4`,
    [nodeId, now + blockAfterMs, version, now],
  );
}

/** Does everything that is due in one organization, or in all of them. */
export async function runDueUpkeep({ db, system }: Store, onlyOrg?: number): Promise<void> {
  const now = system.now();
  const block = (orgId: number) => db.writeFor({ org: orgId }, (tx) => blockFormer(tx, orgId, now));
  const release = async (orgId: number) => {
    // Check by reads first: usually nothing is due, and nothing is written.
    if (await mayRelease(db, orgId, now))
      await db.writeFor({ org: orgId }, (tx) => releaseDue(tx, orgId, now));
  };
  if (onlyOrg !== undefined) {
    for (const orgId of await organizationsWithFormer({ db, system }, onlyOrg)) await block(orgId);
    return release(onlyOrg);
  }
  const itself = (orgId: number) => orgId;
  await inTurn(
    async () => forAll(await organizationsWithFormer({ db, system }), itself, block),
    async () => forAll(await organizationsWithHolds(db), itself, release),
  );
}

/**
 * Runs the work for one organization. Callers at the same time share one run, which begins after their own writes: when a thousand
 * nodes confirm a version, two or three runs find what that makes due.
 */
export function shareRuns(work: (orgId: number) => Promise<void>): (orgId: number) => Promise<void> {
  const running = new Map<number, Promise<void>>();
  const waiting = new Map<number, Promise<void>>();
  const run = (orgId: number) => {
    waiting.delete(orgId);
    const done = work(orgId).finally(() => running.delete(orgId));
    running.set(orgId, done);
    return done;
  };
  return (orgId) => {
    const current = running.get(orgId);
    if (current === undefined) return run(orgId);
    // The current run may have missed the caller's write: the next one follows it, also after a failure.
    const next =
      waiting.get(orgId) ??
      current.then(
        () => run(orgId),
        () => run(orgId),
      );
    waiting.set(orgId, next);
    return next;
  };
}

/** Frees the held names and addresses that are due. */
export function releaseDue(tx: Transaction, orgId: number, now: number): Promise<void> {
  return releaseHolds(tx, orgId, now, () => openFlowMs(tx, orgId));
}

/**
 * How long an open flow may outlive its last packet on any node of the organization. A rollout of versions has no settings: the JSON
 * text `null`.
 */
async function openFlowMs(tx: Transaction, orgId: number): Promise<number> {
  const rows = await queryAll(
    tx,
    nodes.pick("configOverrides"),
    `SELECT config_overrides FROM organizations WHERE id = $1
     UNION ALL SELECT settings FROM rollouts WHERE org_id = $1 AND ended_at IS NULL AND settings <> 'null'
     UNION ALL SELECT config_overrides FROM nodes WHERE org_id = $1 AND config_overrides <> '{}' AND state = 'active'`,
    [orgId],
  );
  return longestFlowMs(rows.map((row) => flowTimes(row.configOverrides)));
}

/** Former certificates that are due for blocking at $2 (ms), of one organization or of all ($1 = 0). */
const dueFormer = `FROM certificates c JOIN nodes n ON n.id = c.node_id
  WHERE c.state = 'former' AND c.block_after IS NOT NULL AND ($1 = 0 OR c.org_id = $1)
    AND (c.block_after <= $2 OR n.confirmed_config_version >= c.block_version)`;

async function organizationsWithFormer({ db, system }: Store, orgId = 0): Promise<number[]> {
  const sql = `SELECT DISTINCT c.org_id ${dueFormer}`;
  const rows = await queryAll(db, certificates.pick("orgId"), sql, [orgId, system.now()]);
  return rows.map((row) => row.orgId);
}

/** Certificates that are blocked without a pause: other writers get their turns in it. */
const blockedTogether = 100;
const isPauseDue = (index: number) => index % blockedTogether === blockedTogether - 1;

async function blockFormer(tx: Transaction, orgId: number, now: number): Promise<void> {
  const duePick = certificates.pick("id", "nodeId", "notAfter");
  const due = await queryAll(tx, duePick, `SELECT ${duePick.select("c")} ${dueFormer}`, [orgId, now]);
  if (due.length === 0) return;
  // Blocklists name only certificates that have not expired: without one, no configuration changes.
  const isListed = due.some(({ notAfter }) => notAfter > now);
  const version = isListed ? await raiseConfigVersion(tx, orgId) : await readConfigVersion(tx, orgId);
  const blockedAtVersion = isListed ? version : null;
  for (const [index, { id }] of due.entries()) {
    if (isPauseDue(index)) await tx.pause();
    await certificates.update(
      tx,
      { id },
      { state: "blocked", blockedAt: now, blockedAtVersion, blockAfter: null },
    );
  }
  const left = `SELECT count(*) AS n FROM certificates
    WHERE node_id = $1 AND state = 'former' AND block_after IS NOT NULL`;
  for (const [index, nodeId] of [...new Set(due.map((row) => row.nodeId))].entries()) {
    if (isPauseDue(index)) await tx.pause();
    // All are blocked: what the node gave up is free once the others have confirmed this version (holds.ts).
    if ((await queryNumber(tx, left, [nodeId])) === 0) await boundHolds(tx, nodeId, version);
  }
  await announceBlocklist(tx, orgId, now);
}
