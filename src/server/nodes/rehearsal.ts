// The first changes of nodes after a start would take several times as long as later ones: code is not compiled, the CA's key
// is not open, PostgreSQL has not prepared and planned the statements. So a server renames a node before it answers, and rolls
// it back.

import { ourselves, record } from "../audit/record.ts";
import { findNode } from "../store/nodes.ts";
import { queryOne } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import type { NodeStore } from "./node-store.ts";
import { changeNode, showOne } from "./nodes.ts";

/** PostgreSQL plans a statement anew each time until it has run five times. */
const turns = 6;

/** Undoes the change: a write whose work throws stores nothing and notifies no listener. */
class Rehearsed extends Error {}

const pick = nodes.pick("id", "orgId");
const newest = `SELECT id, org_id FROM nodes
  WHERE state = 'active' AND org_id IN (SELECT id FROM organizations WHERE deleted_at IS NULL)
  ORDER BY id DESC LIMIT 1`;

/** Stores nothing. Needs a node, of any organization. Ends early after `closing`. */
export async function rehearseChange(services: NodeStore, closing: AbortSignal): Promise<void> {
  const node = await queryOne(services.db, pick, newest);
  if (node === undefined) return;
  for (let turn = 0; turn < turns && !closing.aborted; turn++) await rehearse(services, node);
}

async function rehearse(services: NodeStore, { id, orgId }: { id: number; orgId: number }): Promise<void> {
  const { db } = services;
  const org = { id: orgId, slug: "" };
  const change = db.writeFor({ org: orgId }, async (tx) => {
    const { updated, issued } = await changeNode(
      tx,
      services,
      org,
      id,
      { name: `rehearsal-${id}` },
      ourselves,
    );
    await record(tx, [updated, ...issued]);
    await findNode(tx, orgId, id);
    throw new Rehearsed("rolled back");
  });
  await change.catch((error: unknown) => {
    if (!(error instanceof Rehearsed)) throw error;
  });
  await showOne(services, org, await findNode(db, orgId, id));
}
