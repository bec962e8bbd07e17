// Flows that nodes report: stored once, told to whom they concern, and only where the organization wants them.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import * as v from "valibot";
import { Flows } from "../../../src/api/flows.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { makeLog } from "../../../src/base/log.ts";
import { realSystem } from "../../../src/base/system.ts";
import { readFlows } from "../../../src/server/flows/read-flows.ts";
import { makeFlowReports } from "../../../src/server/flows/flow-reports.ts";
import { deleteEnded, deleteUnwantedFlows } from "../../../src/server/retention/ended-records.ts";
import { readMeta } from "../../../src/server/store/meta.ts";
import { newestVersion, schemaStatements } from "../../../src/server/store/migrations.ts";
import { flowBlockOf, flows } from "../../../src/server/store/tables/paths.ts";
import { checkinOf, countOf, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { noteStatements } from "../../support/noted-statements.ts";
import { useNumbered } from "../../support/numbered.ts";
import { makeNumbered } from "../../support/people.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

let server: TestServer;
let org: Organization;
const { call, configVersion, signInAgain } = useNumbered((made) => ({ server, org } = made));

const want = (flows: boolean) => call("PATCH", "", { flows });
let ids = 0;
const row = (peer: string, more: object = {}) => ({
  peer,
  incoming: false,
  protocol: "tcp",
  port: 5432,
  flows: 3,
  answered: 3,
  ...more,
});
const flowsOf = (rows: object[], more: object = {}) => ({
  id: `boot-${++ids}`,
  from: 300,
  to: 0,
  rows,
  rest: 0,
  unseen_s: 0,
  ...more,
});
/** Every five minutes. */
async function report(node: RegisteredNode, flows: unknown): Promise<string | undefined> {
  server.clock.ms += 300_000;
  return checkinOf(await node.checkin({ flows })).flows;
}
async function list(query = ""): Promise<Flows> {
  const { status, json } = await call("GET", `flows/${query}`);
  expect({ status, json }).toMatchObject({ status: 200 });
  return v.parse(Flows, json);
}
const rows = () => countOf(server, "SELECT count(*) AS n FROM flows WHERE org_id = $1", org.id);

test("an organization that wants no flows gets none, and its nodes are not told to report them", async () => {
  const alpha = await registerNode(server, org, "alpha");
  expect(await report(alpha, flowsOf([row("10.77.9.9")]))).toBe("unwanted");
  expect(await rows()).toBe(0);
  expect(downloadOf(await alpha.download()).files["node-config.json"]).not.toContain("flows");
  const before = await configVersion();
  expect((await want(true)).status).toBe(200);
  expect(await configVersion()).toBeGreaterThan(before);
  expect(downloadOf(await alpha.download()).files["node-config.json"]).toContain('"flows": true');
  expect(await report(alpha, flowsOf([row("10.77.9.9")]))).toBe("taken");
  expect(await rows()).toBe(2);
  // Off deletes them.
  await want(false);
  expect((await list()).flows).toEqual([]);
  await deleteUnwantedFlows(server.app.services, () => false);
  expect(await rows()).toBe(0);
});

test("a node that claims more flows than there can be does not exceed what a database adds up", async () => {
  await want(true);
  const liar = await registerNode(server, org, "liar");
  const most = Number.MAX_SAFE_INTEGER;
  const claim = () => flowsOf([row("10.77.9.9", { flows: most, answered: most })], { rest: most });
  for (let at = 0; at < 3; at++) expect(await report(liar, claim())).toBe("taken");
  await signInAgain();
  expect(await list()).toMatchObject({ flows: [{ flows: 3e9, unanswered: 0 }], uncounted: 3e9 });
});

test("flows that an organization wants no more are deleted by a loop that runs each minute", async () => {
  const sleep = (ms: number, signal?: AbortSignal) => realSystem().sleep(Math.min(ms, 100), signal);
  await using own = await makeTestServer({ network: { sleep } });
  const acme = await own.organization("acme", "10.77.0.0/16");
  const { id: nodeId } = await registerNode(own, acme, "alpha");
  // It runs once an hour, and the clock of the test stands.
  await until(() => readMeta(own.db, "retention_at"));
  const day = Math.floor(own.clock.ms / 86_400_000);
  const place = { nodeId, orgId: acme.id, block: flowBlockOf(day), day, side: 0, peer: 0 };
  const counts = {
    flows: 1,
    answered: 1,
    firstAt: own.clock.ms,
    lastAt: own.clock.ms,
    unseenS: 0,
    report: "",
  };
  const kind = { address: "10.77.0.9", protocol: "tcp", port: 5432 };
  await own.db.write((tx) => flows.insert(tx, { ...place, ...counts, ...kind }));
  const left = () => countOf(own, "SELECT count(*) AS n FROM flows WHERE org_id = $1", acme.id);
  await until(async () => (await left()) === 0, { ms: 20_000 });
});

test("what sender and receiver report of the same flows is one line, and a repeated report adds nothing", async () => {
  await want(true);
  const [web, db] = [await registerNode(server, org, "web"), await registerNode(server, org, "db")];
  const sent = flowsOf([
    row(db.ip),
    row(db.ip, { port: 22, answered: 0 }),
    row("10.77.9.9", { protocol: "icmp", port: 0 }),
  ]);
  expect(await report(web, sent)).toBe("taken");
  expect(await report(web, sent)).toBe("taken");
  const received = flowsOf([row(web.ip, { incoming: true })], { rest: 5 });
  expect(await report(db, received)).toBe("taken");
  await signInAgain();
  expect(await list()).toMatchObject({
    wanted: true,
    flows: [
      {
        from: web.id,
        from_name: "web",
        to: db.id,
        to_name: "db",
        protocol: "tcp",
        port: 5432,
        flows: 3,
        unanswered: 0,
        seen_by: "both",
      },
      { from: web.id, to: db.id, port: 22, flows: 3, unanswered: 3, seen_by: "sender" },
      { from: web.id, to: null, to_name: null, address: "10.77.9.9", protocol: "icmp", port: null },
    ],
    left_out: 0,
    uncounted: 5,
    nodes: 2,
    silent: { count: 0 },
  });
  expect((await list(`?from=${web.id}&to=${db.id}`)).flows).toHaveLength(2);
  expect((await list(`?to=${web.id}`)).flows).toHaveLength(0);
  expect((await list("?unanswered=true")).flows).toMatchObject([{ port: 22 }]);
  expect(await list("?limit=1")).toMatchObject({ flows: [{ port: 5432 }], left_out: 2 });
  const later = new Date(server.clock.ms + 1000).toISOString();
  expect(await call("GET", `flows/?since=${later}`)).toMatchObject({
    status: 400,
    json: { detail: "This moment has not come yet." },
  });
  // The next interval adds to the line of the day.
  expect(await report(web, flowsOf([row(db.ip), row(db.ip)]))).toBe("taken");
  expect((await list("?limit=1")).flows).toMatchObject([{ flows: 9, unanswered: 0 }]);
});

test("an answer of the next interval leaves no flow unanswered", async () => {
  await want(true);
  const [web, db] = [await registerNode(server, org, "web"), await registerNode(server, org, "db")];
  await report(web, flowsOf([row(db.ip, { flows: 1, answered: 0 })]));
  await report(web, flowsOf([row(db.ip, { flows: 0, answered: 1 })]));
  expect((await list()).flows).toMatchObject([{ flows: 1, unanswered: 0 }]);
});

test("a peer whose address changed its node within the interval is named by the address alone", async () => {
  await want(true);
  const web = await registerNode(server, org, "web");
  const old = await registerNode(server, org, "old");
  await report(web, flowsOf([row(old.ip)]));
  await call("POST", `nodes/${old.id}/revoke/`, { reason: "gone" });
  // As after the hold of the address.
  await server.db.write((tx) =>
    tx.run("UPDATE addresses SET node_id = NULL, held_until = NULL WHERE node_id = $1", [old.id]),
  );
  const next = await registerNode(server, org, "next", { ip_address: old.ip });
  server.clock.ms -= 200_000;
  expect(await report(web, flowsOf([row(old.ip)]))).toBe("taken");
  expect(await report(web, flowsOf([row(old.ip)]))).toBe("taken");
  const found = (await list()).flows.map(({ to, flows }) => [to, flows]);
  expect(found).toContainEqual([old.id, 3]);
  expect(found).toContainEqual([null, 3]);
  expect(found).toContainEqual([next.id, 3]);
});

test("a report that arrives while others are written slowly is written after them", async () => {
  await want(true);
  const [web, db] = [await registerNode(server, org, "web"), await registerNode(server, org, "db")];
  const begun = Promise.withResolvers<void>();
  const disk = Promise.withResolvers<void>();
  const slow: typeof server.db = Object.assign(Object.create(server.db), {
    writeFor: async (...work: Parameters<typeof server.db.writeFor>) => {
      begun.resolve();
      await disk.promise;
      return server.db.writeFor(...work);
    },
  });
  const log = makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: false });
  const reports = makeFlowReports({ ...server.app.services, log, db: slow });
  const first = reports.take(org, web.id, flowsOf([row(db.ip)]));
  await begun.promise;
  const second = reports.take(org, db.id, flowsOf([row(web.ip)]));
  // Longer than a report waits for others.
  await Bun.sleep(700);
  disk.resolve();
  expect([await first, await second]).toEqual(["taken", "taken"]);
  await reports.stop();
});

