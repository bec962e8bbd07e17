// What is said after a person was removed.

import { expect, test } from "bun:test";
import { removedWords } from "../../../src/console/pages/removed-words.ts";

test("a person without nodes or tokens can still sign in, and who can end that is said", () => {
  const nothing = { access_left: [], access_revoked: [] };
  expect(removedWords("ada@example.org", nothing, true)).toBe(
    "ada@example.org is removed from this organization. The user can still sign in to this control plane. To end that, disable the user under Users.",
  );
  expect(removedWords("ada@example.org", nothing, false)).toEndWith(
    "Staff of the control plane can disable the user.",
  );
});

test("what was revoked and what still works is counted", () => {
  const report = {
    access_revoked: [{ kind: "node" }],
    access_left: [{ kind: "service_token" }, { kind: "service_token" }, { kind: "webhook" }],
  };
  expect(removedWords("ada@example.org", report, true)).toContain(
    "Revoked: 1 node. Still working, revoke what must end: 2 service tokens, 1 webhook. The user",
  );
});
