// The result of commands that end access.

import { expect, test } from "bun:test";
import { resultOfEnding } from "../../src/cli/admin/users/left-access.ts";

test("--json has what a newer control plane adds to the report", () => {
  const results: object[] = [];
  const output = { json: true, result: (object: object) => void results.push(object), say() {} };
  const none = { access_left: [], access_left_total: 0, access_revoked: [], access_revoked_total: 0 };
  const report = { ...none, access_moved: [{ id: 7 }] };
  resultOfEnding(output, { subject: "token 7", fields: { id: 7 }, done: "Revoked token 7" }, report);
  expect(results).toEqual([{ id: 7, ...report }]);
});
