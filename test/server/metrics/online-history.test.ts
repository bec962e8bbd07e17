// How many nodes were online: counted in intervals, shown by day, deleted after a month.

import { OnlineHistory } from "../../../src/api/history/online-history.ts";
import { join } from "node:path";
import { SQL } from "bun";
import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { countEvents, listEvents } from "../../../src/server/audit/read.ts";
import { countOnline, onlineHistory } from "../../../src/server/metrics/online-history.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { fixture, writeFixture } from "../../support/fixture.ts";
import { undoHistory } from "../../support/former-history.ts";
import { checkinOf, registerNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import { describePostgres, openedAt, useMigrated } from "../../support/postgres.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let server: TestServer;
let org: Organization;
let admin = "";
let other: Organization;
useNumbered((made) => {
  ({ server, org, admin } = made);
});
beforeEach(async () => {
  other = await server.organization(`other-${org.id}`);
  await server.db.write((tx) => tx.run("DELETE FROM online_counts"));
});

const count = () => countOnline(server.app.services);
const ask = (days: string, slug = org.slug) =>
  server.send("GET", `/api/org/${slug}/online/?days=${days}`, { token: admin });
const history = async (days = "1") => v.parse(OnlineHistory, (await ask(days)).json);
const check = (at: number) =>
  server.db.write((tx) => tx.run("UPDATE sightings SET last_checkin_at = $1", [at]));
const minuteMs = 60_000;

test("nodes are counted once in each interval, as they are then", async () => {
  const start = Math.ceil(server.clock.ms / (5 * minuteMs)) * 5 * minuteMs;
  server.clock.ms = start;
  const { id } = await registerNode(server, org, "one");
  await registerNode(server, org, "two");
  await count();
  await server.db.write((tx) =>
    tx.run(
      "INSERT INTO sightings (node_id, last_checkin_at) VALUES ($1, $2) ON CONFLICT (node_id) DO UPDATE SET last_checkin_at = $2",
      [id, start],
    ),
  );
  server.clock.ms = start + minuteMs;
  await count();
  server.clock.ms = start + 5 * minuteMs;
  await check(server.clock.ms - minuteMs);
  await count();
  server.clock.ms = start + 10 * minuteMs;
  await count();
  const { every_s, points } = await history();
  expect(every_s).toBe(300);
  expect(
    points.map(({ at, online, active }) => [(Date.parse(at) - start) / minuteMs, online, active]),
  ).toEqual([
    [0, 0, 2],
    [5, 1, 2],
    [10, 0, 2],
  ]);
});

test("points of several days are averages, another organization sees none, and old ones are deleted", async () => {
  const step = 7 * 5 * minuteMs;
  const first = Math.floor(server.clock.ms / step - 5) * step;
  await server.db.write(async (tx) => {
    for (const [at, online] of [0, 4, 8].entries())
      await tx.run("INSERT INTO online_counts (org_id, at, online, active) VALUES ($1, $2, $3, 10)", [
        org.id,
        first + at * 5 * minuteMs,
        online,
      ]);
  });
  expect(await history("7")).toMatchObject({ every_s: step / 1000, points: [{ online: 4, active: 10 }] });
  const at = (index: number) => first + index * 5 * minuteMs;
  const { least, most, last } = await history("7");
  // Of single counts: a longer time has no higher minimum than its last day.
  expect([least, most, last].map((one) => one && [Date.parse(one.at), one.online])).toEqual([
    [at(0), 0],
    [at(2), 8],
    [at(2), 8],
  ]);
  expect((await ask("2")).status).toBe(200);
  expect((await ask("3")).status).toBe(400);
  expect((await ask("1", other.slug)).json).not.toMatchObject({ points: [{ online: 4 }] });
  server.clock.ms += 31 * 86_400_000;
  await count();
  expect(await server.db.all("SELECT online FROM online_counts WHERE org_id = $1", [org.id])).toEqual([]);
});

test("path kinds, round trips and applied configurations are counted; members do not get those of paths", async () => {
  const [one, two] = [await registerNode(server, org, "one"), await registerNode(server, org, "two")];
  server.clock.ms += 30_000;
  const { config_version } = checkinOf(await one.checkin({ paths: { whole: true, changed: [path(two)] } }));
  await one.checkin({ config_version });
  await server.app.services.pathReports.stop();
  await server.app.services.reports.stop();
  await count();
  const counted = { direct: 1, relayed: 0, broken: 0, rtt_ms_median: 12.5, rtt_ms_95: 12.5 };
  expect((await history()).last).toMatchObject({ online: 1, active: 2, current: 1, ...counted });
  const email = `member-of-${org.slug}@example.org`;
  const member = await server.person(email);
  await server.join(org, email, "member");
  const seen = await server.send("GET", `/api/org/${org.slug}/online/`, { token: member });
  const nothing = { direct: null, relayed: null, broken: null, rtt_ms_median: null, rtt_ms_95: null };
  expect(v.parse(OnlineHistory, seen.json)).toMatchObject({
    points: [{ online: 1, current: 1, ...nothing }],
    last: { online: 1, ...nothing },
  });
  // Without reports nothing is said of paths, and what was not counted before stays unsaid.
  const off = { path_reports: false };
  await server.send("PATCH", `/api/org/${org.slug}/`, { token: admin, body: off });
  server.clock.ms += 5 * minuteMs;
  await count();
  expect((await history()).last).toMatchObject({ active: 2, current: 1, ...nothing });
});

const path = ({ ip }: { ip: string }) => ({
  peer: ip,
  path: "direct",
  remote: "192.0.2.7:4242",
  probe: "answers",
  rtt_ms: 12.5,
  loss: 0,
});

/** After a migration: counts of the version before stay, what it did not count is null, and its events have their hours. */
async function expectMigrated(old: TestServer, orgId: number, direct: number): Promise<void> {
  await countOnline(old.app.services);
  const { points } = await onlineHistory(old.db, orgId, { days: 30, now: old.clock.ms, isMember: false });
  expect(points).toMatchObject([
    { online: 3, active: 5, current: null, direct: null, rtt_ms_95: null },
    { current: expect.any(Number), direct, rtt_ms_95: direct === 0 ? null : 12.5 },
  ]);
  const hours = await countEvents(old.db, orgId, 30, old.clock.ms);
  const stored = await old.db.all("SELECT id FROM events WHERE org_id = $1 ORDER BY id", [orgId]);
  expect(stored.length).toBeGreaterThan(0);
  expect(hours.reduce((sum, hour) => sum + hour.count, 0)).toBe(stored.length);
  const span = { from: old.clock.ms - 30 * 86_400_000, until: old.clock.ms + 1 };
  const { events } = await listEvents(old.db, orgId, { after: 0, limit: 1000, ...span });
  expect(events.map(({ id }) => id)).toEqual(stored.map(({ id }) => Number(id)));
}
const before = "INSERT INTO online_counts (org_id, at, online, active) VALUES ($1, $2, 3, 5)";

test("a database of 0.1.0 gets the counts", async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, "control.db");
  writeFixture(file);
  const now = Date.parse(fixture.made_at);
  await using old = await makeTestServer({
    secretKey: fixture.secret_key,
    open: async () => ({
      db: await openSqlite({ path: file, now: () => now, role: "server" }),
      dispose: () => undefined,
    }),
  });
  old.clock.ms = now + 86_400_000;
  await old.db.write((tx) => tx.run(before, [1, now - (now % (5 * minuteMs))]));
  await expectMigrated(old, 1, 0);
});

describePostgres("on PostgreSQL", () => {
  const createDatabase = useMigrated();

  test("data of the version before migrates, and two servers count once", async () => {
    const url = await createDatabase();
    const secretKey = crypto.getRandomValues(new Uint8Array(32));
    {
      await using former = await makeTestServer({ open: openedAt(url), secretKey });
      const own = await former.organization("acme");
      const [web, db] = [await registerNode(former, own, "web"), await registerNode(former, own, "db")];
      former.clock.ms += 30_000;
      await web.checkin({ paths: { whole: true, changed: [path(db)] } });
      await former.app.services.pathReports.stop();
      await former.app.services.reports.stop();
    }
    await using sql = new SQL(url);
    await undoHistory(sql);
    await using first = await makeTestServer({ open: openedAt(url), secretKey });
    await using second = await makeTestServer({ open: openedAt(url), secretKey });
    const at = first.clock.ms - (first.clock.ms % (5 * minuteMs));
    await first.db.write((tx) => tx.run(before, [1, at - 86_400_000]));
    await countOnline(second.app.services);
    await expectMigrated(first, 1, 1);
  });
});
