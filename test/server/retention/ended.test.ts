// What is deleted with time, and what has to stay.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { verifyChains } from "../../../src/server/audit/verify.ts";
import { AccessReport } from "../../../src/api/left-access.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { operator, record } from "../../../src/server/audit/record.ts";
import { archiveBatch } from "../../../src/server/retention/archive.ts";
import { storedEventBytes } from "../../../src/server/retention/budget.ts";
import { deleteEndedNodes } from "../../../src/server/retention/ended-nodes.ts";
import { deleteEnded } from "../../../src/server/retention/ended-records.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { queryNumber } from "../../../src/server/store/table.ts";
import { deliveries, webhooks } from "../../../src/server/store/tables/webhooks.ts";
import { refreshTokens, retiredTokens } from "../../../src/server/store/tables/sessions.ts";
import { fixture, writeFixture } from "../../support/fixture.ts";
import { sourceRoot } from "../../support/imports.ts";
import { makeKeys, registerNode, sendRegistration } from "../../support/nodes.ts";
import { noteStatements } from "../../support/noted-statements.ts";
import { makeTestServer, onPostgres, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const day = 86_400_000;
let server: TestServer;
let org: Organization;
let owner: string;
beforeAll(async () => {
  server = await makeTestServer({ accessLifetimeS: 1e9 });
  org = await server.organization("acme");
  owner = await server.person("owner@example.org");
  await server.join(org, "owner@example.org", "owner");
});
afterAll(() => server[Symbol.asyncDispose]());

const count = (table: string, where = "1 = 1") =>
  queryNumber(server.db, `SELECT count(*) AS n FROM ${table} WHERE ${where}`);
const run = () => deleteEnded(server.app.services, 400 * day, () => false);
/** Sign-ins end after 90 days. */
async function pass(days: number): Promise<void> {
  server.clock.ms += days * day;
  const id = await queryNumber(server.db, "SELECT id AS n FROM users WHERE email = 'owner@example.org'");
  owner = (await server.app.services.sessions.start(id)).access;
}
const send = (method: string, path: string, body?: unknown, token = owner) =>
  server.send(method, `/api/org/acme/${path}`, { token, body });

test("ended refresh tokens, retired tokens and deliveries go, in batches; those in use stay", async () => {
  const { db, clock } = server;
  const userId = await queryNumber(db, "SELECT min(id) AS n FROM users");
  const known = await count("refresh_tokens");
  await db.write(async (tx) => {
    const hook = {
      orgId: org.id,
      url: "https://example.org/",
      events: ["*"],
      secretSealed: "",
      createdAt: 1,
    };
    const { id: webhookId } = await webhooks.insertReturning(tx, { ...hook, deletedAt: 1 });
    for (let at = 0; at < 1200; at++) {
      const expiresAt = clock.ms + (at < 1100 ? -1 : day);
      await refreshTokens.insert(tx, { jtiHash: `j${at}`, family: "f", userId, expiresAt });
      const retiredAt = clock.ms - (at < 1100 ? 401 : 399) * day;
      await retiredTokens.insert(tx, { tokenHash: `t${at}`, retiredAt });
      const createdAt = clock.ms - (at < 1100 ? 31 : 29) * day;
      const nextAt = at < 10 ? clock.ms + day : null;
      await deliveries.insert(tx, { webhookId, eventId: 1, createdAt, nextAt });
    }
  });
  await run();
  expect(await count("refresh_tokens")).toBe(100 + known);
  expect(await count("retired_tokens")).toBe(100);
  expect(await count("deliveries")).toBe(110);
  await db.write((tx) => tx.run("DELETE FROM deliveries"));
});

test("alarms go 90 days after their end, or after that of their organization", async () => {
  const { db, clock } = server;
  const gone = await server.organization("gone", "10.78.0.0/16");
  const alarm = (orgId: number, ended: number) => [orgId, ended === 0 ? null : clock.ms - ended * day];
  await db.write(async (tx) => {
    await tx.run("UPDATE organizations SET deleted_at = $1 WHERE id = $2", [clock.ms - 91 * day, gone.id]);
    for (const row of [alarm(org.id, 0), alarm(org.id, 89), alarm(org.id, 91), alarm(gone.id, 0)])
      await tx.run(
        `INSERT INTO alarms (org_id, kind, heads, rest, title, text, since, raised_at, ended_at)
         VALUES ($1, 'node', '[]', '[]', '', '', 1, 1, $2)`,
        row,
      );
  });
  await run();
  expect([await count("alarms"), await count("alarms", `org_id = ${org.id}`)]).toEqual([2, 2]);
});

test("expired certificates go, but the newest of each node and kind and all that are valid stay", async () => {
  const { clock } = server;
  const start = clock.ms;
  const node = await registerNode(server, org, "laptop");
  const gone = await registerNode(server, org, "gone");
  for (let at = 0; at < 3; at++) {
    clock.ms += day;
    for (const { id } of [node, gone]) await send("POST", `nodes/${id}/renew_cert/`, {});
  }
  expect((await send("DELETE", `nodes/${gone.id}/`)).status).toBe(204);
  const all = await count("certificates");
  await run();
  expect(await count("certificates")).toBe(all);
  const held = "SELECT max(not_after) AS n FROM certificates WHERE kind = 'overlay' AND node_id = ";
  const until = await queryNumber(server.db, held + gone.id);
  await pass(92);
  await send("POST", `nodes/${node.id}/renew_cert/`, {});
  const revocations = (await send("GET", "revocations/")).json;
  await run();
  expect(await count("certificates", `node_id = ${node.id} AND kind = 'overlay'`)).toBe(1);
  expect(await count("certificates", `node_id = ${gone.id} AND kind = 'overlay'`)).toBe(1);
  expect(await queryNumber(server.db, held + gone.id)).toBe(until);
  expect((await send("GET", "revocations/")).json).toEqual(revocations);
  expect((await node.checkin()).status).toBe(200);
  expect((await send("POST", `nodes/${gone.id}/restore/`, {})).status).toBe(200);
  clock.ms = start;
  await pass(0);
});

test("each table that refers to nodes is known to the deletion of ended nodes, and old rollouts go but the last", async () => {
  const { db } = server;
  const known = readFileSync(join(sourceRoot, "server/retention/ended-nodes.ts"), "utf8");
  const referring = await db.all(
    onPostgres
      ? "SELECT DISTINCT conrelid::regclass::text AS name FROM pg_constraint WHERE confrelid = 'nodes'::regclass"
      : `SELECT DISTINCT m.name FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f ON f."table" = 'nodes'`,
  );
  expect(referring.length).toBeGreaterThan(9);
  expect(referring.map(({ name }) => String(name)).filter((name) => !known.includes(name))).toEqual([]);
  const node = await registerNode(server, org, "updated");
  await db.write(async (tx) => {
    for (const [at, ended] of [
      [1, 1],
      [2, server.clock.ms],
      [3, 1],
    ])
      await tx.run(
        `INSERT INTO rollouts (org_id, groups, hours, watch_s, state, ring, rings, since, created_at, ended_at)
         VALUES ($1, '[]', '[]', 60, 'passed', 1, 1, 1, $2, $3)`,
        [org.id, at ?? 0, ended ?? 0],
      );
    await tx.run(
      `INSERT INTO rollout_nodes (rollout_id, node_id, ring, state, at)
       SELECT id, $1, 1, 'passed', 1 FROM rollouts WHERE org_id = $2`,
      [node.id, org.id],
    );
  });
  await run();
  const left =
    "SELECT r.created_at FROM rollouts r JOIN rollout_nodes m ON m.rollout_id = r.id ORDER BY r.id";
  expect(await db.all(left)).toEqual([{ created_at: 2 }, { created_at: 3 }]);
  expect(await count("rollouts")).toBe(2);
});

test("ended nodes are deleted by the same statements, whichever they are", async () => {
  const { db, texts } = noteStatements(server.db);
  const counts: number[] = [];
  for (const round of [1, 2, 3]) {
    await server.db.write(async (tx) => {
      for (const name of [`job-${round}-a`, `job-${round}-b`])
        await tx.run(
          `INSERT INTO nodes (org_id, name, ip, state, is_named, created_at, ended_at)
           VALUES ($1, $2, '', 'revoked', 0, 0, 1)`,
          [org.id, name],
        );
    });
    await deleteEndedNodes(db, 2, () => false);
    counts.push(texts.size);
  }
  expect(await count("nodes", "name LIKE 'job-%'")).toBe(0);
  expect(counts).toEqual(counts.map(() => counts[0] ?? 0));
});

test("an ended registration token goes after 400 days, unless a node registered with it", async () => {
  const { clock } = server;
  const start = clock.ms;
  const make = async () =>
    v.parse(
      v.object({ id: v.number(), token: v.string() }),
      (await send("POST", "registration_tokens/", { uses: 1 })).json,
    );
  const [unused, spent] = [await make(), await make()];
  await registerNode(server, org, "by-token", { registration_token: spent.token });
  await pass(400);
  await run();
  const left = () => count("registration_tokens", `id IN (${unused.id}, ${spent.id})`);
  expect(await left()).toBe(2);
  await pass(2);
  await run();
  expect(await left()).toBe(1);
  expect((await send("DELETE", `registration_tokens/${spent.id}/?revoke_nodes=true`)).status).toBe(204);
  expect(await count("nodes", "name = 'by-token' AND state = 'revoked'")).toBe(1);
  clock.ms = start;
  await pass(0);
});

test("what a user created under an older version is found after its events are archived", async () => {
  const { db } = server;
  using directory = temporaryDirectory();
  const ada = await server.person("ada@example.org");
  await server.join(org, "ada@example.org", "admin");
  const registered = await sendRegistration(
    server,
    "acme",
    { name: "adas", ...(await makeKeys()) },
    { token: ada },
  );
  expect(registered.status).toBe(201);
  await send("POST", "webhooks/", { url: "https://93.184.216.34/" }, ada);
  await db.write(async (tx) => {
    await tx.run("DELETE FROM registrants");
    await tx.run("UPDATE webhooks SET created_by = NULL, seen_event_id = 1000000");
    await tx.run("UPDATE deliveries SET next_at = NULL");
  });
  const members = v.parse(
    v.array(v.looseObject({ id: v.number(), email: v.string() })),
    (await send("GET", "members/")).json,
  );
  const path = `members/${members.find(({ email }) => email === "ada@example.org")?.id}/`;
  // Tests above recorded events at later times.
  await pass(900);
  const limits = { eventsS: 400 * 86_400, eventBytes: 1e9 };
  await archiveBatch(
    { ...server.app.services, dataDirectory: directory.path },
    { id: org.id, slug: "acme" },
    limits,
  );
  const old = server.clock.ms - limits.eventsS * 1000;
  expect(await count("events", `org_id = ${org.id} AND at < ${old}`)).toBe(0);
  const left = v.parse(AccessReport, (await send("PATCH", path, { role: "member" })).json).access_left;
  expect(left.map(({ kind }) => kind).toSorted()).toEqual(["node", "webhook"]);
});

test("events of an older version are measured, archived and verified", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  writeFixture(path);
  const now = Date.parse(fixture.made_at);
  await using old = await makeTestServer({
    secretKey: fixture.secret_key,
    open: async () => ({
      db: await openSqlite({ path, now: () => now, role: "server" }),
      dispose: () => undefined,
    }),
  });
  const count = (sql: string) => queryNumber(old.db, `SELECT count(*) AS n FROM events ${sql}`);
  const before = await verifyChains(old.db, fixture.secret_key);
  expect(before.every(({ breaks }) => breaks.length === 0)).toBe(true);
  const sum = `SELECT sum(octet_length(subject) + octet_length(actor) + coalesce(octet_length(before), 0)
    + coalesce(octet_length(after), 0) + 256) AS n FROM events WHERE org_id = 1`;
  expect(await storedEventBytes(old.db, 1)).toBe(await queryNumber(old.db, sum));
  const event = { orgId: 1, at: now, type: "group.created", actor: operator, subject: "group/ä" } as const;
  await old.db.write((tx) => record(tx, [event, event]));
  // A replica of the older version records one, too.
  await old.db.write(async (tx) => {
    await record(tx, event);
    await tx.run("UPDATE events SET chain_bytes = NULL WHERE id = (SELECT max(id) FROM events)");
    await record(tx, event);
  });
  expect(await storedEventBytes(old.db, 1)).toBe(await queryNumber(old.db, sum));
  before.splice(0, before.length, ...(await verifyChains(old.db, fixture.secret_key)));
  const deps = { ...old.app.services, dataDirectory: directory.path };
  old.clock.ms = now + 401 * day;
  for (const [id, slug] of [
    [null, null],
    [1, "acme"],
  ] as const) {
    const all = await count(id === null ? "WHERE org_id IS NULL" : "WHERE org_id = 1");
    expect(all).toBeGreaterThan(0);
    expect(await archiveBatch(deps, { id, slug }, { eventsS: 400 * 86_400, eventBytes: 1e9 })).toBe(true);
    expect(await count(id === null ? "WHERE org_id IS NULL" : "WHERE org_id = 1")).toBe(1);
  }
  const after = await verifyChains(old.db, fixture.secret_key);
  expect(after.every(({ breaks }) => breaks.length === 0)).toBe(true);
  expect(after.slice(0, 2).map(({ archived }) => archived?.last_hash)).toEqual(
    before.slice(0, 2).map(({ head }) => head),
  );
});
