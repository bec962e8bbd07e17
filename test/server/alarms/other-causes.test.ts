// Alarms that are not about reachability: each is told when its cause is there, once, and when it is over.

import { afterAll, beforeEach, expect, test } from "bun:test";
import { brand } from "../../../src/brand.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { awayCauses, readAway } from "../../../src/server/alarms/away-causes.ts";
import { issueServerX509, makeX509Ca, openIssuer } from "../../../src/pki/x509.ts";
import { makeAlarms } from "../../../src/server/alarms/evaluate.ts";
import { ourselves, record } from "../../../src/server/audit/record.ts";
import { finders } from "../../../src/server/alarms/other-causes.ts";
import { findWarnings } from "../../../src/server/metrics/warnings.ts";
import { recordAway } from "../../../src/server/nodes/contact/away-nodes.ts";
import { rememberBackup } from "../../../src/server/store/meta.ts";
import { commandLines, wrongWith } from "../../support/documents.ts";
import { hour, minute, useEphemeral } from "../../support/ephemeral.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import type { TestServer } from "../../support/server.ts";

const day = 24 * hour;
let server: TestServer;
let org: Organization;
let web: RegisteredNode;
let checkIn: () => Promise<unknown>;
let evaluate: ReturnType<typeof makeAlarms>;
const { call } = useEphemeral((made) => ({ server, org } = made));
beforeEach(async () => {
  // Those of this machine, whose disk other tests may fill, are no part of these tests.
  evaluate = makeAlarms({ ...server.app.services, warnings: () => [] });
  web = await registerNode(server, org, "web", { mode: "server" });
  checkIn = () => web.checkin({ config_version: 1 });
  await look();
});

/** A minute later: what is told. */
async function look(): Promise<string[]> {
  server.clock.ms += minute + 1000;
  await checkIn();
  await server.app.services.reports.stop();
  const newest = "SELECT coalesce(max(id), 0) AS id FROM events";
  const before = Number((await server.db.get(newest))?.["id"]);
  await evaluate(await recordAway(server.app.services));
  const sql = "SELECT after FROM events WHERE id > $1 AND org_id = $2 AND type LIKE 'alarm.%' ORDER BY id";
  const events = (await server.db.all(sql, [before, org.id])).map(({ after }) => JSON.parse(String(after)));
  for (const { kind, text } of events) texts.set(kind, `${texts.get(kind) ?? ""}${text}\n`);
  return events.map(({ name }) => name);
}
/** All that was told, by kind. */
const texts = new Map<string, string>();

afterAll(async () => {
  expect([...texts.keys()].sort()).toEqual(Object.keys(finders).sort());
  const told = [...texts.values()].join("");
  const lines = [...told.matchAll(/`([^`]+)`/g)].flatMap(([, line = ""]) => commandLines(line));
  expect(lines.length).toBeGreaterThan(3);
  for (const [program, ...words] of lines)
    expect([words.join(" "), program, await wrongWith(words, true)]).toEqual([
      words.join(" "),
      brand.executable,
      undefined,
    ]);
  // A line in a sentence is copied with the full stop behind it, unless it is marked.
  expect(told.replaceAll(/`[^`]+`/g, "")).not.toContain(`${brand.executable} `);
});

const set = (sql: string, params: (number | string | null)[]) => server.db.write((tx) => tx.run(sql, params));

test("a certificate that was not renewed is told while its node is online", async () => {
  const ends = (inMs: number) =>
    set("UPDATE certificates SET not_before = $2, not_after = $3 WHERE node_id = $1 AND kind = 'overlay'", [
      web.id,
      server.clock.ms - 88 * day,
      server.clock.ms + inMs,
    ]);
  await ends(2 * day);
  expect(await look()).toEqual(["web: the certificate was not renewed"]);
  expect(await look()).toEqual([]);
  await ends(60 * day);
  expect(await look()).toEqual(["Over: web: the certificate was not renewed"]);
  await ends(2 * day);
  expect(await look()).toHaveLength(1);
  // A node that is switched off has not renewed anything.
  server.clock.ms += 3 * minute;
  await evaluate(await recordAway(server.app.services));
  const ended = await server.db.get(
    "SELECT after FROM events WHERE org_id = $1 AND type = 'alarm.ended' ORDER BY id DESC LIMIT 1",
    [org.id],
  );
  expect(JSON.parse(String(ended?.["after"])).text).toStartWith("web does not check in any more, after");
});

