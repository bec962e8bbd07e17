// Proposed policies, by the API: what they narrow, what they leave, and that a plan shows what is lost.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { Flows, Proposal } from "../../../src/api/flows.ts";
import { Plan } from "../../../src/api/policy.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { checkinOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
const { call, configVersion, signInAgain } = useNumbered((made) => ({ server, org } = made));

const twoHoursMs = 7_200_000;
let ids = 0;
async function report(node: RegisteredNode, rows: object[], more: object = {}): Promise<void> {
  const flows = { id: `boot-${++ids}`, from: 60, to: 0, rest: 0, unseen_s: 0, rows, ...more };
  expect(checkinOf(await node.checkin({ flows })).flows).toBe("taken");
}
const incoming = (peer: string, port: number, more: object = {}) => ({
  peer,
  incoming: true,
  protocol: "tcp",
  port,
  flows: 4,
  answered: 4,
  ...more,
});
/** When the rules of the scene were there. Two hours of flows follow. */
let begin = 0;
const asked = (ms = begin) => ({ since: new Date(ms).toISOString() });
const propose = async (body: object = asked()) =>
  v.parse(Proposal, (await call("POST", "policy/propose/", body)).json);
const wholeRule = {
  direction: "inbound",
  protocol: "any",
  ports: "any",
  peer: { any: true },
  target: { any: true },
};
const Made = v.looseObject({ id: v.number() });
const rule = async (fields: object) =>
  v.parse(Made, (await call("POST", "firewall_rules/", { ...wholeRule, ...fields })).json).id;
const of = ({ changes }: Proposal, id: number) => changes.find((each) => each.id === id);

/** Two web servers and a database, whose flows are known. */
async function scene() {
  expect((await call("PATCH", "", { flows: true })).status).toBe(200);
  const [web, db, other] = [
    await registerNode(server, org, "web"),
    await registerNode(server, org, "db"),
    await registerNode(server, org, "other"),
  ];
  for (const [node, group] of [
    [web, "web"],
    [db, "db"],
  ] as const)
    expect((await call("PATCH", `nodes/${node.id}/`, { groups: [group] })).status).toBe(200);
  const [wide, unused, kept] = [
    await rule({ protocol: "any", peer: { any: true }, target: { group: "db" } }),
    await rule({ protocol: "tcp", ports: "9100", peer: { any: true }, target: { group: "db" } }),
    await rule({
      protocol: "tcp",
      ports: "9200",
      peer: { any: true },
      target: { group: "db" },
      description: "keep: the audit of March",
    }),
  ];
  begin = server.clock.ms;
  server.clock.ms += twoHoursMs;
  await signInAgain();
  await report(db, [incoming(web.ip, 5432), incoming(web.ip, 22, { answered: 0 })], { from: 7200 });
  return { web, db, other, wide, unused, kept };
}

test("rules become what was used, unused ones are named with the rule, and a plan shows what is lost", async () => {
  const { wide, unused, kept } = await scene();
  const before = await configVersion();
  const made = await propose();
  expect(of(made, wide)).toMatchObject({
    what: "narrowed",
    flows: 4,
    nodes: 1,
    into: [{ direction: "inbound", protocol: "tcp", ports: "5432", peer: "group:web", target: "group:db" }],
  });
  expect(of(made, unused)).toMatchObject({ what: "removed", flows: 0, last_at: null, into: [] });
  expect(of(made, kept)).toMatchObject({ what: "kept", reason: "marked keep: the audit of March" });
  expect(made.policy).toContain(`# removed rule ${unused}: nothing used it (not used)`);
  expect(made.policy).toContain("(4 flows of 1 node, last");
  expect(await configVersion()).toBe(before);
  const planned = v.parse(
    Plan,
    (await call("POST", "policy/plan/", { policy: made.policy, prune: true })).json,
  );
  expect(planned.tests.failing).toEqual([]);
  expect(planned.access.pairs.every(({ gains }) => gains.length === 0)).toBe(true);
  expect(planned.access.pairs.length).toBeGreaterThan(0);
  expect(planned.rules.create).toMatchObject([
    { protocol: "tcp", ports: "5432", peer: "group:web", target: "group:db" },
  ]);
  const { rules } = v.parse(Flows, (await call("GET", "flows/")).json);
  expect(rules.find(({ id }) => id === wide)).toMatchObject({
    flows: 4,
    nodes: 1,
    last_at: expect.any(String),
  });
  expect(rules.find(({ id }) => id === unused)).toEqual({ id: unused, last_at: null, flows: 0, nodes: 0 });
});

test("a rule stays where a node of its target side did not report completely", async () => {
  const { wide, unused, db } = await scene();
  const late = await registerNode(server, org, "late");
  await call("PATCH", `nodes/${late.id}/`, { groups: ["db"] });
  expect(of(await propose(), wide)).toMatchObject({ what: "kept", reason: "late reported no flows" });
  await report(late, []);
  expect(of(await propose(), wide)).toMatchObject({ what: "narrowed" });
  await report(late, [], { unseen_s: 90_000 });
  expect(of(await propose(), unused)).toMatchObject({
    what: "kept",
    reason: "late did not see its flows for 1500 minutes",
  });
  // Before it was asked for flows, nothing is known.
  await call("PATCH", `nodes/${late.id}/`, { groups: [] });
  await server.db.write((tx) =>
    tx.run("UPDATE nodes SET registered_at = registered_at - $1 WHERE id = $2", [twoHoursMs, db.id]),
  );
  expect(of(await propose(asked(begin - twoHoursMs)), wide)).toMatchObject({
    what: "kept",
    reason: expect.stringContaining("db reports flows only since"),
  });
});

