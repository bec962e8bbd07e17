// Finds the other organization that has a CA: nodes of both would trust each other, so each way to add a CA from outside asks.

import type { Reader } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";

const holder = organizations.pick("slug", "deletedAt");

/** Undefined: none. Deleted organizations count, because nodes that they revoked would be valid again. */
export async function otherHolder(reader: Reader, orgId: number, fingerprint: string) {
  const sql = `SELECT ${holder.select()} FROM organizations WHERE id <> $1 AND id IN
    (SELECT org_id FROM authorities WHERE kind = 'overlay' AND fingerprint = $2) LIMIT 1`;
  return queryOne(reader, holder, sql, [orgId, fingerprint]);
}
