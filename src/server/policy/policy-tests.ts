// Tests of a policy: who must reach whom, and who must not. Pure.

import * as v from "valibot";
import { between, testable, type Member } from "./firewall.ts";
import { Ports, Protocol, Target, type Rule } from "../../api/rules.ts";
import { accessOf, intersect, isNothing, showAccess, costOf, subtract, type Access } from "./packets.ts";
import { makeReach, type Reach } from "./reach.ts";
import type { NodeClass } from "./node-classes.ts";
import { makeWork, TooMuchWork, type Work } from "./comparison-limit.ts";

/** A test as it is stored: it names nodes by id. */
export const PolicyTest = v.object({
  expect: v.picklist(["accept", "deny"]),
  from: Target,
  to: Target,
  protocol: Protocol,
  ports: Ports,
});
export type PolicyTest = v.InferOutput<typeof PolicyTest>;

/** `test`: its place in the list. If all together take too long, one failure has the number of tests there: no test has this place. */
export type TestFailure = { test: number; sentence: string };

/**
 * Costs in steps of comparison-limit.ts: of a pair of classes, and of a rule. A class is the nodes that all rules treat alike
 * (node-classes.ts).
 */
const stepsOfPair = 10;
const stepsOfRule = 10;

/** A policy, as the tests read it. `members`: without revoked nodes. */
export type Tested = { rules: readonly Rule[]; members: readonly Member[] };

/**
 * Runs the tests. A group without nodes is tested with a node that is in this group alone, so that a rule is checked before
 * its first node joins. A node that is gone reaches nothing.
 */
export function* runTests(
  tests: readonly PolicyTest[],
  { rules, members }: Tested,
  work: Work = makeWork(),
): Generator<unknown, TestFailure[]> {
  const all = [...members, ...standInsFor(tests, members)];
  yield;
  const failures: TestFailure[] = [];
  try {
    const reach = yield* makeReach({ rules, members: all }, undefined, work);
    for (const [at, test] of tests.entries()) {
      const sentence = yield* failureOf(test, reach, { rules, members }, work);
      if (sentence !== undefined) failures.push({ test: at, sentence: `Test ${at + 1}: ${sentence}` });
    }
  } catch (error) {
    if (!(error instanceof TooMuchWork)) throw error;
    failures.push({ test: tests.length, sentence: tooMuch(tests.length, rules.length, all.length) });
  }
  return failures;
}

function tooMuch(tests: number, rules: number, nodes: number): string {
  return `The tests take too long: ${tests} tests, ${rules} rules, ${nodes} nodes. Have fewer tests, or rules that name fewer groups and nodes.`;
}

/** Two stand-ins for each group without nodes that a test names: a node reaches another one of its group. */
function standInsFor(tests: readonly PolicyTest[], members: readonly Member[]): Member[] {
  const named = new Set(tests.flatMap(({ from, to }) => [from, to].flatMap(groupOf)));
  // Ten thousand nodes share some hundred lists.
  const lists = new Set(members.map(({ groups }) => groups));
  const groupsWithNodes = new Set([...lists].flat());
  const groupsWithoutNodes = [...named].filter((group) => !groupsWithNodes.has(group));
  return [...groupsWithoutNodes, ...groupsWithoutNodes].map((group, at) => ({
    // No stored node has a negative id.
    id: -1 - at,
    name: `a node of group ${group}`,
    ip: "",
    ip6: null,
    groups: [group],
  }));
}

const groupOf = (side: Target) => ("group" in side ? [side.group] : []);

