// Nodes that are away for longer than their organization allows are told once, and once more when they are back.

import { join } from "node:path";
import { SQL } from "bun";
import { beforeEach, describe, expect, test } from "bun:test";
import type { Organization } from "../../../src/api/organizations.ts";
import { recordAway } from "../../../src/server/nodes/contact/away-nodes.ts";
import { hour, minute, useEphemeral } from "../../support/ephemeral.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { fixture, writeFixture } from "../../support/fixture.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { undoHistory } from "../../support/former-history.ts";
import { describePostgres, openedAt, useMigrated } from "../../support/postgres.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let server: TestServer;
let org: Organization;
const { job, call, watch } = useEphemeral((made) => ({ server, org } = made));

const done = async (...of: Parameters<typeof call>) => expect((await call(...of)).status).toBeLessThan(300);
const set = (notify_away_minutes: number | null) => done("PATCH", "", { notify_away_minutes });
/** What is told from now on: "away web". */
async function toldDuring(run: () => Promise<unknown>): Promise<string[]> {
  const newest = "SELECT coalesce(max(id), 0) AS id FROM events";
  const before = Number((await server.db.get(newest))?.["id"]);
  await run();
  await recordAway(server.app.services);
  const events = await server.db.all(
    "SELECT type, after FROM events WHERE id > $1 AND org_id = $2 AND type IN ('node.away', 'node.online') ORDER BY id",
    [before, org.id],
  );
  return events.map(({ type, after }) => {
    const { name, away_since } = JSON.parse(String(after));
    expect(Date.parse(away_since)).toBeLessThanOrEqual(server.clock.ms);
    return `${String(type).slice(5)} ${name}`;
  });
}
/** Time in which the server runs, and these nodes check in every minute. */
async function live(ms: number, nodes: readonly RegisteredNode[] = []): Promise<void> {
  for (let passed = 0; passed < ms; passed += minute) {
    for (let part = 0; part < 6; part++) {
      server.clock.ms += minute / 6;
      await watch();
    }
    for (const node of nodes) expect((await node.checkin({ config_version: 1 })).status).toBe(200);
    await watch();
    await recordAway(server.app.services);
  }
}
describe("nodes that are away", () => {
  let web: RegisteredNode;
  let db: RegisteredNode;
  beforeEach(async () => {
    web = await registerNode(server, org, "web");
    db = await registerNode(server, org, "db");
    for (const node of [web, db]) await node.checkin({ config_version: 1 });
  });

  test("an absence is told once, and its end once; the next one again", async () => {
    await set(5);
    expect(await toldDuring(() => live(5 * minute, [db]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [db]))).toEqual(["away web"]);
    expect(await toldDuring(() => live(12 * minute, [db]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [db, web]))).toEqual(["online web"]);
    expect(await toldDuring(() => live(10 * minute, [db, web]))).toEqual([]);
    expect(await toldDuring(() => live(10 * minute, [web]))).toEqual(["away db"]);
  });

  test("without the setting nothing is told; it counts from when it is set, and what is off is forgotten", async () => {
    expect(await toldDuring(() => live(12 * minute))).toEqual([]);
    await set(5);
    expect(await toldDuring(() => live(4 * minute))).toEqual([]);
    expect(await toldDuring(() => live(2 * minute))).toEqual(["away web", "away db"]);
    await set(null);
    expect(await toldDuring(() => live(10 * minute, [web]))).toEqual([]);
    await set(5);
    expect(await toldDuring(() => live(10 * minute, [web]))).toEqual(["away db"]);
  });

  test("the time in which no server ran is no absence, nor is a jump of the clock", async () => {
    await set(5);
    await live(2 * minute, [web, db]);
    // Down, or the clock jumps ahead.
    server.clock.ms += 5 * hour;
    expect(await toldDuring(() => live(minute))).toEqual([]);
    expect(await toldDuring(() => live(10 * minute, [web]))).toEqual(["away db"]);
    // Told before the restart: not again, and the end is told.
    server.clock.ms += 5 * hour;
    expect(await toldDuring(() => live(10 * minute, [web]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [web, db]))).toEqual(["online db"]);
  });

  test("after the clock was set back, absences are told in time, and their ends", async () => {
    await set(5);
    server.clock.ms += 5 * hour;
    await live(2 * minute, [web, db]);
    server.clock.ms -= 5 * hour;
    expect(await toldDuring(() => live(4 * minute, [web]))).toEqual([]);
    expect(await toldDuring(() => live(3 * minute, [web]))).toEqual(["away db"]);
    expect(await toldDuring(() => live(20 * minute, [web]))).toEqual([]);
    expect(await toldDuring(() => live(minute, [web, db]))).toEqual(["online db"]);
  });

  test("nodes that never checked in, ephemeral and revoked ones are never told; a restored one from its restore", async () => {
    await set(5);
    const ephemeral = await job("job", { silence: "1h" });
    await ephemeral.checkin({ overlay_state: "running" });
    await registerNode(server, org, "unseen");
    await done("DELETE", `nodes/${web.id}/`);
    expect(await toldDuring(() => live(15 * minute, [db]))).toEqual([]);
    await done("POST", `nodes/${web.id}/restore/`, {});
    expect(await toldDuring(() => live(4 * minute, [db]))).toEqual([]);
    expect(await toldDuring(() => live(2 * minute, [db]))).toEqual(["away web"]);
    // Revoked while it is away: its end is not told, and a restore begins anew.
    await done("DELETE", `nodes/${web.id}/`);
    await done("POST", `nodes/${web.id}/restore/`, {});
    expect(await toldDuring(() => live(minute, [db, web]))).toEqual([]);
  });

  test("a node that a peer reaches is not away, until the peer reaches it no longer or is away itself", async () => {
    await set(5);
    const say = async (probe: string) => {
      server.clock.ms += minute;
      await db.checkin({ paths: { changed: [{ peer: web.ip, path: "direct", probe }] } });
      await server.app.services.pathReports.stop();
      await watch();
    };
    await say("answers");
    expect(await toldDuring(() => live(20 * minute, [db]))).toEqual([]);
    await say("broken");
    expect(await toldDuring(() => live(minute, [db]))).toEqual(["away web"]);
    expect(await toldDuring(() => live(2 * minute, [db, web]))).toEqual(["online web"]);
    await say("answers");
    expect(await toldDuring(() => live(10 * minute))).toEqual(["away web", "away db"]);
  });

  test("of more nodes than one query reads, each is told", async () => {
    await set(5);
    const at = server.clock.ms;
    await server.db.write(async (tx) => {
      for (let n = 0; n < 2100; n++) {
        await tx.run(
          `INSERT INTO nodes (org_id, name, ip, state, created_at, registered_at) VALUES ($1, $2, $3, 'active', 1, 1)`,
          [org.id, `many-${n}`, `10.77.${Math.floor(n / 250) + 100}.${n % 250}`],
        );
      }
      await tx.run(
        "INSERT INTO sightings (node_id, last_checkin_at) SELECT id, $1 FROM nodes WHERE name LIKE 'many-%'",
        [at],
      );
    });
    expect(await toldDuring(() => live(6 * minute, [web, db]))).toHaveLength(2100);
    expect(await toldDuring(() => live(minute, [web, db]))).toEqual([]);
  });
});

