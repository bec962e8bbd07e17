// Shows the policy of an organization: the stored file while the state equals it, else the state as a file. Runs its tests.

import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { inSlices } from "../http/heavy-work.ts";
import { runTests, type TestFailure } from "../policy/policy-tests.ts";
import type { Reader } from "../store/database.ts";
import type { Policy, TestRequest, TestResult } from "../../api/policy.ts";
import { readSnapshot, type Snapshot } from "./read-snapshot.ts";
import { isUnchanged } from "./differences.ts";
import { compare, planChanges, type Rights } from "./plan.ts";
import { renderPolicy, makeSideWriter } from "./render.ts";

export async function showPolicy(reader: Reader, orgId: number, now: number): Promise<Policy> {
  const snapshot = await readSnapshot(reader, orgId, now);
  const { row, version, tests } = snapshot;
  const time = (ms: number | null | undefined) => (ms === null || ms === undefined ? null : formatTime(ms));
  const file = row?.text ?? null;
  const isFile = file !== null && !(await hasDrifted(reader, orgId, file, now));
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

/** If the tests took too long, which a failure says (TestFailure), tests without a failure are undecided: `passes` is null. */
function listTests({ tests, nodes, users, words }: Snapshot, failures: readonly TestFailure[]) {
  const side = makeSideWriter(nodes, users, words);
  const failed = new Set(failures.map(({ test }) => test));
  // The place after the last test stands for all together.
  const tookTooLong = failed.has(tests.length);
  const withoutFailure = tookTooLong ? null : true;
  return tests.map(({ expect, from, to, protocol, ports }, index) => {
    const passes = failed.has(index) ? false : withoutFailure;
    return { expect, from: side(from), to: side(to), protocol, ports, passes };
  });
}

/** Whether applying the file again with `prune` would change something, or is refused, since a node that it names is deleted. */
export async function hasDrifted(
  reader: Reader,
  orgId: number,
  policy: string,
  now: number,
): Promise<boolean> {
  try {
    const { changes } = await compare(reader, orgId, { policy, prune: true }, { mayName: true }, now);
    return !isUnchanged(changes);
  } catch (error) {
    if (error instanceof AppError && error.code === "validation_failed") return true;
    throw error;
  }
}

export function testsNow({ tests, rules, nodes }: Snapshot): Promise<TestFailure[]> {
  return inSlices(runTests(tests, { rules, members: nodes }));
}

/** Without a file: the stored tests on the current state. */
export async function testPolicy(
  reader: Reader,
  orgId: number,
  { policy, prune }: TestRequest,
  rights: Rights,
  now: number,
): Promise<TestResult> {
  if (policy === undefined) {
    const snapshot = await readSnapshot(reader, orgId, now);
    return {
      count: snapshot.tests.length,
      failing: (await testsNow(snapshot)).map(({ sentence }) => sentence),
    };
  }
  const { tests, failures } = await planChanges(reader, orgId, { policy, prune }, rights, now);
  return { count: tests.length, failing: failures.map(({ sentence }) => sentence) };
}