test("a CA that ends soon and was not replaced is told, once for each", async () => {
  await set("UPDATE authorities SET not_after = $2 WHERE org_id = $1 AND kind = 'overlay'", [
    org.id,
    server.clock.ms + 40 * day,
  ]);
  const title = `A CA of ${org.slug} ends soon, and was not replaced`;
  expect(await look()).toEqual([title]);
  await set("UPDATE authorities SET not_after = $2 WHERE org_id = $1", [org.id, server.clock.ms + 40 * day]);
  expect(await look()).toEqual([title]);
  expect((await call("PATCH", "", { alarm_rules: ["ca=30"] })).status).toBe(200);
  expect(await look()).toEqual([`Over: ${title}`, `Over: ${title}`]);
});

test("each CA is told with what ends with it, an offline one unless a later one replaces it", async () => {
  const soon = server.clock.ms + 40 * day;
  const texts = async () =>
    (await server.db.all("SELECT text FROM alarms WHERE org_id = $1 ORDER BY id", [org.id])).map(({ text }) =>
      String(text),
    );
  await set("UPDATE authorities SET not_after = $2 WHERE org_id = $1 AND kind = 'x509'", [org.id, soon]);
  expect(await look()).toHaveLength(1);
  expect((await texts())[0]).toContain("x509: ");
  expect((await texts())[0]).not.toContain("lose each other");
  const offline = (name: string, notAfter: number) =>
    set(
      `INSERT INTO authorities (org_id, kind, version, fingerprint, certificate, private_key_sealed, state, not_before, not_after, created_at, offline)
       VALUES ($1, 'overlay', 2, $2, '', '', 'former', 1, $3, 1, 1)`,
      [org.id, name, notAfter],
    );
  await offline("first", soon);
  expect(await look()).toHaveLength(1);
  expect((await texts())[1]).toContain(`admin seal ca ${org.slug} FILE`);
  await offline("later", server.clock.ms + 400 * day);
  expect(await look()).toEqual([`Over: A CA of ${org.slug} ends soon, and was not replaced`]);
  await set("UPDATE authorities SET not_after = $2, retired_at = 1 WHERE org_id = $1 AND offline = 1", [
    org.id,
    soon,
  ]);
  expect(await look()).toEqual([]);
});

test("all nodes with late certificates are one alarm, also more than a page shows", async () => {
  for (let n = 0; n < 22; n++) {
    const late = await registerNode(server, org, `late${n}`, { mode: "server" });
    await late.checkin({ config_version: 1 });
  }
  await set(
    "UPDATE certificates SET not_before = $2, not_after = $3 WHERE org_id = $1 AND kind = 'overlay'",
    [org.id, server.clock.ms - 88 * day, server.clock.ms + 2 * day],
  );
  expect(await look()).toEqual([
    expect.stringMatching(/^\w+, \w+, \w+, \w+, \w+ and 18 more: the certificate/),
  ]);
  const row = await server.db.get("SELECT text FROM alarms WHERE org_id = $1", [org.id]);
  expect(String(row?.["text"])).toContain(" and 18 more. On the node");
});

test("an old backup is told in organizations of staff alone, and not after a new one", async () => {
  server.clock.ms += 3 * day;
  expect(await look()).toEqual([]);
  await server.person(`staff-${org.id}@example.org`, { isStaff: true });
  await server.join(org, `staff-${org.id}@example.org`, "admin");
  const never = "The control plane has no backup, after 2 days";
  expect(await look()).toEqual([never]);
  const remember = () => server.db.write((tx) => rememberBackup(tx, server.clock.ms));
  await remember();
  expect(await look()).toEqual([`Over: ${never}`]);
  server.clock.ms += 3 * day;
  expect(await look()).toEqual(["The last backup of the control plane is older than 2 days"]);
  await remember();
  expect(await look()).toEqual(["Over: The last backup of the control plane is older than 2 days"]);
});

