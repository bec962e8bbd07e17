// Confirms a policy that was applied with `confirm`, or rolls it back: on request, or when its time is over (policy-upkeep.ts).

import { given } from "../../base/given.ts";
import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import { requireRole } from "../require-role.ts";
import type { Transaction } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { events } from "../store/tables/events.ts";
import { policies, type PolicyRow } from "../store/tables/policies.ts";
import type { Reverted } from "../../api/policy.ts";
import type { Changes } from "./differences.ts";
import { execute } from "./execute.ts";
import { Undo } from "./rollback.ts";
import { audited, maxAudited, type Org, type Services } from "./apply.ts";

/** Keeps an application that waits for confirmation. Throws conflict if none waits. */
export async function confirmPolicy(
  { db, system }: Pick<Services, "db" | "system">,
  org: Org,
  actor: Actor,
): Promise<{ version: number }> {
  return db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    const row = await unconfirmedPolicy(tx, org);
    const now = system.now();
    if (row.unconfirmedUntil !== null && row.unconfirmedUntil <= now) {
      const ended = formatTime(row.unconfirmedUntil);
      throw new AppError("conflict", `The time for confirmation ended at ${ended}: the policy goes back.`);
    }
    await policies.update(tx, { orgId: org.id }, { unconfirmedUntil: null, undo: null });
    const event = { orgId: org.id, at: now, actor, subject: "policy" };
    await record(tx, { ...event, type: "policy.confirmed", after: { version: row.version } });
    return { version: row.version };
  });
}

async function unconfirmedPolicy(tx: Transaction, org: Org): Promise<PolicyRow> {
  const row = await policies.find(tx, { orgId: org.id });
  if (row !== undefined && row.unconfirmedUntil !== null) return row;
  const last = await queryOne(tx, events.pick("type", "at"), newestPolicyEvent, [org.id]);
  if (last?.type !== "policy.reverted") {
    throw new AppError("conflict", "No policy waits for its confirmation.");
  }
  throw new AppError(
    "conflict",
    `No policy waits for its confirmation: the last one was taken back at ${formatTime(last.at)}.`,
    { hint: "The policy before it is in force again. Apply the file again to have its changes." },
  );
}

const newestPolicyEvent = `SELECT type, at FROM events WHERE org_id = $1 AND subject = 'policy' ORDER BY id DESC LIMIT 1`;

/**
 * Rolls back an application that waits for confirmation. Nodes that were revoked meanwhile stay revoked. What has become
 * impossible is left out: a rollback that failed would leave the policy unconfirmed, and nobody could change it. With `due` (ms)
 * only if the time for confirmation ended before then.
 */
export async function revertPolicy(
  services: Services,
  org: Org,
  actor: Actor,
  due?: number,
): Promise<Reverted> {
  return services.db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    const row = await unconfirmedPolicy(tx, org);
    if (due !== undefined && (row.unconfirmedUntil ?? 0) > due) return { version: row.version, left_out: [] };
    const now = services.system.now();
    // `former`: the columns of the file that was in force before.
    const { changes, former } = v.parse(Undo, JSON.parse(row.undo ?? "{}"));
    // `owned` (the groups that nodes have by their owners) follows from the other changes: `execute` applies it by itself.
    const inverseChanges: Changes = { ...changes, owned: [], tests: changes.tests };
    const leftOut: string[] = [];
    const { inverse, issued } = await execute(tx, services, org.id, inverseChanges, actor, { leftOut });
    const version = row.version + 1;
    await policies.update(
      tx,
      { orgId: org.id },
      {
        ...former,
        version,
        unconfirmedUntil: null,
        undo: null,
        // Upkeep runs the tests again.
        checkedState: "",
        ...given({ tests: inverseChanges.tests }),
      },
    );
    const event = { orgId: org.id, at: now, actor, subject: "policy" };
    await record(tx, [
      {
        ...event,
        type: "policy.reverted",
        after: {
          version,
          applied_by: row.appliedBy,
          // `inverse` has the ids of the rules that were created again.
          ...audited(inverseChanges, inverse),
          ...(leftOut.length === 0 ? {} : { left_out: leftOut.slice(0, maxAudited) }),
        },
      },
      ...issued,
    ]);
    return { version, left_out: leftOut };
  });
}
