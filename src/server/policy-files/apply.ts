// Applies a policy file: plans it, then writes the changes, the file and the event in one transaction. Plans again if the
// organization has changed in between.

import { given } from "../../base/given.ts";
import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import {
  nameOfActor,
  requireByHand,
  requireConfirmed,
  storedTests,
  testsFailed,
} from "../policy/edit-policy.ts";
import { requireRole } from "../require-role.ts";
import { stateStamp } from "../policy/state-stamp.ts";
import { adds } from "../retention/budget.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { policies, type PolicyRow } from "../store/tables/policies.ts";
import type { Applied, ApplyRequest, PolicyPatch } from "../../api/policy.ts";
import { isUnchanged, type Changes } from "./differences.ts";
import { execute } from "./execute.ts";
import type { Executing } from "./execute-nodes.ts";
import { Undo } from "./rollback.ts";
import { planChanges, type Planned } from "./plan.ts";
import { showPlan } from "./show-plan.ts";

export type Services = Executing & Pick<ServerOptions, "db">;

export type Org = { id: number };

const maxTries = 5;

/** `requireRoom`: throws organization_full if the organization stores its maximum and grows. */
type Admission = { requireRoom(grows: () => boolean): Promise<void> };

/** Throws validation_failed, policy_test_failed, policy_changed, policy_unconfirmed, policy_by_file or too_many_rules. */
export async function applyPolicy(
  services: Services,
  org: Org,
  request: ApplyRequest,
  actor: Actor,
  { requireRoom }: Admission,
): Promise<Applied> {
  const { db, system } = services;
  for (let tries = 1; ; tries++) {
    requireEditable(await policies.find(db, { orgId: org.id }), request);
    const planned = await planChanges(db, org.id, request, { mayName: true }, system.now());
    const { version, stamp } = planned.snapshot;
    if (request.version !== undefined && request.version !== version)
      throw policyChanged(request.version, version);
    if (planned.failures.length > 0) throw testsFailed(planned.failures, "The policy is not applied");
    const plan = await showPlan(db, org.id, planned);
    if (changesNothing(planned, request)) return { ...plan, unconfirmed_until: null };
    await requireRoom(() => growsBy(planned, request));
    const confirmUntil = request.confirm === undefined ? null : system.now() + request.confirm * 1000;
    const isStored = await db.writeFor({ org: org.id }, async (tx) => {
      // Planning takes long, so it happened outside of this transaction: check again what may have changed.
      await requireRole(tx, org.id, actor);
      requireEditable(await policies.find(tx, { orgId: org.id }), request);
      if ((await stateStamp(tx, org.id)) !== stamp) return false;
      await storeApplied(tx, services, org, { request, planned, confirmUntil }, actor);
      return true;
    });
    const unconfirmed_until = confirmUntil === null ? null : formatTime(confirmUntil);
    if (isStored) return { ...plan, version: version + 1, unconfirmed_until };
    if (tries === maxTries) {
      throw new AppError(
        "busy",
        "The organization changes all the time. Apply the policy again in a moment.",
      );
    }
  }
}

/** Whether a new version would name no change: the stored file is this text, and the state matches it. */
function changesNothing({ changes, snapshot: { row } }: Planned, request: ApplyRequest): boolean {
  if (!isUnchanged(changes) || request.confirm !== undefined) return false;
  return request.keep_file === true || (row?.text === request.policy && row.driftedAt === null);
}

function requireEditable(row: PolicyRow | undefined, { keep_file }: ApplyRequest): void {
  requireConfirmed(row);
  if (keep_file === true) requireByHand(row);
}

/**
 * Whether the organization stores more afterwards. At its maximum, a file that only removes must still work. A file without
 * changes grows it, too: by an event.
 */
function growsBy({ changes, snapshot }: Planned, { policy, keep_file }: ApplyRequest): boolean {
  const { rules, groups, people, aliases, tests } = changes;
  const { row } = snapshot;
  if (isUnchanged(changes)) return true;
  const created = [rules.create, groups.create, people.add, aliases.create];
  if (created.some(({ length }) => length > 0)) return true;
  const described = [...rules.describe, ...groups.describe];
  if (described.some(({ before, description }) => adds(before, description))) return true;
  const size = (value: unknown) => Buffer.byteLength(JSON.stringify(value));
  const routes = (which: "add" | "remove") => changes.nodes.flatMap(({ subnets }) => subnets[which]);
  if (size(routes("add")) > size(routes("remove"))) return true;
  const fileGrowth = keep_file === true ? 0 : size(policy) - size(row?.text ?? "");
  const testsGrowth = tests === undefined ? 0 : size(tests) - size(storedTests(row));
  return (
    fileGrowth + testsGrowth > size([...rules.delete, ...groups.delete, ...people.remove, ...aliases.delete])
  );
}