test("what the control plane warns of itself is told in organizations of staff, each warning until it is over", async () => {
  const dates = { notBefore: server.clock.ms - 80 * day, notAfter: server.clock.ms + 8 * day };
  const issuer = await openIssuer(
    await makeX509Ca({ organization: "Company", ...dates, serial: new Uint8Array([1]) }),
  );
  const named = { names: ["localhost"], addresses: [], serial: new Uint8Array([2]) };
  const { cert } = await issueServerX509({ ...named, ...dates }, issuer);
  let [presented, damage]: (string | undefined)[] = [cert, undefined];
  const { services } = server.app;
  const { dataDirectory: _, ...own } = services;
  const db = { ...services.db, damage: () => damage };
  const warnings = () => findWarnings({ ...own, db, tlsCertificate: () => presented });
  evaluate = makeAlarms({ ...services, warnings });
  expect(await look()).toEqual([]);
  await server.person(`staff-${org.id}@example.org`, { isStaff: true });
  await server.join(org, `staff-${org.id}@example.org`, "admin");
  const ending = expect.stringMatching(
    /^The TLS certificate of the control plane ends on 20.*, and was not renewed$/,
  );
  expect(await look()).toEqual([ending]);
  expect(await look()).toEqual([]);
  damage = "page 7";
  expect(await look()).toEqual(["The database is damaged: page 7"]);
  presented = undefined;
  expect(await look()).toEqual([expect.stringMatching(/^Over: The TLS certificate/)]);
  damage = undefined;
  expect(await look()).toEqual(["Over: The database is damaged: page 7"]);
  let code: "disk_filling" | "disk_full" = "disk_filling";
  evaluate = makeAlarms({ ...services, warnings: () => [{ code, text: `${code}.`, hint: "Make room." }] });
  expect(await look()).toEqual(["disk_filling"]);
  code = "disk_full";
  expect(await look()).toEqual(["disk_full"]);
});

test("tests of the policy that fail are told, others that follow too", async () => {
  const fail = (failing: string[]) =>
    set(
      `INSERT INTO policies (org_id, tests, failing, created_at) VALUES ($1, '[{}]', $2, 1)
       ON CONFLICT (org_id) DO UPDATE SET failing = excluded.failing`,
      [org.id, JSON.stringify(failing)],
    );
  await fail(["web reaches db"]);
  expect(await look()).toEqual([`A test of the policy of ${org.slug} fails`]);
  await fail(["web reaches db", "db reaches web", "a reaches b"]);
  expect(await look()).toEqual([`2 tests of the policy of ${org.slug} fail`]);
  await fail([]);
  expect(await look()).toHaveLength(2);
  await fail(["1", "2", "3", "4", "5", "6", "7"]);
  await look();
  expect(texts.get("policy")).toEndWith("5\nand 2 more\n");
});

test("an organization without a lighthouse is told once its nodes report it, for the time of the rule", async () => {
  const report = (state: string) => () => web.checkin({ config_version: 1, overlay_state: state });
  checkIn = report("no_lighthouse");
  const title = `${org.slug} has no lighthouse`;
  expect([await look(), await look(), await look()]).toEqual([[], [], []]);
  expect(await look()).toEqual([title]);
  // It stays one alarm, which is about no node.
  expect(await look()).toEqual([]);
  expect((await call("GET", "alarms/")).json).toMatchObject([
    { kind: "lighthouse", title, nodes: [], urgent: true },
  ]);
  checkIn = report("running");
  expect(await look()).toEqual([`Over: ${title}`]);
  expect((await call("PATCH", "", { alarm_rules: ["lighthouse=off"] })).status).toBe(200);
  checkIn = report("no_lighthouse");
  for (let turn = 0; turn < 5; turn++) expect(await look()).toEqual([]);
});

test("a network that no router reaches is told, although its routers are online, unless another one forwards", async () => {
  const network = "192.168.7.0/24";
  const other = await registerNode(server, org, "other", { mode: "server" });
  const route = (node: RegisteredNode) => call("PATCH", `nodes/${node.id}/`, { subnets: [network] });
  expect((await route(web)).status).toBe(200);
  let states = ["down", "ready"];
  checkIn = async () => {
    for (const [at, node] of [web, other].entries()) {
      const offer = { network, ...(states[at] === "ready" ? {} : { state: states[at] }) };
      await node.checkin({ config_version: 1, advertised: [offer] });
    }
  };
  const title = `${network} does not answer behind web`;
  expect([await look(), await look(), await look()]).toEqual([[], [], []]);
  expect(await look()).toEqual([title]);
  expect((await route(other)).status).toBe(200);
  expect(await look()).toEqual([`Over: ${title}`]);
  states = ["down", "down"];
  // The time begins anew.
  expect([await look(), await look(), await look()]).toEqual([[], [], []]);
  expect(await look()).toEqual([`${network} does not answer behind other, web`]);
  states = ["ready", "down"];
  expect(await look()).toHaveLength(1);
});