test("a rule that an applied policy made again is as old as that, whatever edits came before", async () => {
  const { unused, db } = await scene();
  const since = server.clock.ms;
  server.clock.ms += 60_000;
  expect((await call("PATCH", `firewall_rules/${unused}/`, { ports: "9101" })).status).toBe(200);
  server.clock.ms += twoHoursMs;
  await signInAgain();
  const madeAgain = [server.clock.ms, unused];
  await server.db.write((tx) => tx.run("UPDATE firewall_rules SET created_at = $1 WHERE id = $2", madeAgain));
  server.clock.ms += 60_000;
  await report(db, [], { from: 7320 });
  expect(of(await propose(asked(since)), unused)).toMatchObject({
    what: "kept",
    reason: expect.stringContaining(new Date(madeAgain[0] ?? 0).toISOString().slice(0, 16)),
  });
});

test("a test of the policy keeps the rule that it needs", async () => {
  const { wide, unused } = await scene();
  const twin = await rule({ protocol: "tcp", ports: "9100", peer: { any: true }, target: { group: "db" } });
  const policy = "tests:\n  - accept: { from: any, to: 'group:db', protocol: tcp, port: 9100 }\n";
  expect((await call("POST", "policy/apply/", { policy })).status).toBe(200);
  const made = await propose();
  expect(of(made, unused)).toMatchObject({ what: "kept", reason: "a test of the policy needs it" });
  expect(of(made, twin)).toMatchObject({ what: "removed", reason: `it is rule ${unused} again` });
  expect((await call("POST", "policy/plan/", { policy: made.policy, prune: true })).status).toBe(200);
  expect(of(made, wide)).toMatchObject({ what: "kept" });
  const tested = await call("POST", "policy/test/", { policy: made.policy, prune: true });
  expect(tested.json).toMatchObject({ failing: [] });
});

test("an organization without flows gets its policy as it is, and members get none", async () => {
  const id = await rule({ protocol: "tcp", ports: "22" });
  await registerNode(server, org, "web");
  expect(of(await propose({}), id)).toMatchObject({ what: "kept", reason: "web reported no flows" });
  const email = `member-of-${org.slug}@example.org`;
  const token = await server.person(email);
  await server.join(org, email, "member");
  const path = `/api/org/${org.slug}/policy/propose/`;
  expect((await server.send("POST", path, { token, body: {} })).status).toBe(403);
});

test("without flows nothing is proposed from those of before, and no time to come is asked about", async () => {
  await scene();
  expect((await propose()).removed).toBe(1);
  expect((await call("PATCH", "", { flows: false })).status).toBe(200);
  expect(await propose()).toMatchObject({ observed_since: null, narrowed: 0, removed: 0 });
  expect(await call("POST", "policy/propose/", asked(server.clock.ms + 1000))).toMatchObject({
    status: 400,
    json: { detail: "This moment has not come yet." },
  });
});

test("a rule is judged only by the whole time that was asked about", async () => {
  const { wide, unused } = await scene();
  const made = await rule({ protocol: "tcp", ports: "3001", target: { group: "db" } });
  // The default is 30 days: two hours are not enough.
  const long = await propose({});
  expect(long).toMatchObject({ removed: 0, narrowed: 0 });
  expect(long.observed_since).toBe(new Date(begin).toISOString().replace(".000", ""));
  expect(of(long, unused)?.reason).toContain("its nodes report flows only since");
  expect(long.policy).toContain(`flows that nodes reported between ${long.observed_since} and`);
  // The time that the file names is one to ask about.
  const again = await propose({ since: long.observed_since });
  expect(of(again, unused)).toMatchObject({ what: "removed" });
  expect(of(again, wide)).toMatchObject({ what: "narrowed" });
  expect(of(again, made)?.reason).toStartWith("it is as it is only since");
  // An edit of what a rule permits begins its time anew; another description does not.
  expect((await call("PATCH", `firewall_rules/${unused}/`, { description: "metrics" })).status).toBe(200);
  expect(of(await propose(), unused)).toMatchObject({ what: "removed" });
  expect((await call("PATCH", `firewall_rules/${unused}/`, { ports: "9101" })).status).toBe(200);
  expect(of(await propose(), unused)?.reason).toStartWith("it is as it is only since");
  // Minutes that nobody has reported yet say nothing.
  server.clock.ms += 600_000;
  expect((await propose(asked(server.clock.ms - 60_000))).removed).toBe(0);
});

test("a description with line breaks stays a comment of the proposal", async () => {
  const description = "keep: a\u0085rules: []\r\nrules: []";
  const id = await rule({ protocol: "tcp", ports: "22", description });
  await registerNode(server, org, "web");
  const lines = (await propose({})).policy.split("\n");
  expect(lines.find((each) => each.includes(`kept rule ${id}:`))).toStartWith(
    `# kept rule ${id}: marked keep: a rules: []`,
  );
});
