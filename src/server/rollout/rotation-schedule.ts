// What the server does about CAs by itself: takes rotations on, begins one in time, and says so long before a CA ends.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { record, ourselves } from "../audit/record.ts";
import { nodeLifetimeMs } from "../certificates/issue.ts";
import { startRotation } from "./rotation-commands.ts";
import { advanceRotations, hearAnew, phaseOf, type RotationStore } from "./rotation-phases.ts";
import { numberOf, textOf, truthOf, type Reader, type Row } from "../store/database.ts";

const [hourMs, dayMs] = [3_600_000, 86_400_000];
/** A CA with less left is replaced (decisions 5): every certificate still has its whole life. */
const rotateBeforeMs = 2 * nodeLifetimeMs;
/** Days before its end at which an event says so. */
const warnings = [180, 90, 30, 14, 7, 1];
/** One that was begun and rolled back is not begun again at once. */
const triedLatelyMs = 7 * dayMs;

/** To be called every second. */
export function makeRotations(store: RotationStore): () => Promise<void> {
  let hasBegun = false;
  let lookedAt = Number.NEGATIVE_INFINITY;
  return async () => {
    if (!hasBegun) await hearAnew(store);
    hasBegun = true;
    if (store.system.now() - lookedAt >= hourMs) {
      lookedAt = store.system.now();
      await watchAuthorities(store);
    }
    await advanceRotations(store);
  };
}

/** Looks at the CAs that sign and come to their end. */
async function watchAuthorities(store: RotationStore): Promise<void> {
  const { db, system } = store;
  const rows = await db.all(
    `SELECT o.id AS org_id, o.slug, o.rotation_phase, o.rotation_auto, a.kind, a.fingerprint, a.not_after
     FROM authorities a JOIN organizations o ON o.id = a.org_id
     WHERE a.state = 'active' AND o.deleted_at IS NULL AND a.not_after < $1 ORDER BY a.id`,
    [system.now() + Math.max(rotateBeforeMs, Math.max(...warnings) * dayMs)],
  );
  for (const row of rows) await warn(store, row);
  const due = rows.filter((row) => numberOf(row, "not_after") < system.now() + rotateBeforeMs);
  for (const row of new Map(due.map((each) => [numberOf(each, "org_id"), each])).values()) {
    if (!truthOf(row, "rotation_auto") || phaseOf(row) !== "none") continue;
    if (await wasTriedLately(db, numberOf(row, "org_id"), system.now())) continue;
    const org = { id: numberOf(row, "org_id"), slug: textOf(row, "slug") };
    await startRotation(store, org, ourselves).catch((error: unknown) => {
      // A person, or another replica, was quicker.
      if (!(error instanceof AppError && error.code === "conflict")) throw error;
    });
  }
}

async function wasTriedLately(reader: Reader, orgId: number, now: number): Promise<boolean> {
  const made = await reader.get("SELECT id FROM authorities WHERE org_id = $1 AND created_at > $2 LIMIT 1", [
    orgId,
    now - triedLatelyMs,
  ]);
  return made !== undefined;
}

const Warned = v.object({ warned_at_days: v.number() });

/** One event each time a mark is passed; of marks that passed while the server was away only the last. */
async function warn({ db, system }: RotationStore, row: Row): Promise<void> {
  const [orgId, notAfter] = [numberOf(row, "org_id"), numberOf(row, "not_after")];
  const mark = warnings.findLast((days) => notAfter < system.now() + days * dayMs);
  if (mark === undefined) return;
  const subject = `authority/${textOf(row, "fingerprint")}`;
  await db.write(async (tx) => {
    const last = await tx.get(
      "SELECT after FROM events WHERE org_id = $1 AND type = 'ca.expiring' AND subject = $2 ORDER BY id DESC LIMIT 1",
      [orgId, subject],
    );
    if (last !== undefined && v.parse(Warned, JSON.parse(textOf(last, "after"))).warned_at_days <= mark)
      return;
    const after = { kind: textOf(row, "kind"), not_after: formatTime(notAfter), warned_at_days: mark };
    await record(tx, { orgId, at: system.now(), type: "ca.expiring", actor: ourselves, subject, after });
  });
}