test("many refused sign-ins are told, and are over when they cease", async () => {
  const refuse = (count: number) =>
    server.db.writeFor({ org: org.id }, async (tx) => {
      const event = { orgId: org.id, at: server.clock.ms, actor: ourselves, subject: "user/ada@example.org" };
      for (let n = 0; n < count; n++) await record(tx, { ...event, type: "security.login_failed" });
    });
  await refuse(19);
  expect(await look()).toEqual([]);
  await refuse(1);
  const title = `20 sign-ins to ${org.slug} were refused within 10 minutes`;
  expect(await look()).toEqual([title]);
  expect(await look()).toEqual([]);
  server.clock.ms += 10 * minute;
  expect(await look()).toEqual([`Over: ${title}`]);
});

test("an update in rings that stopped is told, until its nodes are back, or the next one begins", async () => {
  const rollout = (state: string, failedNode: number | null) =>
    set(
      `INSERT INTO rollouts (org_id, groups, hours, watch_s, state, ring, rings, reason, failed_node, since, created_at)
       VALUES ($1, '[]', '[]', 60, $2, 1, 4, 'web lost its lighthouse', $3, $4, 1)`,
      [org.id, state, failedNode, server.clock.ms],
    );
  await rollout("stopped", web.id);
  const [told = ""] = await look();
  expect(told).toMatch(/^The update \d+ of .* stopped in ring 1$/);
  await rollout("running", null);
  expect(await look()).toEqual([`Over: ${told}`]);

  await rollout("stopped", web.id);
  const member = `INSERT INTO rollout_nodes (rollout_id, node_id, ring, state, at)
    SELECT max(id), $1, 1, 'returning', 1 FROM rollouts`;
  await set(member, [web.id]);
  const [second = ""] = await look();
  expect(second).not.toBe(told);
  expect(await look()).toEqual([]);
  await set("UPDATE rollout_nodes SET state = 'returned'", []);
  expect(await look()).toEqual([`Over: ${second}`]);
  // A node that goes away later is another cause.
  await set("UPDATE rollout_nodes SET state = 'returning'", []);
  expect(await look()).toEqual([]);
});

test("an update in rings that paused by itself is told until it goes on, one that an administrator paused is not", async () => {
  const change = (state: string, reason: string) =>
    set("UPDATE rollouts SET state = $2, reason = $3 WHERE org_id = $1", [org.id, state, reason]);
  await set(
    `INSERT INTO rollouts (org_id, groups, hours, watch_s, state, ring, rings, since, created_at)
     VALUES ($1, '[]', '[]', 60, 'paused', 1, 4, $2, 1)`,
    [org.id, server.clock.ms],
  );
  expect(await look()).toEqual([]);
  await change("paused", "Nothing is proven");
  const [told = ""] = await look();
  expect(told).toMatch(/^The update \d+ of .* paused in ring 1$/);
  await change("running", "");
  expect(await look()).toEqual([`Over: ${told}`]);
});

// PostgreSQL takes at most 65,535 parameters.
test("all of 70,000 nodes that are away at once are one cause", async () => {
  const { db } = server;
  const now = server.clock.ms;
  const silence = { now, upFrom: 0, nodes: [] };
  const usual = { groups: [], ownerGroups: [], subnets: [], exitGroups: [] };
  const times = { awaySince: null, lastCheckinAt: now - hour, countedFrom: 0 };
  const silent = Array.from({ length: 70_000 }, (_, at) => ({
    ...usual,
    ...times,
    id: 1000 + at,
    orgId: org.id,
    name: `n${at}`,
    ip: `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`,
    ip6: null,
    mode: "server" as const,
    isLighthouse: false,
    isRelay: false,
    silentMs: hour,
    silentFrom: now - hour,
  }));
  const ruled = { id: org.id, slug: "acme", alarmRules: [], notifyAwayMinutes: 15 };
  const away = await readAway(db, ruled, silence, silent);
  const causes = await awayCauses(db, away, new Set());
  expect(causes.map(({ heads, title }) => [heads.length, title])).toEqual([
    [70_000, "70000 nodes are away: n0, n1, n2, n3, n4 and 69995 more"],
  ]);
});
