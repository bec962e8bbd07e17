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

const notShown = "(not shown)";
const token = "Ab1".repeat(15).slice(0, 43);

test.each([
  [
    "a field",
    {
      password: "hunter2",
      client_secret: "hunter2",
      otp: "hunter2",
      recovery_codes: ["hunter2"],
      code_verifier: "hunter2",
    },
  ],
  ["an object in a list", { items: [{ name: "a", new_password: "hunter2" }, { token: "hunter2" }] }],
  ["an object in an object", { provider: { more: { client_secret: "hunter2" } } }],
  ["a list below a secret field", { secret: ["hunter2", "hunter2"] }],
  ["the URL of a webhook", { url: "https://hooks.example.org/services/hunter2?key=hunter2" }],
])("shows no secret of %s", (_, body) => {
  const sentence = effectOf({ method: "POST", path: `${inAcme}webhooks/`, body });
  expect(sentence).not.toContain("hunter2");
  expect(sentence).toContain(notShown);
});

test("shows no token in a text, also where the text is cut", () => {
  for (const text of [token, `${"x ".repeat(90)}${token}`])
    expect(effectOf({ method: "PATCH", path: inAcme, body: { note: text } })).not.toContain(
      token.slice(0, 9),
    );
});

test("shows switches, whatever their name", () => {
  expect(
    effectOf({ method: "PATCH", path: inAcme, body: { revoke_tokens: true, device_codes: false } }),
  ).toBe("change organization acme: set revoke tokens true, device codes false");
});

test.each([
  ["text", "word ".repeat(180)],
  ["list", Array.from({ length: 90 }, (_, at) => `group-${at}`)],
  ["list of objects", Array.from({ length: 90 }, (_, at) => ({ group: `g${at}` }))],
])("cuts a long %s, on one line, and says so", (_, value) => {
  const sentence = effectOf({ method: "PATCH", path: inAcme, body: { value } });
  expect(sentence.length).toBeLessThan(260);
  expect(sentence).toEndWith("…");
});

test("keeps a text of several lines on one line", () => {
  expect(effectOf({ method: "PATCH", path: inAcme, body: { note: "one\ntwo" } })).not.toContain("\n");
});
