// Records one event for each certificate that expires soon and was not renewed.

import { formatTime } from "../../../base/quantities.ts";
import { ourselves, record } from "../../audit/record.ts";
import { forAll, orgOf, orgOfEntry } from "../../for-all.ts";
import type { Store } from "../../options.ts";
import { queryAll } from "../../store/table.ts";
import { certificates } from "../../store/tables/certificates.ts";

/** Time before the end of a certificate. Its renewal was due long before that, so the node was offline. */
const expiringMs = 14 * 86_400_000;
/** The same for a certificate of an offline CA: only this event tells its signers to renew it. */
const offlineExpiringMs = 60 * 86_400_000;
const announcedTogether = 100;

const expiringPick = certificates.pick("id", "orgId", "nodeId", "fingerprint", "notAfter");

export async function announceExpiring({ db, system }: Store): Promise<void> {
  const now = system.now();
  const due = `state = 'current' AND kind = 'overlay' AND expiring_told_at IS NULL AND (not_after < $1
    OR not_after < $2 AND authority_id IN (SELECT id FROM authorities WHERE offline = 1))`;
  const first = `SELECT ${expiringPick.select()} FROM certificates WHERE ${due} LIMIT ${announcedTogether}`;
  const found = await queryAll(db, expiringPick, first, [now + expiringMs, now + offlineExpiringMs]);
  await forAll(Map.groupBy(found, orgOf), orgOfEntry, ([orgId, expiring]) =>
    db.writeFor({ org: orgId }, async (tx) => {
      for (const { id, nodeId, fingerprint, notAfter } of expiring) {
        // Only one of two concurrent servers announces it.
        const unannounced = { id, state: "current", expiringToldAt: null } as const;
        if ((await certificates.update(tx, unannounced, { expiringToldAt: now })) === 0) continue;
        await record(tx, {
          orgId,
          at: now,
          type: "certificate.expiring",
          actor: ourselves,
          subject: `node/${nodeId}`,
          after: { fingerprint, not_after: formatTime(notAfter) },
        });
      }
    }),
  );
}