/** Why the test fails, as a sentence about the first pair of nodes; undefined: it passes. */
function* failureOf(
  test: PolicyTest,
  reach: Reach,
  { rules, members }: Tested,
  work: Work,
): Generator<unknown, string | undefined> {
  const wanted = accessOf(test.protocol, test.ports);
  const what = showAccess(wanted).join(", ");
  const isAccept = test.expect === "accept";
  const namedNodes = [test.from, test.to].flatMap((side) => ("node" in side ? [side.node] : []));
  const gone = namedNodes.find((node) => !members.some(({ id }) => id === node));
  if (gone !== undefined)
    return isAccept ? `node ${gone} is gone, so nothing reaches it or comes from it.` : undefined;
  const wrongIn = makeWrongIn(wanted, isAccept, work);
  const [senders, receivers] = [matching(reach.classes, test.from), matching(reach.classes, test.to)];
  work.spend(members.length);
  for (const from of senders) {
    work.spend(stepsOfPair * receivers.length);
    for (const [at, to] of receivers.entries()) {
      if (at % 200 === 0) yield;
      // Rules with the peer `self` make it matter whether both nodes have the same owner.
      for (const owners of reach.kinds(from, to)) {
        const wrong = wrongIn(reach.access(from, to, owners));
        if (isNothing(wrong)) continue;
        const pair = firstPair(from, (member) => reach.partners(member, to, owners), test);
        // Only a node and itself, or nodes that the test does not name.
        if (pair === undefined) continue;
        const [sender, receiver] = pair;
        const found = showAccess(wrong).join(", ");
        if (isAccept)
          return `${sender.name} must reach ${receiver.name} on ${what}, but ${found} is refused.`;
        const ids = yield* permitting(rules, pair, wrong, work);
        return `${sender.name} must not reach ${receiver.name} on ${what}, but ${found} is permitted by ${rulesText(ids)}.`;
      }
    }
  }
  return undefined;
}

/**
 * Tells which packets are wrong when `passing` pass: those that are missing, or that must not pass. Equal results of `reach` are
 * one object, so each is compared once.
 */
function makeWrongIn(wanted: Access, isAccept: boolean, work: Work): (passing: Access) => Access {
  const compared = new Map<Access, Access>();
  return (passing) =>
    compared.getOrInsertComputed(passing, () => {
      work.spend(costOf(passing));
      return isAccept ? subtract(wanted, passing) : intersect(wanted, passing);
    });
}

/** The ids of the rules by which the receiver lets some of these packets in. */
function* permitting(
  rules: readonly Rule[],
  [from, to]: [Member, Member],
  wrong: Access,
  work: Work,
): Generator<unknown, number[]> {
  const inbound = rules.filter(({ direction }) => direction === "inbound");
  work.spend(inbound.length * stepsOfRule);
  const covering = new Set(
    inbound
      .filter(({ protocol, ports }) => !isNothing(intersect(wrong, accessOf(protocol, ports))))
      .map(({ id }) => id),
  );
  const parsed = yield* testable(inbound);
  // Inbound rules are those of the receiver.
  const isAbout = between(to, from);
  return parsed.inbound.filter((rule) => covering.has(rule.id) && isAbout(rule)).map(({ id }) => id);
}

const maxNamedRules = 5;

/** "rule 3", "rules 3, 7 and a new rule". A rule that is not saved yet has an id below zero. */
function rulesText(ids: readonly number[]): string {
  const saved = ids.filter((id) => id > 0).sort((a, b) => a - b);
  const unsaved = ids.length - saved.length;
  const more = saved.length - maxNamedRules;
  const numbers = saved.slice(0, maxNamedRules).join(", ") + (more > 0 ? ` and ${more} more` : "");
  const parts: string[] = [];
  if (saved.length > 0) parts.push(`rule${saved.length === 1 ? "" : "s"} ${numbers}`);
  if (unsaved > 0) parts.push(unsaved === 1 ? "a new rule" : `${unsaved} new rules`);
  return parts.join(" and ");
}

/** The classes with a node of this side. */
function matching(classes: readonly NodeClass[], side: Target): NodeClass[] {
  return classes.filter(({ members }) => members.some((member) => isOfSide(member, side)));
}

/** Stand-ins take part only for the group that they stand for: `any` means stored nodes. */
function isOfSide({ id, groups }: Pick<Member, "id" | "groups">, side: Target): boolean {
  if ("node" in side) return id === side.node;
  return "group" in side ? groups.includes(side.group) : id > 0;
}

/** A sender and a receiver that the test names. Undefined: there are no two different nodes. */
function firstPair(
  from: NodeClass,
  partners: (sender: Member) => readonly Member[],
  test: PolicyTest,
): [sender: Member, receiver: Member] | undefined {
  for (const sender of from.members) {
    if (!isOfSide(sender, test.from)) continue;
    const receiver = partners(sender).find(
      ({ id, groups }) => id !== sender.id && isOfSide({ id, groups }, test.to),
    );
    if (receiver !== undefined) return [sender, receiver];
  }
  return undefined;
}
