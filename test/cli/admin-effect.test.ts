// What --dry-run says of a request for which its command has no sentence.

import { expect, test } from "bun:test";
import { effectOf } from "../../src/cli/admin/effect.ts";

const inAcme = "/api/org/acme/";

test.each([
  [
    { method: "PATCH", path: `${inAcme}nodes/7/`, body: { groups: ["web", "db"], is_relay: true } },
    "change node 7 of acme: set groups web, db, is relay true",
  ],
  [{ method: "PATCH", path: inAcme, body: { name: "Acme" } }, "change organization acme: set name Acme"],
  [
    { method: "POST", path: `${inAcme}registration_tokens/`, body: { uses: 2 } },
    "create registration token of acme: uses 2",
  ],
  [{ method: "POST", path: `${inAcme}domains/3/check/` }, "carry out domain 3 check of acme"],
  [
    { method: "POST", path: `${inAcme}webhooks/1/deliveries/16/send_again/` },
    "carry out webhook 1 delivery 16 send again of acme",
  ],
  [{ method: "POST", path: "/api/org/", body: { slug: "acme" } }, "create organization: slug acme"],
  [{ method: "DELETE", path: "/api/user/sessions/7/" }, "delete user session 7"],
] as const)("%j", (change, sentence) => {
  expect(effectOf(change)).toBe(sentence);
});

test("shows no secret and no long text", () => {
  const body = { password: "hunter2", client_secret: "hunter2", otp: "123456", text: "x".repeat(900) };
  const sentence = effectOf({ method: "POST", path: "/api/users/", body });
  for (const secret of ["hunter2", "123456"]) expect(sentence).not.toContain(secret);
  expect(sentence.length).toBeLessThan(500);
});
