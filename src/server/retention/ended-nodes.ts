// Deletes ended ephemeral nodes whose name and address are free again. If peers knew the name, the node stays until the end
// is so old that a peer that missed it would get all names again.

import { keptVersions } from "../allocation/held-names.ts";
import type { Database } from "../store/database.ts";
import { places } from "../store/table.ts";

/** Nodes of one transaction. The store keeps a prepared statement for each number of them. */
const batchSize = 100;

/** $1: the nodes ended before this time, ms. */
const goneNodes = (limit: number) => `SELECT n.id FROM nodes n WHERE n.ended_at < $1
  AND (n.is_named = 0 OR n.names_version <
    (SELECT o.names_version - ${keptVersions} FROM organizations o WHERE o.id = n.org_id))
  AND NOT EXISTS (SELECT 1 FROM addresses a WHERE a.node_id = n.id)
  AND NOT EXISTS (SELECT 1 FROM held_names h WHERE h.node_id = n.id)
  AND NOT EXISTS (SELECT 1 FROM certificates c WHERE c.node_id = n.id AND (c.state = 'blocked' OR c.not_after >= $1))
  AND NOT EXISTS (SELECT 1 FROM name_aliases m WHERE m.node_id = n.id)
  AND NOT EXISTS (SELECT 1 FROM registration_tokens t WHERE t.node_id = n.id)
  ORDER BY n.id LIMIT ${limit}`;

/** The tables that may still refer to a gone node. */
const referring = [
  "certificates",
  "registrants",
  "paths",
  "flows",
  "sightings",
  "sent_files",
  "relay_traffic",
  "owner_proofs",
  "session_nodes",
  "rollout_nodes",
];

export async function deleteEndedNodes(db: Database, before: number, isEnding: () => boolean): Promise<void> {
  while (!isEnding() && (await db.get(goneNodes(1), [before])) !== undefined) {
    await db.write(async (tx) => {
      const ids = (await tx.all(goneNodes(batchSize), [before])).map((row) => Number(row["id"]));
      // One that came back since the first look is kept.
      if (ids.length === 0) return;
      const list = places(ids, 1);
      // A machine that still uses the token of such a node does not count as guessing.
      await tx.run(
        `INSERT INTO retired_tokens (token_hash, retired_at) SELECT token_hash, ended_at FROM nodes
         WHERE token_hash IS NOT NULL AND id IN (${list}) ON CONFLICT (token_hash) DO NOTHING`,
        ids,
      );
      for (const table of referring) await tx.run(`DELETE FROM ${table} WHERE node_id IN (${list})`, ids);
      await tx.run(`DELETE FROM nodes WHERE id IN (${list})`, ids);
      await tx.notify("auth", "ephemeral nodes");
    });
  }
}
