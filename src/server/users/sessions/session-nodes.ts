// The machines of command-line sessions. A machine proves that a session is on it with the token of its node, so that
// no user binds another user's session, or a session to another machine. When the node is revoked, these sessions
// end.

import { timingSafeEqual } from "node:crypto";
import { maxProvenNodes, type ProvenNodes } from "../../../api/sessions.ts";
import { AppError } from "../../../base/errors.ts";
import { proofOf } from "../../../pki/session-proof.ts";
import type { Store } from "../../options.ts";
import type { Transaction } from "../../store/database.ts";
import { computed, queryAll, queryNumber, queryOne, integer, text } from "../../store/table.ts";
import { sessionNodes } from "../../store/tables/sessions.ts";
import { endFamily } from "./families.ts";
import type { UserCaller } from "../../http/route.ts";

const nodePick = computed({ id: integer(), orgId: integer(), tokenHash: text() });
const findNode = `SELECT n.id, n.org_id, n.token_hash FROM nodes n JOIN organizations o ON o.id = n.org_id
  WHERE o.slug = $1 AND n.id = $2 AND n.state <> 'revoked' AND n.token_hash IS NOT NULL AND o.deleted_at IS NULL`;

/**
 * Records on which machines the session is. Returns how many of the nodes were proven, and no more: why one is not (unknown, revoked
 * or a wrong proof) is not revealed. Throws conflict for a caller without a session of a command line.
 */
export async function proveNodes(
  { db, system }: Store,
  { signIn }: UserCaller,
  { nodes: claimed }: ProvenNodes,
): Promise<number> {
  if (signIn === undefined || !("family" in signIn) || signIn.family === "")
    throw new AppError("conflict", "Only the session of a command line is proven to be on a machine.");
  const { family } = signIn;
  let proven = 0;
  for (const { organization, node_id, proof } of claimed) {
    const found = await queryOne(db, nodePick, findNode, [organization, node_id]);
    if (found === undefined || !isProof(proof, proofOf(found.tokenHash, family))) continue;
    // With the lock of the organization: a revocation comes before, and is seen here, or after, and sees this.
    const isBound = await db.writeFor({ org: found.orgId }, async (tx) => {
      if ((await queryOne(tx, nodePick, findNode, [organization, node_id])) === undefined) return false;
      const count = "SELECT count(*) AS n FROM session_nodes WHERE family = $1 AND node_id <> $2";
      if ((await queryNumber(tx, count, [family, node_id])) >= maxProvenNodes) return false;
      const row = { family, nodeId: node_id, provenAt: system.now() };
      await sessionNodes.upsert(tx, row, "ON CONFLICT DO NOTHING");
      return true;
    });
    if (isBound) proven++;
  }
  return proven;
}

/** The API takes only proofs of 43 characters, as long as the expected one: timingSafeEqual throws for other lengths. */
const isProof = (proof: string, expected: string) =>
  timingSafeEqual(Buffer.from(proof), Buffer.from(expected));

const familyPick = computed({ family: text() });

/** Ends the sessions on the machine of a revoked node. Returns how many were still going on. One revoked token ends a family. */
export async function endSessionsOn(tx: Transaction, nodeId: number, now: number): Promise<number> {
  const sql = `SELECT p.family FROM session_nodes p WHERE p.node_id = $1
    AND EXISTS (SELECT 1 FROM refresh_tokens t WHERE t.family = p.family AND t.expires_at > $2)
    AND NOT EXISTS (SELECT 1 FROM refresh_tokens t WHERE t.family = p.family AND t.revoked_at IS NOT NULL)`;
  const found = await queryAll(tx, familyPick, sql, [nodeId, now]);
  for (const { family } of found) await endFamily(tx, family, now);
  return found.length;
}
