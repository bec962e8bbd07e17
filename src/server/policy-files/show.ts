// The policy of an organization as users see it: the file while it equals the state, else the state as a file.

import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { inSlices } from "../http/heavy-work.ts";
import { runTests, type TestFailure } from "../policy/policy-tests.ts";
import type { Reader } from "../store/database.ts";
import type { Policy, TestRequest, TestResult } from "../../api/policy.ts";
import { readSnapshot, type Snapshot } from "./current.ts";
import { isUnchanged } from "./differences.ts";
import { compare, planChanges } from "./plan.ts";
import { renderPolicy, sideNames } from "./render.ts";

export async function showPolicy(reader: Reader, orgId: number, now: number): Promise<Policy> {
  const snapshot = await readSnapshot(reader, orgId);
  const { row, version, tests } = snapshot;
  const time = (ms: number | null | undefined) => (ms === null || ms === undefined ? null : formatTime(ms));
  const file = row?.text ?? null;
  const isFile = file !== null && !(await hasDrifted(reader, orgId, file));
  const failures = await testsNow(snapshot);
  return {
    version,
    source: isFile ? "file" : "state",
    policy: isFile ? file : await renderPolicy(reader, orgId, snapshot),
    by_file: row?.byFile ?? false,
    applied_at: time(row?.appliedAt),
    applied_by: row?.appliedBy ?? null,
    // Upkeep may not have noticed the drift yet: then it begins now.
    drifted_since: file === null || isFile ? null : time(row?.driftedAt ?? now),
    unconfirmed:
      row?.unconfirmedUntil === null || row?.unconfirmedUntil === undefined
        ? null
        : { by: row.appliedBy ?? "", until: formatTime(row.unconfirmedUntil) },
    tests: {
      count: tests.length,
      failing: failures.map(({ sentence }) => sentence),
      list: listTests(snapshot, failures),
    },
  };
}

/**
 * A failure that belongs to no test means that the tests took too long: then those without a failure are undecided.
 */
function listTests({ tests, nodes, users }: Snapshot, failures: readonly TestFailure[]) {
  const side = sideNames(nodes, users);
  const failed = new Set(failures.map(({ test }) => test));
  const ofOthers = failed.has(tests.length) ? null : true;
  return tests.map(({ expect, from, to, protocol, ports }, at) => {
    const passes = failed.has(at) ? false : ofOthers;
    return { expect, from: side(from), to: side(to), protocol, ports, passes };
  });
}

/** Whether applying the file again with `prune` would change something. A node that it names may be gone. */
export async function hasDrifted(reader: Reader, orgId: number, policy: string): Promise<boolean> {
  try {
    return !isUnchanged((await compare(reader, orgId, { policy, prune: true }, true)).changes);
  } catch (error) {
    if (error instanceof AppError && error.code === "validation_failed") return true;
    throw error;
  }
}

export function testsNow({ tests, rules, nodes }: Snapshot): Promise<TestFailure[]> {
  return inSlices(runTests(tests, { rules, members: nodes }));
}

/** Without a file: the tests that are in force, on the present state. */
export async function testPolicy(
  reader: Reader,
  orgId: number,
  { policy, prune }: TestRequest,
  mayName: boolean,
): Promise<TestResult> {
  if (policy === undefined) {
    const snapshot = await readSnapshot(reader, orgId);
    return {
      count: snapshot.tests.length,
      failing: (await testsNow(snapshot)).map(({ sentence }) => sentence),
    };
  }
  const { tests, failures } = await planChanges(reader, orgId, { policy, prune }, mayName);
  return { count: tests.length, failing: failures.map(({ sentence }) => sentence) };
}
