// The background loop of policies: rolls back a policy that was not confirmed in time, and records an event when a test fails
// because nodes changed. Runs on one replica; all its state is in the database.

import type { Attention } from "../../api/paths/attention.ts";
import { ourselves, record } from "../audit/record.ts";
import { forAll, orgOf } from "../for-all.ts";
import type { ServerOptions } from "../options.ts";
import { stateStamp } from "../policy/state-stamp.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, queryOne, text } from "../store/table.ts";
import { policies } from "../store/tables/policies.ts";
import { revertPolicy } from "./confirm.ts";
import { readSnapshot } from "./read-snapshot.ts";
import type { Executing } from "./execute-nodes.ts";
import { hasDrifted, testsNow } from "./show.ts";

type Services = Executing & Pick<ServerOptions, "db">;

const due = computed({ orgId: integer() });

export async function revertUnconfirmed(services: Services): Promise<void> {
  const now = services.system.now();
  const sql = `SELECT p.org_id FROM policies p JOIN organizations o ON o.id = p.org_id
    WHERE p.unconfirmed_until <= $1 AND o.deleted_at IS NULL`;
  await forAll(await queryAll(services.db, due, sql, [now]), orgOf, ({ orgId }) =>
    revertPolicy(services, { id: orgId }, ourselves, now),
  );
}

const checked = computed({ orgId: integer(), checkedState: text() });

/** Of each organization that has changed: runs the tests, and notes whether the state still equals the file. */
export async function checkPolicies({ db, system }: Pick<Services, "db" | "system">): Promise<void> {
  const sql = `SELECT p.org_id, p.checked_state FROM policies p JOIN organizations o ON o.id = p.org_id
    WHERE (p.text IS NOT NULL OR p.tests <> '[]') AND o.deleted_at IS NULL`;
  await forAll(await queryAll(db, checked, sql), orgOf, async ({ orgId, checkedState }) => {
    if ((await stateStamp(db, orgId)) === checkedState) return;
    const now = system.now();
    const snapshot = await readSnapshot(db, orgId, now);
    const failing = (await testsNow(snapshot)).map(({ sentence }) => sentence);
    const text = snapshot.row?.text ?? null;
    const isDrifted = text !== null && (await hasDrifted(db, orgId, text, now));
    await db.writeFor({ org: orgId }, async (tx) => {
      const row = await policies.find(tx, { orgId });
      // The state has changed since the tests ran: the next turn runs them again.
      if (row === undefined || (await stateStamp(tx, orgId)) !== snapshot.stamp) return;
      const driftedAt = isDrifted ? (row.driftedAt ?? now) : null;
      await policies.update(tx, { orgId }, { failing, driftedAt, checkedState: snapshot.stamp });
      const newlyFailing = failing.filter((sentence) => !row.failing.includes(sentence));
      if (newlyFailing.length === 0) return;
      const event = { orgId, at: now, actor: ourselves, subject: "policy" };
      await record(tx, { ...event, type: "policy.test_failed", after: { failing: newlyFailing } });
    });
  });
}

const stored = policies.pick("tests", "failing");

/**
 * How many of all tests fail, as this loop stored it: every console asks, and running the tests takes long. A rollback that deletes all
 * tests leaves their failures in the row: hence `tests <> '[]'`.
 */
export async function failingTests(db: Reader, orgId: number): Promise<Attention["failing_tests"]> {
  const sql = `SELECT ${stored.select()} FROM policies WHERE org_id = $1 AND failing <> '[]' AND tests <> '[]'`;
  const row = await queryOne(db, stored, sql, [orgId]);
  return row === undefined ? null : { count: row.failing.length, all: row.tests.length };
}
