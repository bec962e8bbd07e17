// Tests of the policy as a policy file writes them. Pure.

import type { Policy } from "../../api/policy.ts";
import { sideText, trafficWords } from "./rules.ts";

/** With its outcome. `passes` null: not decided. */
export type PolicyTest = Policy["tests"]["list"][number];
export type Tests = readonly PolicyTest[];

/** Compares without the outcome. */
export const keyOf = ({ expect, from, to, protocol, ports }: PolicyTest): string =>
  [expect, from, to, protocol, ports].join();

/** The node, user or provider's group has no name any more, so a file cannot hold the test. */
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
