// A policy that is one long text has no keys: asking for them makes a string of each of its letters.

import { expect, spyOn, test } from "bun:test";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { importPolicy } from "../../../src/server/policy-files/import-policy.ts";
import { parsePolicy } from "../../../src/server/policy/read-policy.ts";

const scalar = "a".repeat(500 * 1024);

test.each([
  ["parsePolicy", () => atOnce(parsePolicy(scalar)), "Expected keys such as groups and rules"],
  [
    "importPolicy, as approvers,",
    () => {
      atOnce(importPolicy(`{"autoApprovers": "${scalar.slice(100)}", "acls": []}`));
      throw new Error("done");
    },
    "done",
  ],
  ["importPolicy", () => atOnce(importPolicy(`"${scalar}"`)), "this is no policy of Tailscale"],
])("%s refuses a bare scalar without listing its letters", (_, read, sentence) => {
  const keys = spyOn(Object, "keys");
  const entries = spyOn(Object, "entries");
  try {
    expect(read).toThrow(sentence);
    const calls = [...keys.mock.calls, ...entries.mock.calls];
    const listed = calls.filter(([value]) => Object.prototype.toString.call(value) === "[object String]");
    expect(listed).toHaveLength(0);
  } finally {
    keys.mockRestore();
    entries.mockRestore();
  }
});
