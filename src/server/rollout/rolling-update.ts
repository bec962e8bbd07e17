// Turns for what restarts engines all over an organization, the first IPv6 address: one node is given its certificate
// and has to confirm it before the next one gets its own, lighthouses last. Nodes that are away lose their turn.

import type { Authorities } from "../certificates/authorities.ts";
import { ourselves, record } from "../audit/record.ts";
import { issueOverlay, readIssuingOrg } from "../certificates/issue.ts";
import { findNode, onlineMs, type NodeRecord } from "../store/nodes.ts";
import type { ServerOptions } from "../options.ts";
import {
  numberOf,
  numberOrNull,
  truthOf,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";
import { raiseOwnVersion } from "../store/versions.ts";

type Store = Pick<ServerOptions, "db"> & {
  authorities: Authorities;
  system: Pick<ServerOptions["system"], "now" | "random">;
};

/**
 * Between the confirmation before and the restart of a lighthouse. It forgets where all nodes are: in this time those
 * that restarted last have shaken hands with each other and, where there are several, with the lighthouse before.
 */
const lighthouseGapMs = 10_000;

/** Gives the next node its turn where the one before has confirmed its own, or is not there any more. */
export async function advanceMoves(services: Store, orgId = 0): Promise<void> {
  const open = await services.db.all(
    "SELECT id, moving_node, move_settled_at FROM organizations WHERE move_open = 1 AND deleted_at IS NULL AND ($1 = 0 OR id = $1)",
    [orgId],
  );
  for (const row of open) await advance(services, row);
}

async function advance(services: Store, row: Row): Promise<void> {
  const { db, system } = services;
  const now = system.now();
  const [orgId, turn] = [numberOf(row, "id"), numberOrNull(row, "moving_node")];
  if (turn !== null && isBusy(await findNode(db, orgId, turn), now)) return;
  const next = await nextNode(db, orgId, now - onlineMs);
  // Who is left is away: they come in when they are back.
  const isOpen = next !== undefined || (await nextNode(db, orgId, 0)) !== undefined;
  if (turn !== null && next?.isLighthouse === true && !(await hasSettled(db, row, now))) return;
  if (next === undefined && turn === null && isOpen) return;
  await db.write(async (tx) => {
    // Two that look at once must not give two turns.
    const taken = await tx.run(
      `UPDATE organizations SET moving_node = $2, move_open = $3, move_settled_at = NULL
       WHERE id = $1 AND coalesce(moving_node, 0) = $4`,
      [orgId, next?.id ?? null, isOpen ? 1 : 0, turn ?? 0],
    );
    if (taken === 1 && next !== undefined) await giveTurn(tx, services, orgId, next.id);
  });
}

/** Whether the time before a lighthouse's turn is over; the first look begins it. */
async function hasSettled(db: Store["db"], row: Row, now: number): Promise<boolean> {
  const settledAt = numberOrNull(row, "move_settled_at");
  // A time to come was noted by a clock that was set back since.
  if (settledAt !== null && settledAt <= now) return now - settledAt >= lighthouseGapMs;
  await db.write((tx) =>
    tx.run("UPDATE organizations SET move_settled_at = $2 WHERE id = $1", [numberOf(row, "id"), now]),
  );
  return false;
}

/** It is here and has not said yet that its engine runs with what it was given. */
function isBusy(node: NodeRecord, now: number): boolean {
  const isHere = node.lastCheckinAt !== null && node.lastCheckinAt > now - onlineMs;
  return node.state === "active" && isHere && node.confirmedConfigVersion < node.ownVersion;
}

/** The first node without an IPv6 address in force that was heard of after `since`, or at any time for 0. */
async function nextNode(
  reader: Reader,
  orgId: number,
  since: number,
): Promise<{ id: number; isLighthouse: boolean } | undefined> {
  const row = await reader.get(
    `SELECT id, is_lighthouse FROM nodes LEFT JOIN sightings ON node_id = id
     WHERE org_id = $1 AND state = 'active' AND ($2 = 0 OR last_checkin_at > $2)
       AND (ip6 IS NULL OR NOT EXISTS (SELECT 1 FROM certificates c
         WHERE c.node_id = nodes.id AND c.kind = 'overlay' AND c.state = 'current' AND c.version = 2))
     ORDER BY is_lighthouse, is_relay, id LIMIT 1`,
    [orgId, since],
  );
  return row === undefined
    ? undefined
    : { id: numberOf(row, "id"), isLighthouse: truthOf(row, "is_lighthouse") };
}

async function giveTurn(tx: Transaction, services: Store, orgId: number, nodeId: number): Promise<void> {
  const org = await readIssuingOrg(tx, orgId);
  const fingerprint = await issueOverlay(tx, org, await findNode(tx, orgId, nodeId), services, {
    isBounded: false,
  });
  await raiseOwnVersion(tx, orgId, nodeId);
  await record(tx, {
    orgId,
    at: services.system.now(),
    type: "certificate.renewed",
    actor: ourselves,
    subject: `node/${nodeId}`,
    after: { fingerprint },
  });
}
