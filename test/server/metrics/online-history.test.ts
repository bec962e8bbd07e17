// How many nodes were online: counted in intervals, shown by day, deleted after a month.

import { OnlineHistory } from "../../../src/api/nodes.ts";
import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { countOnline } from "../../../src/server/metrics/online-history.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { registerNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

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