test("other addresses and other nodes need no other statements: the store keeps each one that it has seen", async () => {
  await want(true);
  const web = await registerNode(server, org, "web");
  const { db, texts } = noteStatements(server.db);
  const log = makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: false });
  const reports = makeFlowReports({ ...server.app.services, log, db });
  for (const peer of ["10.77.0.3", "10.77.0.4", "10.77.0.5"])
    expect(await reports.take(org, web.id, flowsOf([row(peer)]))).toBe("taken");
  await reports.stop();
  expect([...texts].filter((sql) => sql.includes("FROM addresses"))).toHaveLength(1);
  texts.clear();
  for (const id of [web.id, web.id + 1, web.id + 2]) await readFlows(db, org.id, [id], 0);
  expect([...texts].filter((sql) => sql.includes("FROM flows"))).toHaveLength(1);
});

test("flows are read in the order of the table: sums of ten days are sorted, not days", async () => {
  await want(true);
  const { db, texts } = noteStatements(server.db);
  await readFlows(db, org.id, [1, 2, 3], 0);
  const web = await registerNode(server, org, "web");
  const log = makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: false });
  const reports = makeFlowReports({ ...server.app.services, log, db });
  expect(await reports.take(org, web.id, flowsOf([]))).toBe("taken");
  await reports.stop();
  using empty = new Sqlite(":memory:");
  for (const statement of schemaStatements(newestVersion)) empty.run(statement);
  const planOf = (part: string) => {
    const sql = [...texts].find((each) => each.includes(part))?.replaceAll("$", "?") ?? "";
    const count = Math.max(...[...sql.matchAll(/\?(\d+)/g)].map(([, number]) => Number(number)));
    const plan = empty.query<{ detail: string }, number[]>(`EXPLAIN QUERY PLAN ${sql}`);
    return plan.all(...Array<number>(count).fill(0)).map(({ detail }) => detail);
  };
  expect(planOf("flows WHERE node_id IN")).toEqual([
    "CO-ROUTINE sums",
    "SEARCH flows USING PRIMARY KEY (node_id=? AND block>?)",
    "SCAN sums",
    "USE TEMP B-TREE FOR GROUP BY",
  ]);
  expect(planOf("SELECT report FROM flows")).toEqual([
    "SEARCH flows USING PRIMARY KEY (node_id=?)",
    "USE TEMP B-TREE FOR LAST TERM OF ORDER BY",
  ]);
});

