// Tests of the policy as a policy file writes them. Pure.

import type { Policy } from "../../api/policy.ts";
import { sideText, trafficWords } from "./rules.ts";

/** `passes` null: not decided. */
export type PolicyTest = Policy["tests"]["list"][number];

/** Compares without the outcome. */
export const keyOf = ({ expect, from, to, protocol, ports }: PolicyTest): string =>
  [expect, from, to, protocol, ports].join();

/** The node, user or provider's group has no name any more, so a file cannot hold the test. */
export const isTestAboutGone = ({ from, to }: PolicyTest): boolean =>
  [from, to].some((word) => /^(node|user|idp):#/.test(word));

/** The tests as a policy file lists them. */
export const testsText = (tests: readonly PolicyTest[]): string =>
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

export type Tests = readonly PolicyTest[];

/** The tests of `more` that are not among `tests`. */
export function beyond(tests: Tests, more: Tests): Tests {
  const known = new Set(tests.map(keyOf));
  return more.filter((test) => !known.has(keyOf(test)));
}

export const areSameTests = (one: Tests, other: Tests): boolean =>
  beyond(one, other).length + beyond(other, one).length === 0;

/** The edits from `base` to `mine` on the tests that became `theirs`. */
export function mergeTests(base: Tests, mine: Tests, theirs: Tests): Tests {
  if (areSameTests(base, theirs)) return mine;
  const kept = beyond(beyond(mine, base), theirs);
  return [...kept, ...beyond(theirs, beyond(base, mine))];
}
