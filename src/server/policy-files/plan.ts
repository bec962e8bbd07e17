// Plans the application of a policy file: changed rules, groups and nodes, and which nodes gain or lose access to
// which.

import { AppError } from "../../base/errors.ts";
import { inSlices } from "../http/heavy-work.ts";
import { readProviderUsers } from "../policy/group-users.ts";
import { providerWords } from "../policy/provider-words.ts";
import { parsePolicy } from "../policy/read-policy.ts";
import { runTests, type PolicyTest, type TestFailure } from "../policy/policy-tests.ts";
import { resolvePolicy, type Desired } from "../policy/resolve.ts";
import type { Reader } from "../store/database.ts";
import { requireAdmissible } from "./admissible.ts";
import type { PlanRequest } from "../../api/policy.ts";
import { readSnapshot, type Snapshot } from "./read-snapshot.ts";
import { changedNodes, changedRules, differences, type Difference } from "./differences.ts";

/**
 * The differences between a file and the current state. `snapshot.words`: how a file names each group of a provider
 * (provider-words.ts), also those that only this file names.
 */
type Compared = Difference & { snapshot: Snapshot; desired: Desired };
/** A plan with what `apply` needs. */
export type Planned = Compared & {
  tests: readonly PolicyTest[];
  failures: TestFailure[];
};

/** Whether the file may name groups of providers that the policy does not name yet. */
export type Rights = { mayName: boolean };

/**
 * Does not check whether the file could be applied (`planChanges`). Throws validation_failed for a file with faults, and
 * permission_denied if it names a group that it may not name.
 */
export async function compare(
  reader: Reader,
  orgId: number,
  { policy, prune, rule_ids }: PlanRequest,
  rights: Rights,
  now: number,
): Promise<Compared> {
  const parsed = await inSlices(parsePolicy(policy));
  const current = await readSnapshot(reader, orgId, now);
  const { nodes, groups, users, providers } = current;
  const known = {
    nodes: new Map(nodes.map(({ name, id }) => [name, id])),
    groups: new Set(groups.map(({ name }) => name)),
    users,
    providers,
  };
  const desired = await inSlices(resolvePolicy(parsed, known));
  const snapshot = await withDesired(reader, orgId, current, desired, rights);
  return {
    ...(await inSlices(differences(snapshot, desired, { prune, ruleIds: rule_ids }))),
    snapshot,
    desired,
  };
}

/** With the words and users of the groups of providers that the file names for the first time. */
async function withDesired(
  reader: Reader,
  orgId: number,
  current: Snapshot,
  { providerGroups }: Desired,
  { mayName }: Rights,
): Promise<Snapshot> {
  // `people`: the group that stands for the users, such as `idp:3.…` (group-users.ts).
  const added = providerGroups.filter(({ people }) => !current.providerUsers.has(people));
  if (added.length === 0) return current;
  if (!mayName) throw onlyAdministrators(added.map(({ name }) => name));
  const all = [...current.providerGroups, ...added];
  const providerUsers = new Map([
    ...current.providerUsers,
    ...(await readProviderUsers(reader, orgId, added)),
  ]);
  return { ...current, providerUsers, words: providerWords(current.providers, all) };
}

/** A plan names the nodes that gain access, so every member could learn who is in which group of the provider. */
function onlyAdministrators([first = ""]: readonly string[]): AppError {
  return new AppError(
    "permission_denied",
    `The policy does not name the provider's group ${first} yet, and only administrators may see who is in it.`,
    { hint: "Ask an administrator to plan with this file." },
  );
}

/** Throws validation_failed for a file with faults, permission_denied as `compare`, and what applying it would throw. */
export async function planChanges(
  reader: Reader,
  orgId: number,
  request: PlanRequest,
  rights: Rights,
  now: number,
): Promise<Planned> {
  const compared = await compare(reader, orgId, request, rights, now);
  const { changes, snapshot } = compared;
  const tests = changes.tests ?? snapshot.tests;
  const after = {
    rules: changedRules(snapshot.rules, changes.rules),
    members: changedNodes(snapshot.nodes, changes),
  };
  await requireAdmissible(reader, orgId, snapshot, changes, after.members);
  return { ...compared, tests, failures: await inSlices(runTests(tests, after)) };
}