function policyChanged(planned: number, current: number): AppError {
  return new AppError(
    "policy_changed",
    `The policy was planned on version ${planned} and is at version ${current} now. Nothing was applied.`,
    { hint: "Plan again, look at the difference, and apply that." },
  );
}

/** `confirmUntil`: ms; null: the application needs no confirmation. */
type Application = { request: ApplyRequest; planned: Planned; confirmUntil: number | null };

async function storeApplied(
  tx: Transaction,
  services: Executing,
  org: Org,
  { request, planned, confirmUntil }: Application,
  actor: Actor,
): Promise<void> {
  const now = services.system.now();
  const { changes, snapshot } = planned;
  const { row, version } = snapshot;
  const { inverse, issued } = await execute(tx, services, org.id, changes, actor);
  // By `undo`, a rollback (confirm.ts) restores both the state (`inverse`) and these columns.
  const former = {
    text: row?.text ?? null,
    appliedAt: row?.appliedAt ?? null,
    appliedBy: row?.appliedBy ?? null,
    driftedAt: row?.driftedAt ?? null,
  };
  const tests = changes.tests === undefined ? {} : { tests: storedTests(row) };
  const undo = () => JSON.stringify(v.parse(Undo, { changes: { ...inverse, ...tests }, former }));
  const appliedBy = await nameOfActor(tx, actor);
  await savePolicy(tx, org, now, {
    version: version + 1,
    // With `keep_file` the stored file stays, and no longer says what the organization has.
    ...(request.keep_file === true
      ? { driftedAt: former.text === null ? null : (former.driftedAt ?? now) }
      : { text: request.policy, appliedAt: now, appliedBy, driftedAt: null }),
    failing: [],
    ...given({ tests: changes.tests }),
    unconfirmedUntil: confirmUntil,
    undo: confirmUntil === null ? null : undo(),
  });
  const after = {
    version: version + 1,
    ...audited(changes, inverse),
    ...(confirmUntil === null ? {} : { confirm_until: formatTime(confirmUntil) }),
  };
  const event = { orgId: org.id, at: now, actor, subject: "policy" };
  await record(tx, [{ ...event, type: "policy.applied", after }, ...issued]);
}

async function savePolicy(
  tx: Transaction,
  { id }: Org,
  now: number,
  values: Partial<Omit<PolicyRow, "orgId">>,
): Promise<void> {
  await policies.upsert(tx, { orgId: id, createdAt: now }, "ON CONFLICT (org_id) DO NOTHING");
  await policies.update(tx, { orgId: id }, values);
}

/** Maximum entries of one list of the difference in an event. */
export const maxAudited = 500;

/**
 * The difference, for the audit log. Webhooks send it, so long lists are cut, except for `rule_ids`: by it the history of a rule is
 * found. `inverse` has the created rules with their ids.
 */
export function audited(
  { rules, groups, nodes, people, aliases, tests }: Changes,
  inverse: Changes,
): Record<string, unknown> {
  const created = inverse.rules.delete;
  const cut = <T>(list: readonly T[]) => list.slice(0, maxAudited);
  return {
    counts: {
      rules_created: rules.create.length,
      rules_deleted: rules.delete.length,
      rules_described: rules.describe.length,
      nodes: nodes.length,
    },
    rule_ids: [...new Set([...created, ...rules.delete, ...rules.describe].map(({ id }) => id))],
    rules_created: cut(created),
    rules_deleted: cut(rules.delete),
    rules_described: cut(rules.describe),
    groups_created: cut(groups.create.map(({ name }) => name)),
    groups_deleted: cut(groups.delete.map(({ name }) => name)),
    nodes: cut(nodes),
    members_added: cut(people.add),
    members_removed: cut(people.remove),
    aliases_created: cut(aliases.create),
    aliases_deleted: cut(aliases.delete),
    ...(tests === undefined ? {} : { tests: tests.length }),
  };
}

/** Stores whether the file alone changes the policy. */
export async function patchPolicy(
  { db, system }: Pick<Services, "db" | "system">,
  org: Org,
  { by_file }: PolicyPatch,
  actor: Actor,
): Promise<void> {
  await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    const row = await policies.find(tx, { orgId: org.id });
    const before = row?.byFile ?? false;
    if (by_file === undefined || by_file === before) return;
    const now = system.now();
    await savePolicy(tx, org, now, { byFile: by_file });
    const event = { orgId: org.id, at: now, actor, subject: "policy", type: "policy.updated" } as const;
    await record(tx, { ...event, before: { by_file: before }, after: { by_file } });
  });
}
