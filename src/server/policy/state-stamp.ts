// Tells whether an organization changed while its policy was planned or tested outside of a transaction.

import { notFound } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import type { Reader } from "../store/database.ts";
import { computed, queryOne, text } from "../store/table.ts";

const stateRow = computed({ stamp: text() });

/**
 * Versions of configuration and policy, the number of nodes that are not ephemeral, and the newest of them. The number is that of
 * all nodes less that of ephemeral ones, both counted in indexes: rows of nodes are wide, and reading ten thousand delays other
 * requests. Ephemeral nodes are in an index by watched_from: the condition on it is always true and makes databases use it, and
 * the sign in `+org_id` keeps SQLite from using an index of all nodes instead.
 */
const stateSql = `SELECT o.last_version || '/' || coalesce(p.version, 0) || '/' ||
    ((SELECT count(*) FROM nodes WHERE org_id = o.id AND state <> 'revoked') -
      (SELECT count(*) FROM nodes
        WHERE +org_id = o.id AND ephemeral_silence_s IS NOT NULL AND state <> 'revoked' AND watched_from >= 0)) || '/' ||
    coalesce((SELECT id FROM nodes WHERE org_id = o.id AND state <> 'revoked' AND ephemeral_silence_s IS NULL
      ORDER BY id DESC LIMIT 1), 0) AS stamp
  FROM organizations o LEFT JOIN policies p ON p.org_id = o.id WHERE o.id = $1`;

/** A text that changes with every change of the organization's policy and nodes, except ephemeral ones, which come and go. */
export async function stateStamp(reader: Reader, orgId: number): Promise<string> {
  const row = await queryOne(reader, stateRow, stateSql, [orgId]);
  if (row === undefined) throw new AppError("not_found", notFound.organization);
  return row.stamp;
}
