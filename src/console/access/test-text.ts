// Tests of the policy as a policy file writes them. Pure.

import type { Rule } from "./rules.ts";

/** As GET policy/ lists it. `passes` null: not decided. */
export type PolicyTest = Pick<Rule, "protocol" | "ports"> & {
  expect: "accept" | "deny";
  from: string;
  to: string;
  passes: boolean | null;
};

/** No word names the machine, user or group of a provider any more, so a file cannot hold it. */
export const isTestAboutGone = ({ from, to }: PolicyTest): boolean =>
  [from, to].some((word) => /^(node|user|idp):#/.test(word));

/** A policy file that replaces the tests and leaves everything else as it is. */
export function testsText(tests: readonly PolicyTest[]): string {
  return JSON.stringify({
    tests: tests
      .filter((test) => !isTestAboutGone(test))
      .map(({ expect, from, to, protocol, ports }) => ({
        [expect]: { from, to, protocol, port: /^\d+$/.test(ports) ? Number(ports) : ports },
      })),
  });
}