const told = (of: TestServer) =>
  of.db.all("SELECT type, subject FROM events WHERE type IN ('node.away', 'node.online') ORDER BY id");
/** The server looks every 5 s for so long. */
async function look(of: readonly TestServer[], ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5000) {
    for (const each of of) each.clock.ms += 5000;
    await Promise.all(of.map((each) => recordAway(each.app.services)));
  }
}

test("a database of 0.1.0 tells of no node, until it is set", async () => {
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
  old.clock.ms = now;
  await old.db.write((tx) => tx.run("UPDATE sightings SET last_checkin_at = $1", [now]));
  await look([old], 10 * minute);
  expect(await told(old)).toEqual([]);
  const token = (await old.app.services.sessions.start(1)).access;
  const place = "/api/org/acme/";
  expect((await old.send("GET", place, { token })).json).toMatchObject({ notify_away_minutes: null });
  const set = await old.send("PATCH", place, { token, body: { notify_away_minutes: 5 } });
  expect(set.json).toMatchObject({ notify_away_minutes: 5 });
  await look([old], 6 * minute);
  const active = await old.db.all(
    "SELECT id FROM nodes JOIN sightings ON node_id = id WHERE state = 'active' ORDER BY id",
  );
  expect(active.length).toBeGreaterThan(0);
  expect(await told(old)).toEqual(
    active.map(({ id }) => ({ type: "node.away", subject: `node/${String(id)}` })),
  );
});

/** The migration that made it possible. */
const awayVersion = 56;

describePostgres("nodes that are away, on PostgreSQL", () => {
  const createDatabase = useMigrated();

  test("data of the version before migrates; of two servers that look at once, one tells", async () => {
    const url = await createDatabase();
    const secretKey = crypto.getRandomValues(new Uint8Array(32));
    let node: RegisteredNode;
    let own: Organization;
    {
      await using before = await makeTestServer({ open: openedAt(url), secretKey });
      own = await before.organization("acme");
      node = await registerNode(before, own, "web");
      await node.checkin({ config_version: 1 });
      await before.app.services.reports.stop();
    }
    await using sql = new SQL(url);
    await sql`ALTER TABLE nodes DROP COLUMN away_since`;
    await sql`ALTER TABLE organizations DROP COLUMN notify_away_minutes, DROP COLUMN notify_away_from`;
    await undoHistory(sql);
    await sql`DELETE FROM migrations WHERE version >= ${awayVersion}`;
    await using first = await makeTestServer({ open: openedAt(url), secretKey });
    await using second = await makeTestServer({ open: openedAt(url), secretKey });
    const both = [first, second];
    await look(both, 10 * minute);
    expect(await told(first)).toEqual([]);
    await first.db.write((tx) => tx.run("UPDATE organizations SET notify_away_minutes = 5"));
    await look(both, 10 * minute);
    expect(await told(second)).toEqual([{ type: "node.away", subject: `node/${node.id}` }]);
    await first.db.write((tx) => tx.run("UPDATE sightings SET last_checkin_at = $1", [first.clock.ms]));
    await look(both, minute);
    expect((await told(second)).map(({ type }) => type)).toEqual(["node.away", "node.online"]);
  });
});
