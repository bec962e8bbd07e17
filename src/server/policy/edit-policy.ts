// Every manual edit of a policy goes through editReach if it changes which nodes reach each other (rules, groups of nodes),
// else through editWithoutTests. Both refuse edits of a user who has lost the role meanwhile, all edits while an applied file waits
// for its confirmation, and all where the file alone changes the policy. editReach also refuses an edit that makes a test of the
// policy fail.

import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { brand } from "../../brand.ts";
import type { Actor } from "../audit/record.ts";
import { inSlices } from "../http/heavy-work.ts";
import { requireRole } from "../require-role.ts";
import { requireLockOf, type Database, type Reader, type Transaction } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { policies, type PolicyRow } from "../store/tables/policies.ts";
import { serviceTokens } from "../store/tables/sessions.ts";
import { users } from "../store/tables/users.ts";
import { stateStamp } from "./state-stamp.ts";
import { readPolicyNodes } from "./policy-nodes.ts";
import { PolicyTest, runTests, type Tested, type TestFailure } from "./policy-tests.ts";
import { readRules } from "./stored-rules.ts";

/** The tests of a stored policy. */
export const storedTests = (row: Pick<PolicyRow, "tests"> | undefined): PolicyTest[] =>
  v.parse(v.array(PolicyTest), row?.tests ?? []);

/**
 * Runs an edit of names, descriptions, routes or relays in its transaction. It runs no test of the policy, so its callers
 * are listed in test/architecture.test.ts. Throws permission_denied, policy_unconfirmed or policy_by_file.
 */
export async function editWithoutTests<T>(
  tx: Transaction,
  editor: Editor,
  edit: () => Promise<T>,
): Promise<T> {
  await admitEdit(tx, editor);
  return edit();
}

/** Who edits which policy when; `now` in ms. */
export type Editor = { orgId: number; now: number; actor: Actor };

/** Raises the version of the policy. Throws permission_denied, policy_unconfirmed or policy_by_file. */
async function admitEdit(tx: Transaction, { orgId, now, actor }: Editor): Promise<Guards | undefined> {
  requireLockOf(tx, orgId);
  // The edit may have waited for the lock.
  await requireRole(tx, orgId, actor);
  const row = await raisePolicyVersion(tx, orgId, now);
  requireConfirmed(row);
  requireByHand(row);
  return row;
}

/** How tests of the policy are run, which may take seconds. */
export type Testing = {
  /** Waits until the work of other callers is done. */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
  /** Called after the tests: throws if the caller's rights have ended meanwhile. */
  admitAgain(): Promise<void>;
};

export type Editing = Editor & { db: Database; testing: Testing };

const maxTries = 5;

/**
 * Runs `edit` in a transaction. If the policy has tests, runs it first in one that is rolled back, for the state that the tests
 * read; `edit` must be repeatable. Throws permission_denied, policy_unconfirmed, policy_by_file, busy, or policy_test_failed if
 * a test fails that passed before: tests that fail already, because a node was revoked, do not stop other edits.
 */
export async function editReach<T>(editing: Editing, edit: (tx: Transaction) => Promise<T>): Promise<T> {
  const { testing } = editing;
  const untested = await writeWithoutTests(editing, edit);
  if (untested !== undefined) return untested.result;
  return testing.inTurn(async () => {
    for (let tries = 1; ; tries++) {
      const tried = await tryOut(editing, edit);
      await requirePassing(tried);
      await testing.admitAgain();

      const written = await writeIfUnchanged(editing, tried.stamp, edit);
      if (written !== undefined) return written.result;
      if (tries === maxTries)
        throw new AppError("busy", "The organization changes all the time. Try again in a moment.");
    }
  });
}

/** Undefined if the organization has tests: they must run first. */
function writeWithoutTests<T>(
  editing: Editing,
  edit: (tx: Transaction) => Promise<T>,
): Promise<{ result: T } | undefined> {
  return writeOrRollBack<{ result: T }, undefined>(editing, async (tx, rollBack) => {
    if (storedTests(await admitEdit(tx, editing)).length > 0) return rollBack(undefined);
    return { result: await edit(tx) };
  });
}

/** Runs `work` in a transaction. `rollBack` ends it, changes nothing, and makes its argument the result. */
async function writeOrRollBack<T, U>(
  { db, orgId }: Editing,
  work: (tx: Transaction, rollBack: (result: U) => never) => Promise<T>,
): Promise<T | U> {
  let rolledBack: { by: Error; result: U } | undefined;
  const rollBack = (result: U): never => {
    rolledBack = { by: new Error("rolled back"), result };
    throw rolledBack.by;
  };
  try {
    return await db.writeFor({ org: orgId }, (tx) => work(tx, rollBack));
  } catch (error) {
    if (rolledBack !== undefined && error === rolledBack.by) return rolledBack.result;
    throw error;
  }
}

