// Tests of the policy: as a policy file writes them, in words, and merged from the edits of two users. Pure.

import type { Policy } from "../../api/policy.ts";
import { sideText, trafficWords } from "./rules.ts";

/** A test with its outcome: `passes` is null if the control plane cannot decide it. */
export type PolicyTest = Policy["tests"]["list"][number];
export type Tests = readonly PolicyTest[];

/** Equal for equal tests, whatever their outcome. */
export const keyOf = ({ expect, from, to, protocol, ports }: PolicyTest): string =>
  [expect, from, to, protocol, ports].join();

/** Whether a node, user or provider's group of the test has no name any more: then a policy file cannot hold the test. */
export const isTestAboutGone = ({ from, to }: PolicyTest): boolean =>
  [from, to].some((word) => /^(node|user|idp):#/.test(word));

/** The tests as a policy file lists them. */
export const testsText = (tests: Tests): string =>
  JSON.stringify(
    tests
      .filter((test) => !isTestAboutGone(test))
      .map(({ expect, from, to, protocol, ports }) => ({
        [expect]: { from, to, protocol, port: /^\d+$/.test(ports) ? Number(ports) : ports },
      })),
  );

export const verbOfTest = ({ expect }: PolicyTest): string =>
  expect === "accept" ? "must reach" : "must not reach";

export const wordsOfTest = (test: PolicyTest): string =>
  `${sideText(test.from)} ${verbOfTest(test)} ${sideText(test.to)} on ${trafficWords(test)}`;

/** Those of the tests that are not among the known ones. */
export function notIn(known: Tests, tests: Tests): Tests {
  const keys = new Set(known.map(keyOf));
  return tests.filter((test) => !keys.has(keyOf(test)));
}

export const areSameTests = (one: Tests, other: Tests): boolean =>
  notIn(one, other).length + notIn(other, one).length === 0;

/** `theirs` with the edits that made `mine` of `base`. */
export function mergeTests(base: Tests, mine: Tests, theirs: Tests): Tests {
  if (areSameTests(base, theirs)) return mine;
  const deleted = notIn(mine, base);
  const added = notIn(base, mine);
  return [...notIn(deleted, theirs), ...notIn(theirs, added)];
}
