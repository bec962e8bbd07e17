// Whether a CA is that of another organization: nodes of both would trust each other.

import type { Reader } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";

const holder = organizations.pick("slug", "deletedAt");

/** Each way by which an organization gets a CA from outside asks. A deleted organization counts: nodes that it revoked would be valid again. */
export async function otherHolder(reader: Pick<Reader, "get">, orgId: number, fingerprint: string) {
  const sql = `SELECT ${holder.select()} FROM organizations WHERE id <> $1 AND id IN
    (SELECT org_id FROM authorities WHERE kind = 'overlay' AND fingerprint = $2) LIMIT 1`;
  return queryOne(reader, holder, sql, [orgId, fingerprint]);
}