test("a report that is not valid fails no check-in, and times come from the server's clock", async () => {
  await want(true);
  const web = await registerNode(server, org, "web");
  const wrong = [
    flowsOf([row("no address")]),
    flowsOf([], { id: "A" }),
    flowsOf(Array(257).fill(row("10.77.9.9"))),
    7,
    null,
  ];
  for (const each of wrong) {
    const answer = await web.checkin({ flows: each });
    expect(answer.status).toBe(200);
    expect(checkinOf(answer).flows).toBe("unwanted");
  }
  // The end before the beginning.
  expect(await report(web, flowsOf([row("10.77.9.9")], { from: 0, to: 300 }))).toBe("taken");
  const [{ first_at: first, last_at: last } = { first_at: "", last_at: "" }] = (await list()).flows;
  expect(Date.parse(last)).toBe(server.clock.ms - 300_000);
  expect(first).toBe(last);
});

test("flows are kept for 30 days, and reading them is an event", async () => {
  await want(true);
  const web = await registerNode(server, org, "web");
  await report(web, flowsOf([row("10.77.9.9")]));
  await list(`?from=${web.id}`);
  const { json } = await call("GET", "events/?limit=1000");
  expect(json).toContainEqual(
    expect.objectContaining({
      type: "flows.exported",
      subject: `organization/${org.slug}`,
      after: expect.objectContaining({ from: web.id, rows: 1 }),
    }),
  );
  const day = 86_400_000;
  server.clock.ms += 29 * day;
  await deleteEnded(server.app.services, 400 * day, () => false);
  expect(await rows()).toBe(2);
  server.clock.ms += 3 * day;
  await deleteEnded(server.app.services, 400 * day, () => false);
  expect(await rows()).toBe(0);
});

