// What becomes due when nodes have confirmed a version, or when time has passed: former certificates that granted more
// are blocked, names and addresses of nodes that are gone become free. Each step is one transaction and may be repeated.

import { formatTime } from "../../duration.ts";
import { ourselves, record } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { numberOf, textOf, type Transaction } from "../store/database.ts";
import { boundHolds, mayRelease, organizationsWithHolds, releaseHolds } from "../store/holds.ts";
import { announceBlocklist } from "../certificates/blocklist.ts";
import { tcpTimeoutM } from "../config/config.ts";
import { flowMs } from "../config/flow-timeout.ts";
import { raiseConfigVersion, readConfigVersion } from "../store/versions.ts";

type Store = Pick<ServerOptions, "db" | "system">;

/** A former certificate that granted more is blocked at the latest after this, confirmed or not (decisions 5). */
export const blockAfterMs = 10 * 60_000;

/** Marks the former certificates of a node, which granted more than its present ones of `version` do; their number. */
export async function blockFormerLater(
  tx: Transaction,
  nodeId: number,
  version: number,
  now: number,
): Promise<number> {
  return tx.run(
    `UPDATE certificates SET block_after = $2, block_version = $3
     WHERE node_id = $1 AND state = 'former' AND kind = 'overlay' AND not_after > $4`,
    [nodeId, now + blockAfterMs, version, now],
  );
}

/** Does what is due now in all organizations, or in one. */
export async function settle({ db, system }: Store, orgId?: number): Promise<void> {
  const now = system.now();
  for (const each of await organizationsWithFormer({ db, system }, orgId)) {
    await db.write((tx) => blockFormer(tx, each, now));
  }
  for (const each of orgId === undefined ? await organizationsWithHolds(db) : [orgId]) {
    // Reads alone: usually nothing is due, and then nothing is written.
    if (await mayRelease(db, each, now)) await db.write((tx) => releaseDue(tx, each, now));
  }
}

/** Frees the names and addresses that no node still believes in as they were. */
export function releaseDue(tx: Transaction, orgId: number, now: number): Promise<void> {
  return releaseHolds(tx, orgId, now, () => longestFlowMs(tx, orgId));
}

/** How long a flow stays open without a packet, by the configurations of the organization's nodes. */
async function longestFlowMs(tx: Transaction, orgId: number): Promise<number> {
  const rows = await tx.all(
    `SELECT config_overrides FROM organizations WHERE id = $1
     UNION ALL SELECT config_overrides FROM nodes WHERE org_id = $1 AND config_overrides <> '{}' AND state = 'active'`,
    [orgId],
  );
  return Math.max(tcpTimeoutM * 60_000, ...rows.map((row) => flowMs(textOf(row, "config_overrides"))));
}

/** From here on people are told: the node was not there to have it renewed. */
const expiringMs = 14 * 86_400_000;
const toldAtOnce = 100;

/** Tells once of each certificate that comes to its end and was not renewed. */
export async function tellExpiring({ db, system }: Store): Promise<void> {
  const now = system.now();
  const due = `state = 'current' AND kind = 'overlay' AND expiring_told_at IS NULL AND not_after < $1`;
  const first = `SELECT id, org_id, node_id, fingerprint, not_after FROM certificates WHERE ${due} LIMIT ${toldAtOnce}`;
  if ((await db.all(first, [now + expiringMs])).length === 0) return;
  await db.write(async (tx) => {
    for (const row of await tx.all(first, [now + expiringMs])) {
      await tx.run("UPDATE certificates SET expiring_told_at = $2 WHERE id = $1", [numberOf(row, "id"), now]);
      await record(tx, {
        orgId: numberOf(row, "org_id"),
        at: now,
        type: "certificate.expiring",
        actor: ourselves,
        subject: `node/${numberOf(row, "node_id")}`,
        after: { fingerprint: textOf(row, "fingerprint"), not_after: formatTime(numberOf(row, "not_after")) },
      });
    }
  });
}

async function organizationsWithFormer({ db, system }: Store, orgId: number | undefined): Promise<number[]> {
  const only = orgId ?? 0;
  const rows = await db.all(
    `SELECT DISTINCT c.org_id FROM certificates c JOIN nodes n ON n.id = c.node_id
       WHERE c.state = 'former' AND c.block_after IS NOT NULL AND ($1 = 0 OR c.org_id = $1)
         AND (c.block_after <= $2 OR n.confirmed_config_version >= c.block_version)`,
    [only, system.now()],
  );
  return rows.map((row) => numberOf(row, "org_id"));
}

async function blockFormer(tx: Transaction, orgId: number, now: number): Promise<void> {
  const due = await tx.all(
    `SELECT c.id, c.node_id, c.not_after FROM certificates c JOIN nodes n ON n.id = c.node_id
     WHERE c.org_id = $1 AND c.state = 'former' AND c.block_after IS NOT NULL
       AND (c.block_after <= $2 OR n.confirmed_config_version >= c.block_version)`,
    [orgId, now],
  );
  if (due.length === 0) return;
  const live = due.some((row) => numberOf(row, "not_after") > now);
  const version = live ? await raiseConfigVersion(tx, orgId) : await readConfigVersion(tx, orgId);
  for (const row of due) {
    await tx.run(
      `UPDATE certificates SET state = 'blocked', blocked_at = $2, blocked_at_version = $3, block_after = NULL WHERE id = $1`,
      [numberOf(row, "id"), now, live ? version : null],
    );
  }
  for (const nodeId of new Set(due.map((row) => numberOf(row, "node_id")))) {
    const left = await tx.get(
      "SELECT id FROM certificates WHERE node_id = $1 AND state = 'former' AND block_after IS NOT NULL LIMIT 1",
      [nodeId],
    );
    if (left === undefined) await boundHolds(tx, nodeId, version);
  }
  await announceBlocklist(tx, orgId, now);
}
