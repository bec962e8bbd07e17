// Tells whether an organization changed while its policy was planned or tested outside of a transaction.

import { AppError } from "../../errors.ts";
import type { Reader } from "../store/database.ts";
import { computed, queryOne, text } from "../store/table.ts";

const stateRow = computed({ n: text() });

/** A text that changes with every change of the organization's policy and nodes, except ephemeral ones, which come and go. */
export async function momentOf(reader: Pick<Reader, "get">, orgId: number): Promise<string> {
  const row = await queryOne(
    reader,
    stateRow,
    `SELECT o.last_version || '/' || coalesce(p.version, 0) || '/' ||
       (SELECT count(*) || '/' || coalesce(max(n.id), 0) FROM nodes n WHERE n.org_id = o.id AND n.state <> 'revoked'
         AND n.ephemeral_silence_s IS NULL) AS n
     FROM organizations o LEFT JOIN policies p ON p.org_id = o.id WHERE o.id = $1`,
    [orgId],
  );
  if (row === undefined) throw new AppError("not_found", "There is no such organization.");
  return row.n;
}
