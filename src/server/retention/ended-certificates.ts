// Deletes expired certificates that are not current. The newest one of a node and kind stays: when its name and address
// become free, and which version revoked it, are read from there.

import type { Database } from "../store/database.ts";
import { computed, integerOrNull, queryNumber, queryOne } from "../store/table.ts";

const batchSize = 500;
/** SQL for the expired certificates with ids above $1, up to $2. $3: now, ms. */
const expired = `FROM certificates WHERE id > $1 AND id <= $2 AND state <> 'current' AND not_after < $3
  AND EXISTS (SELECT 1 FROM certificates n WHERE n.node_id = certificates.node_id AND n.kind = certificates.kind
    AND (n.not_after > certificates.not_after OR (n.not_after = certificates.not_after AND n.id > certificates.id)))`;
const rangeEnd = computed({ last: integerOrNull() });
/** The last of the next ids above $1. */
const nextRange = `SELECT max(id) AS last
  FROM (SELECT id FROM certificates WHERE id > $1 ORDER BY id LIMIT ${batchSize}) s`;

/** Walks over all certificates by id: an index of expired ones would contain every certificate that stays. `before`: ms. */
export async function deleteEndedCertificates(
  db: Database,
  before: number,
  isEnding: () => boolean,
): Promise<void> {
  for (let from = 0; !isEnding();) {
    const last = (await queryOne(db, rangeEnd, nextRange, [from]))?.last ?? null;
    if (last === null) return;
    const params = [from, last, before];
    // Most ranges have none: asked first, because a write waits for other writers.
    if ((await queryNumber(db, `SELECT count(*) AS n ${expired}`, params)) > 0)
      await db.write((tx) => tx.run(`DELETE ${expired}`, params));
    from = last;
  }
}
