// Edits by hand of an organization with tests of its policy: the tests run outside of the transaction.

import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { operator, type Actor } from "../../../src/server/audit/record.ts";
import { applyPolicy } from "../../../src/server/policy-files/apply.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import type { CheckedRule } from "../../../src/api/rules.ts";
import { createRule } from "../../../src/server/policy/rules.ts";
import { listRules } from "../../../src/server/policy/stored-rules.ts";
import { memberships } from "../../../src/server/store/tables/organizations.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { untested } from "../../support/untested.ts";

let server: TestServer;
let org: Organization;
let count = 0;

beforeAll(async () => {
  server = await makeTestServer();
  await server.person("ada@example.org");
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(async () => {
  count++;
  org = await server.organization(`acme-${count}`, `10.${count}.0.0/16`);
  await server.join(org, "ada@example.org", "admin");
});

const room = { requireRoom: () => Promise.resolve() };
const policy =
  "groups: {web: {}, db: {}}\ntests:\n  - deny: {from: group:db, to: group:web, protocol: tcp}\n";
const withTests = () => applyPolicy(server.app.services, org, { policy, prune: false }, operator, room);
const rule = (ports: string): CheckedRule => ({
  direction: "inbound",
  protocol: "udp",
  ports,
  peer: { any: true },
  target: { any: true },
});
async function ada(): Promise<{ memberId: number; actor: Actor }> {
  const member = await memberships.find(server.db, { orgId: org.id, email: "ada@example.org" });
  return { memberId: member?.id ?? 0, actor: { kind: "person", id: member?.userId ?? 0, ip: null } };
}
const ports = async () => (await listRules(server.db, org)).map((each) => each.ports);
const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => (error instanceof AppError ? error.code : error),
  );

test("while tests run, the same organization is changed, and the tests run again", async () => {
  await withTests();
  let runs = 0;
  const admitAgain = async () => {
    runs++;
    if (runs > 1) return;
    const other = { ...server.app.services, testing: untested };
    await createRule(other, org, rule("1"), operator);
  };
  await createRule(
    { ...server.app.services, testing: { ...untested, admitAgain } },
    org,
    rule("2"),
    operator,
  );
  expect(runs).toBe(2);
  expect((await ports()).slice(-2)).toEqual(["1", "2"]);
});

test("tests that come while an edit begins are run", async () => {
  // Between the look at the tests and the transaction.
  const breaking = { ...rule("any"), protocol: "tcp" as const };
  const edit = createRule({ ...server.app.services, testing: untested }, org, breaking, operator);
  const added = withTests();
  const [code] = await Promise.all([codeOf(edit), added.catch(() => undefined)]);
  // One of them came first; both together would break a test.
  const isApplied = await added.then(
    () => true,
    () => false,
  );
  expect([code === undefined, isApplied]).not.toEqual([true, true]);
});

test("rights that end while tests run leave everything as it was", async () => {
  await withTests();
  const before = await ports();
  const { memberId, actor } = await ada();
  const refused = () => Promise.reject(new AppError("permission_denied", "removed"));
  const removed = () => server.db.write(async (tx) => void (await memberships.delete(tx, { id: memberId })));
  for (const admitAgain of [refused, removed]) {
    const testing = { ...untested, admitAgain };
    const edit = createRule({ ...server.app.services, testing }, org, rule("3"), actor);
    expect(await codeOf(edit)).toBe("permission_denied");
  }
  expect(await ports()).toEqual(before);
});

test("rights that end while a file is planned leave everything as it was", async () => {
  const { memberId, actor } = await ada();
  const applying = codeOf(
    applyPolicy(server.app.services, org, { policy, prune: false }, actor, {
      // Asked after the plan.
      async requireRoom() {
        await server.db.write((tx) => memberships.delete(tx, { id: memberId }));
      },
    }),
  );
  expect(await applying).toBe("permission_denied");
});