/** Undefined if the organization has changed since `stamp`. */
function writeIfUnchanged<T>(
  editing: Editing,
  stamp: string,
  edit: (tx: Transaction) => Promise<T>,
): Promise<{ result: T } | undefined> {
  const { db, orgId } = editing;
  return db.writeFor({ org: orgId }, async (tx) => {
    if ((await stateStamp(tx, orgId)) !== stamp) return undefined;
    await admitEdit(tx, editing);
    return { result: await edit(tx) };
  });
}

/** The states before and after an edit that was rolled back. `stamp`: of the state before. */
type Tried = { stamp: string; tests: PolicyTest[]; before: Tested; after: Tested };

function tryOut(editing: Editing, edit: (tx: Transaction) => Promise<unknown>): Promise<Tried> {
  const { orgId } = editing;
  return writeOrRollBack<never, Tried>(editing, async (tx, rollBack) => {
    const stamp = await stateStamp(tx, orgId);
    const row = await admitEdit(tx, editing);
    const before = await stateIn(tx, orgId);
    await edit(tx);
    return rollBack({ stamp, tests: storedTests(row), before, after: await stateIn(tx, orgId) });
  });
}

async function stateIn(tx: Reader, orgId: number): Promise<Tested> {
  return { rules: await readRules(tx, orgId), members: await readPolicyNodes(tx, orgId) };
}

/** Throws policy_test_failed if a test fails that passed before. */
async function requirePassing({ tests, before, after }: Tried): Promise<void> {
  const failures = await inSlices(runTests(tests, after));
  if (failures.length === 0) return;
  const failedBefore = new Set((await inSlices(runTests(tests, before))).map(({ test }) => test));
  const broken = failures.filter(({ test }) => !failedBefore.has(test));
  if (broken.length > 0) throw testsFailed(broken, "The change is refused");
}

/** The columns that may refuse an edit. */
const guards = policies.pick("byFile", "tests", "unconfirmedUntil", "appliedBy");
type Guards = ReturnType<typeof guards.parse>;

/** $2: now, ms. Drift begins with the first edit after an application. */
const raise = `INSERT INTO policies (org_id, version, created_at) VALUES ($1, 1, $2)
  ON CONFLICT (org_id) DO UPDATE SET version = policies.version + 1,
    drifted_at = CASE WHEN policies.text IS NULL THEN NULL ELSE coalesce(policies.drifted_at, excluded.created_at) END
  RETURNING ${guards.select()}`;

/**
 * Raises the version before the edit is admitted: a refusal rolls the transaction back, and each further statement would cost
 * every edit. `now`: ms.
 */
function raisePolicyVersion(tx: Transaction, orgId: number, now: number): Promise<Guards | undefined> {
  return queryOne(tx, guards, raise, [orgId, now]);
}

/** Throws policy_unconfirmed. */
export function requireConfirmed(row: Pick<PolicyRow, "unconfirmedUntil" | "appliedBy"> | undefined): void {
  if (row === undefined || row.unconfirmedUntil === null) return;
  const until = formatTime(row.unconfirmedUntil);
  throw new AppError(
    "policy_unconfirmed",
    `A policy that ${row.appliedBy ?? "the operator"} has applied goes back at ${until} unless it is confirmed. Until then, ` +
      "the policy cannot be changed.",
    {
      hint: `Confirm it with \`${brand.executable} admin policy confirm ORG\`, or take it back with \`${brand.executable} admin policy revert ORG\`.`,
    },
  );
}

/** Throws policy_by_file. */
export function requireByHand(row: Pick<PolicyRow, "byFile"> | undefined): void {
  if (row?.byFile !== true) return;
  throw new AppError("policy_by_file", "The policy of this organization is changed by its file only.", {
    hint: `Edit the file, then run \`${brand.executable} admin policy apply ORG FILE\`. \`${brand.executable} admin policy get ORG\` shows it.`,
  });
}

/** `refusal`: `The change is refused`, for example. */
export function testsFailed(failures: readonly TestFailure[], refusal: string): AppError {
  const sentences = failures.slice(0, 20).map(({ sentence }) => sentence);
  const [first = ""] = sentences;
  const more = failures.length > 1 ? ` (and ${failures.length - 1} more)` : "";
  return new AppError("policy_test_failed", `${refusal}: a test of the policy fails. ${first}${more}`, {
    errors: { tests: sentences },
    hint: "Correct the change, or change the tests of the policy first.",
  });
}

/** An e-mail address, the name of a service token, or `the operator`. */
export async function nameOfActor(reader: Reader, { kind, id }: Actor): Promise<string> {
  if (kind === "person" && id !== null) return (await users.find(reader, { id }))?.email ?? `user ${id}`;
  if (kind === "service" && id !== null) {
    const token = await serviceTokens.find(reader, { id });
    return token === undefined ? `service token ${id}` : `the service token ${token.name}`;
  }
  return kind === "operator" ? "the operator" : "the server";
}
