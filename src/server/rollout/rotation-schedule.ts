// The background loop of CAs: advances rotations, starts one long before a CA expires, rolls back those to CAs that a wrong clock made,
// and records events about CAs that expire.

import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { forAll, inTurn, orgOf } from "../for-all.ts";
import { record, ourselves } from "../audit/record.ts";
import { nodeLifetimeMs } from "../../api/values.ts";
import { hasEarlyCa, rollBackEarly, startRotation } from "./rotation-commands.ts";
import { advanceRotations, resetSilenceTimer, type RotationStore } from "./rotation-phases.ts";
import type { Reader } from "../store/database.ts";
import { LeaseLost } from "../store/leases.ts";
import { queryAll, queryOne } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { events } from "../store/tables/events.ts";
import { organizations } from "../store/tables/organizations.ts";

const hourMs = 3_600_000;
const dayMs = 86_400_000;
/** A CA with less remaining lifetime is replaced, so that every certificate of a node still gets its full lifetime. */
const rotateBeforeMs = 2 * nodeLifetimeMs;
/** So many days before the expiry of a CA, an event is recorded. */
const warningDays = [180, 90, 30, 14, 7, 1];
/** A rotation that was rolled back is not started again for this long. */
const retryAfterMs = 7 * dayMs;

/** Call the result every second. */
export function makeRotations(store: RotationStore): () => Promise<void> {
  let isStarted = false;
  let checkedAt = Number.NEGATIVE_INFINITY;
  return async () => {
    // While the clock is in doubt, no rotation starts or advances: it might remove the former CAs when nodes cannot use the new ones.
    if (store.clock.doubt() !== undefined) return;
    // This server has seen no node yet: for a while, all active nodes count as online.
    if (!isStarted) await resetSilenceTimer(store);
    isStarted = true;
    const steps = [() => rollBackEarlyRotations(store), () => advanceRotations(store)];
    const passed = store.system.now() - checkedAt;
    // Negative: the clock was set back, so that CAs which were made before may not be valid yet.
    if (passed >= hourMs || passed < 0) {
      checkedAt = store.system.now();
      steps.unshift(() =>
        watchAuthorities(store).catch((error: unknown) => {
          // When this replica gets the lease again, it checks at once.
          if (error instanceof LeaseLost) checkedAt = Number.NEGATIVE_INFINITY;
          throw error;
        }),
      );
    }
    await inTurn(...steps);
  };
}

/**
 * Organizations with a CA that is not valid yet ($1: now, ms); with a rotation, and without one. `rotation_back`: 1 from a rollback
 * until the next rotation starts.
 */
const earlyOrganizations = `SELECT o.id FROM organizations o WHERE o.deleted_at IS NULL AND ${hasEarlyCa}`;
const earlyRotations = `${earlyOrganizations} AND o.rotation_phase <> 'none' AND o.rotation_back = 0`;
const earlyWithoutRotation = `${earlyOrganizations} AND o.rotation_phase = 'none'`;

async function rollBackEarlyRotations(store: RotationStore): Promise<void> {
  const { db, system, log } = store;
  const found = await queryAll(db, organizations.pick("id"), earlyRotations, [system.now()]);
  await forAll(found, idOf, async ({ id }) => {
    const isRolledBack = await rollBackEarly(store, id).catch((error: unknown) => {
      // The former CAs have expired, so the rotation can only continue.
      if (error instanceof AppError && error.code === "conflict") return false;
      throw error;
    });
    if (isRolledBack)
      log.warn("A CA rotation is rolled back: its new CAs were made by a clock that was ahead", {
        organization: id,
      });
  });
}

const idOf = ({ id }: { id: number }) => id;

const caPick = authorities.pick("orgId", "kind", "fingerprint", "notAfter");

/** Announces active CAs that expire soon, and starts rotations. */
async function watchAuthorities(store: RotationStore): Promise<void> {
  const { db, system } = store;
  const cas = await queryAll(
    db,
    caPick,
    `SELECT ${caPick.select("a")}
     FROM authorities a JOIN organizations o ON o.id = a.org_id
     WHERE a.state = 'active' AND o.deleted_at IS NULL AND a.not_after < $1 ORDER BY a.id`,
    [system.now() + Math.max(rotateBeforeMs, Math.max(...warningDays) * dayMs)],
  );
  const due = cas.filter(({ notAfter }) => notAfter < system.now() + rotateBeforeMs);
  const found = await queryAll(db, organizations.pick("id"), earlyWithoutRotation, [system.now()]);
  const early = found.map(({ id }) => id);
  const start = async (id: number) => {
    const org = await organizations.find(db, { id, rotationAuto: true, rotationPhase: "none" });
    if (org === undefined) return;
    if (!early.includes(id) && (await wasTriedRecently(db, id, system.now()))) return;
    await startRotation(store, org, ourselves).catch((error: unknown) => {
      // An administrator or another replica has started it.
      if (!(error instanceof AppError && error.code === "conflict")) throw error;
    });
  };
  await inTurn(
    () => forAll(cas, orgOf, (ca) => announce(store, ca)),
    () => forAll(new Set([...due.map(({ orgId }) => orgId), ...early]), (id) => id, start),
  );
}

/** Whether this server made a CA lately, which each rotation does. Offline CAs are made by signers. */
async function wasTriedRecently(reader: Reader, orgId: number, now: number): Promise<boolean> {
  const made = await reader.get(
    "SELECT id FROM authorities WHERE org_id = $1 AND created_at > $2 AND offline = 0 LIMIT 1",
    [orgId, now - retryAfterMs],
  );
  return made !== undefined;
}

const Warned = v.object({ warned_at_days: v.number() });

const lastAnnouncement = `SELECT after FROM events
  WHERE org_id = $1 AND type = 'ca.expiring' AND subject = $2 ORDER BY id DESC LIMIT 1`;

/** Records one event per warning; after a downtime, only the last one that was missed. */
async function announce(
  { db, system }: RotationStore,
  { orgId, kind, fingerprint, notAfter }: ReturnType<typeof caPick.parse>,
): Promise<void> {
  const warning = warningDays.findLast((days) => notAfter < system.now() + days * dayMs);
  if (warning === undefined) return;
  const subject = `authority/${fingerprint}`;
  await db.writeFor({ org: orgId }, async (tx) => {
    const last = await queryOne(tx, events.pick("after"), lastAnnouncement, [orgId, subject]);
    const warned = last?.after ?? null;
    if (warned !== null && v.parse(Warned, JSON.parse(warned)).warned_at_days <= warning) return;
    const after = { kind, not_after: formatTime(notAfter), warned_at_days: warning };
    await record(tx, { orgId, at: system.now(), type: "ca.expiring", actor: ourselves, subject, after });
  });
}
