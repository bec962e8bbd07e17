// What the clocks of nodes say of the control plane's.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../../../src/api/organizations.ts";
import { makeClockWatch } from "../../../../src/server/certificates/clock-watch.ts";
import { makeClock } from "../../../support/clock.ts";
import { makeKeys, registerNode, registrationToken, sendRegistration } from "../../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../../support/server.ts";

const [minute, hour, day] = [60_000, 3_600_000, 86_400_000];
let server: TestServer;
let org: Organization;
let staff: string;
let owner: string;

beforeEach(async () => {
  // The server's own loops sleep on a clock that never moves.
  server = await makeTestServer({ network: { sleep: makeClock().sleep } });
  org = await server.organization("acme");
  staff = await server.person("staff@example.org", { isStaff: true });
  owner = await server.person("owner@example.org");
  await server.join(org, "owner@example.org", "owner");
});
afterEach(() => server[Symbol.asyncDispose]());

describe("the clocks of nodes", () => {
  const nodeWith = async (name: string, aheadMs: number) => {
    const node = await registerNode(server, org, name);
    const time = () => Math.floor((server.clock.ms + server.clock.steppedMs + aheadMs) / 1000);
    const report = () => node.checkin({ overlay_state: "running", time: time() });
    await report();
    return { ...node, report };
  };
  const warnings = async () => {
    const ready = await server.send("GET", "/readyz");
    const { json } = await server.send("GET", "/api/servers/", { token: staff });
    expect(json).toMatchObject({ warnings: Object(ready.json).warnings.map((code: string) => ({ code })) });
    return { ready: ready.json, json };
  };
  const findingOf = async (id: number) => {
    const { json } = await server.send("GET", `/api/org/acme/nodes/${id}/`, { token: owner });
    return v.parse(v.object({ finding: v.nullable(v.string()) }), json).finding;
  };

  test("one that is wrong is shown with its node, and is no warning of the server", async () => {
    const [wrong, right] = [await nodeWith("wrong", hour), await nodeWith("right", minute)];
    expect([await findingOf(wrong.id), await findingOf(right.id)]).toEqual(["clock_differs", null]);
    expect(await warnings()).toMatchObject({ ready: { warnings: [] } });
  });

  test("that agree against this server are a warning, told once, and keep nothing from being signed", async () => {
    const all = await Promise.all(["a", "b", "c", "d"].map((name) => nodeWith(name, -5 * day)));
    const look = makeClockWatch(server.app.services);
    expect(await warnings()).toMatchObject({
      ready: { status: "ok", warnings: ["clock_doubted_by_nodes"] },
      json: {
        warnings: [
          { text: "The clock of this server is 5 days ahead of those of 4 of the last 4 nodes of acme." },
        ],
      },
    });
    for (let at = 0; at < 10; at++) await look();
    expect(server.log.filter((line) => line.includes("ahead of those of 4"))).toHaveLength(1);
    const late = { name: "late", ...(await makeKeys("late")) };
    const registration_token = await registrationToken(server, org);
    expect((await sendRegistration(server, "acme", { ...late, registration_token })).status).toBe(201);
    // Once most of them are right, and once they are silent.
    for (const { id, token } of all.slice(0, 3))
      await server.send("POST", `/api/org/acme/nodes/${id}/checkin/`, {
        token,
        body: { version: "1", uptime: 1, time: server.clock.ms / 1000 },
      });
    expect(await warnings()).toMatchObject({ ready: { warnings: [] } });
    for (const each of all) await each.report();
    expect(await warnings()).toMatchObject({ ready: { warnings: ["clock_doubted_by_nodes"] } });
    server.clock.ms += hour;
    expect((await server.send("GET", "/readyz")).json).toMatchObject({ warnings: [] });
  });

  test("of two, or of a half, are none", async () => {
    for (const [name, ahead] of [
      ["a", day],
      ["b", day],
    ] as const)
      await nodeWith(name, ahead);
    expect(await warnings()).toMatchObject({ ready: { warnings: [] } });
    for (const [name, ahead] of [
      ["c", day],
      ["d", 0],
      ["e", 0],
      ["f", -day],
    ] as const)
      await nodeWith(name, ahead);
    expect(await warnings()).toMatchObject({ ready: { warnings: [] } });
  });
});