test("members see what their own nodes report, administrators everything", async () => {
  await want(true);
  const [alpha, own] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "laptop")];
  const email = `member-of-${org.slug}@example.org`;
  const member = await server.person(email);
  await server.join(org, email, "member");
  await report(alpha, flowsOf([row("10.77.9.9")]));
  await report(own, flowsOf([row(alpha.ip)]));
  const seen = async (token: string) => server.send("GET", `/api/org/${org.slug}/flows/`, { token });
  expect((await seen(member)).json).toMatchObject({ flows: [], nodes: 0 });
  expect((await call("POST", `nodes/${own.id}/transfer/`, { owner: email })).status).toBe(200);
  expect((await seen(member)).json).toMatchObject({
    flows: [{ from_name: "laptop", to_name: "alpha" }],
    nodes: 1,
  });
  expect((await list()).flows).toHaveLength(2);
  expect((await seen(own.token)).status).toBe(403);
  // Only the node itself says what it saw.
  const body = { version: "1", uptime: 1, flows: flowsOf([row("10.77.9.8")]) };
  expect(checkinOf(await call("POST", `nodes/${alpha.id}/checkin/`, body))).not.toHaveProperty("flows");
});

test("whoever sees flows needs their scope, and is recorded, whichever way they go", async () => {
  // Reports of a past moment go by the time of the database.
  await using present = await makeTestServer({ clock: { ms: Date.now() } });
  const { org: own, admin } = await makeNumbered(present, 1);
  const path = (rest: string) => `/api/org/${own.slug}/${rest}`;
  await present.send("PATCH", path(""), { token: admin, body: { flows: true } });
  const web = await registerNode(present, own, "web");
  const received = flowsOf([row("10.77.9.9", { incoming: true, answered: 1 })]);
  expect(checkinOf(await web.checkin({ flows: received })).flows).toBe("taken");
  const Made = v.looseObject({ token: v.string() });
  const tokenOf = async (...scopes: string[]) => {
    const body = { name: scopes.join("-"), role: "admin", scopes };
    return v.parse(Made, (await present.send("POST", path("service_tokens/"), { token: admin, body })).json)
      .token;
  };
  const few = await tokenOf("policy");
  const enough = [await tokenOf("policy", "nodes"), await tokenOf("read")];
  const ways = [
    ["GET", "flows/"],
    ["POST", "policy/propose/"],
    ["GET", `policy/past/?at=${new Date().toISOString()}&to=web`],
  ] as const;
  const events = "SELECT count(*) AS n FROM events WHERE org_id = $1 AND type = 'flows.exported'";
  const counts: unknown[] = [];
  for (const [method, way] of ways)
    for (const token of [few, ...enough]) {
      const body = method === "POST" ? { body: {} } : {};
      const { status, json } = await present.send(method, path(way), { token, ...body });
      counts.push([way.split("?")[0], status, await countOf(present, events, own.id)]);
      if (token === few) expect(json).toMatchObject({ code: "token_scope" });
    }
  const { report } = v.parse(
    v.looseObject({ report: v.string() }),
    (await present.send("GET", path(ways[2][1]), { token: enough[0] ?? "" })).json,
  );
  expect(JSON.parse(report).did).toMatchObject([{ address: "10.77.9.9", flows: 3, answered: 1 }]);
  // Without flows, those of before are not told any more, also before they are deleted.
  await present.send("PATCH", path(""), { token: admin, body: { flows: false } });
  const later = v.parse(
    v.looseObject({ report: v.string() }),
    (await present.send("GET", path(ways[2][1]), { token: enough[0] ?? "" })).json,
  );
  expect(JSON.parse(later.report).did).toBeNull();
  expect(counts).toEqual([
    ["flows/", 403, 0],
    ["flows/", 200, 1],
    ["flows/", 200, 2],
    ["policy/propose/", 403, 2],
    ["policy/propose/", 200, 3],
    ["policy/propose/", 200, 4],
    ["policy/past/", 403, 4],
    ["policy/past/", 200, 5],
    ["policy/past/", 200, 6],
  ]);
});
