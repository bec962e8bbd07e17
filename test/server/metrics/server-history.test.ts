// What servers did over the last day: a row a minute by each, shown by host in steps of five minutes.

import { beforeEach, expect, test } from "bun:test";
import { hostname } from "node:os";
import * as v from "valibot";
import { request } from "../../../src/api/request.ts";
import { serversApi } from "../../../src/api/servers.ts";
import { buildInfo } from "../../../src/build-info.ts";
import { makeSampler, percentile, serverHistory } from "../../../src/server/metrics/server-history.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { queryNumber } from "../../../src/server/store/table.ts";
import { registerNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

const minuteMs = 60_000;
const stepMs = 5 * minuteMs;
let server: TestServer;
let org: Organization;
let admin = "";
let start: number;
useNumbered((made) => {
  ({ server, org, admin } = made);
});
beforeEach(async () => {
  await server.db.write((tx) => tx.run("DELETE FROM server_samples"));
  start = Math.ceil(server.clock.ms / stepMs) * stepMs;
  server.clock.ms = start;
});

const sampler = (id: string, host = "one") => makeSampler(server.app.services, { id, host });
const rows = () => queryNumber(server.db, "SELECT count(*) AS n FROM server_samples");
const history = () => serverHistory(server.db, server.clock.ms);

test("a row counts what happened since the row before, and a restart goes on in the same line", async () => {
  const node = await registerNode(server, org, "one");
  const before = sampler("before");
  await before();
  await node.checkin();
  await node.checkin();
  server.clock.ms = start + minuteMs;
  await before();
  server.clock.ms = start + 2 * minuteMs;
  await before();
  const counts = await server.db.all("SELECT checkins FROM server_samples WHERE at > $1 ORDER BY at", [
    start,
  ]);
  expect(counts.map(({ checkins }) => Number(checkins))).toEqual([2, 0]);
  // The counters of the new process begin with what this test's only process has counted.
  await server.db.write((tx) => tx.run("DELETE FROM server_samples WHERE at = $1", [start]));
  server.clock.ms = start + stepMs;
  const after = sampler("after");
  await after();
  await server.db.write((tx) => tx.run("DELETE FROM server_samples WHERE at = $1", [start + stepMs]));
  await node.checkin();
  server.clock.ms = start + stepMs + minuteMs;
  await after();
  // Time that has not ended is not shown.
  expect((await history()).hosts.flatMap(({ points }) => points)).toHaveLength(1);
  server.clock.ms = start + 2 * stepMs;
  const { every_s, hosts } = await history();
  expect([every_s, hosts.length, hosts[0]?.host]).toEqual([300, 1, "one"]);
  expect(hosts[0]?.points.map(({ at, checkins }) => [Date.parse(at) - start, checkins])).toEqual([
    [0, 2],
    [stepMs, 1],
  ]);
  const [point] = hosts[0]?.points ?? [];
  expect([point?.errors, point?.waiting]).toEqual([0, 0]);
  expect(point?.requests).toBeGreaterThanOrEqual(2);
  expect(point?.p99_ms).toBeGreaterThan(0);
  expect(point?.memory_bytes).toBeGreaterThan(1_000_000);
});

test("a time of which the first rows are a day old is left out", async () => {
  const sample = sampler("a", "one");
  for (const after of [2 * minuteMs, stepMs, stepMs + minuteMs]) {
    server.clock.ms = start + after;
    await sample();
  }
  const shown = async (after: number) => {
    server.clock.ms = start + 86_400_000 + after;
    return (await history()).hosts.flatMap(({ points }) => points.map(({ at }) => Date.parse(at) - start));
  };
  expect(await shown(0)).toEqual([0, stepMs]);
  expect(await shown(minuteMs)).toEqual([stepMs]);
});

test("servers have lines of their own, and rows are deleted after a day", async () => {
  await sampler("a", "one")();
  await sampler("b", "two")();
  server.clock.ms = start + stepMs;
  expect((await history()).hosts.map(({ host }) => host)).toEqual(["one", "two"]);
  server.clock.ms = start + 86_400_000;
  await sampler("b", "two")();
  expect(await rows()).toBe(3);
  server.clock.ms += 1;
  await sampler("b", "two")();
  expect(await rows()).toBe(2);
});

test("what could not be written is in the next row", async () => {
  const node = await registerNode(server, org, "one");
  const { services } = server.app;
  let isAway = false;
  const db: typeof services.db = {
    ...services.db,
    writeFor: (...call: Parameters<typeof services.db.writeFor>) =>
      isAway ? Promise.reject(new Error("away")) : services.db.writeFor(...call),
  } as typeof services.db;
  const sample = makeSampler({ ...services, db }, { id: "a", host: "one" });
  await sample();
  await node.checkin();
  isAway = true;
  server.clock.ms = start + minuteMs;
  const failed = await sample().catch((error: unknown) => String(error));
  expect(failed).toContain("away");
  isAway = false;
  server.clock.ms = start + 2 * minuteMs;
  await sample();
  const last = await queryNumber(server.db, "SELECT checkins AS n FROM server_samples WHERE at = $1", [
    server.clock.ms,
  ]);
  expect(last).toBe(1);
});

test("the server that answers says its version and since when it runs", async () => {
  const staff = await server.person(`answered-${org.id}@example.org`, { isStaff: true });
  const answered = await server.send("GET", "/api/servers/", { token: staff });
  expect(answered.json).toMatchObject({
    answering: { host: hostname(), version: buildInfo.version, started_at: expect.stringMatching(/Z$/) },
  });
});

test("only staff read it", async () => {
  await sampler("a")();
  server.clock.ms += stepMs;
  const staff = await server.person(`staff-${org.id}@example.org`, { isStaff: true });
  const ask = (token: string) => server.send("GET", "/api/servers/history/", { token });
  expect((await ask(admin)).status).toBe(403);
  const { schema } = request(serversApi.history, {});
  expect(v.parse(schema, (await ask(staff)).json)?.hosts).toHaveLength(1);
});

test.each([
  [[], null],
  [
    [
      [1, 99],
      [5, 1],
    ],
    1,
  ],
  [
    [
      [1, 98],
      [5, 2],
    ],
    5,
  ],
  [
    [
      [1, 0],
      [2.5, 3],
    ],
    3,
  ],
] as const)("the bound of 99 of 100 among %j is %p", (counts, expected) => {
  expect(
    percentile(
      counts.map(([upToMs, count]) => ({ upToMs, count })),
      0.99,
    ),
  ).toBe(expected);
});
