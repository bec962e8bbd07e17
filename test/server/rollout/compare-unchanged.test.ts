// Nodes of a ring beside those that have not changed.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../../src/api/organizations.ts";
import { Rollout } from "../../../src/api/rollouts.ts";
import { realSystem } from "../../../src/base/system.ts";
import { risesSince } from "../../../src/server/rollout/compare-unchanged.ts";
import { checkIn, makeFleet, newer, runRollout, type Bot, type Scene } from "../../support/rollout-fleet.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner: string;
let bots: Bot[];
const path = "/api/org/acme/rollouts/";

beforeEach(async () => {
  // The test takes the turns, beside no loop of the server.
  const sleep = (ms: number, signal?: AbortSignal) => realSystem().sleep(ms < 1000 ? ms : 3_600_000, signal);
  server = await makeTestServer({ network: { sleep } });
  acme = await server.organization("acme", "10.77.0.0/16");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
  bots = await makeFleet(server, acme, 12);
  await report(bots, {});
});
afterEach(() => server[Symbol.asyncDispose]());

type Found = { path?: "direct" | "relayed"; probe?: "answers" | "broken"; loss?: number };

/** How these nodes reach their next eight peers; `found`: the first two of them. */
async function report(some: readonly Bot[], found: Found): Promise<void> {
  server.clock.ms += 10_000;
  for (const bot of some) {
    const at = bots.indexOf(bot);
    const peers = [...bots.slice(at + 1), ...bots].slice(0, 8);
    const changed = peers.map((peer, place) => ({
      peer: peer.node.ip,
      path: "direct",
      probe: "answers",
      ...(place < 2 ? found : {}),
    }));
    await checkIn(server, bot, { paths: { whole: true, changed } });
  }
  await server.app.services.pathReports.stop();
}

async function start(watchS = 60): Promise<Rollout> {
  const body = { engine: newer, watch_s: watchS };
  const answer = await server.send("POST", path, { token: owner, body });
  return v.parse(Rollout, answer.json);
}
const changed = () => bots.filter(({ engine }) => engine === newer);
const unchanged = () => bots.filter(({ engine }) => engine !== newer);
const resume = (id: number) =>
  server.send("POST", `${path}${id}/steer/`, { token: owner, body: { action: "resume" } });

test("what nodes have that have not changed pauses the update, and takes back only the node that says it", async () => {
  const { id } = await start();
  const scene: Scene = { server, org: acme, bots, fault: "fails", seed: 1, watchS: 60 };
  const pauses: Rollout[] = [];
  const done = await runRollout(scene, {
    async onTick(shown) {
      if (changed().length > 0 && pauses.length === 0) await report(unchanged(), { probe: "broken" });
      if (shown.state !== "paused") return;
      pauses.push(shown);
      delete scene.fault;
      await report(bots, {});
      expect((await resume(id)).json).toMatchObject({
        state: "running",
        ring: 2,
        reason: "",
        failed_node: null,
      });
    },
  });
  expect(pauses).toMatchObject([
    { ring: 1, failed_node: expect.stringMatching(/^node/), probe: "large packets" },
  ]);
  expect(pauses[0]?.reason).toMatch(
    /^No packets\. Nodes that have not changed work worse, too: \d+ of \d+ paths lose packets, 0 of \d+ before$/,
  );
  expect(done.state).toBe("passed");
  expect(changed().length).toBe(11);
  const events = await server.db.all("SELECT after FROM events WHERE type = 'rollout.changed' ORDER BY id");
  expect(events.map(({ after }) => JSON.parse(String(after)).action)).toEqual(["pause", "resume"]);
});

test("a node that is silent together with others pauses the update, and goes on in its ring", async () => {
  const { id } = await start(300);
  const pauses: string[] = [];
  const silence = "UPDATE sightings SET last_checkin_at = $1";
  const scene: Scene = { server, org: acme, bots, fault: "silent", seed: 5, watchS: 300 };
  const done = await runRollout(scene, {
    async onTick({ state, reason, ring }) {
      if (ring === 1 && state === "running" && pauses.length === 0 && changed().length > 0)
        await server.db.write((tx) => tx.run(silence, [server.clock.ms - 95_000]));
      if (state !== "paused") return;
      pauses.push(reason);
      delete scene.fault;
      const least = await server.db.get("SELECT min(last_checkin_at) AS at FROM sightings");
      const isHeard = Number(least?.["at"]) > server.clock.ms - 60_000;
      if (isHeard) expect((await resume(id)).json).toMatchObject({ state: "running", ring: 1 });
    },
  });
  expect(pauses[0]).toMatch(
    /^node\d+ is not in contact since it changed\. Nodes that have not changed work worse, too: \d+ of 11 nodes are not/,
  );
  expect(done.state).toBe("passed");
  expect(changed().length).toBe(12);
});

test("nodes that have not changed, and work well, are awaited before the update stops", async () => {
  await start();
  let waited = 0;
  const done = await runRollout(
    { server, org: acme, bots, fault: "fails", seed: 2, watchS: 60 },
    {
      async onTick({ state }) {
        const row = await server.db.get("SELECT count(*) AS n FROM rollout_nodes WHERE state = 'failed'");
        if (state === "running" && Number(row?.["n"]) > 0) waited++;
      },
    },
  );
  expect(done).toMatchObject({ state: "stopped", ring: 1, reason: "No packets" });
  expect(waited).toBeGreaterThan(0);
});

test("a rise of the ring alone stops the update, although its nodes say that they work", async () => {
  await start(120);
  const done = await runRollout(
    { server, org: acme, bots, seed: 3, watchS: 120 },
    {
      async onTick() {
        if (changed().length > 0) await report(changed(), { path: "relayed" });
      },
    },
  );
  expect(done).toMatchObject({ state: "stopped", ring: 1, probe: "paths of the ring" });
  expect(done.failed_node).toMatch(/^node/);
  expect(done.reason).toBe(
    "The nodes of this ring work worse than those that have not changed: 2 of 8 paths go through a relay, 0 of 8 before; of nodes that have not changed, 0 of 80 paths go through a relay, 0 of 96 before",
  );
  expect(changed()).toEqual([]);
});

test("the same rise everywhere is none of the ring", async () => {
  await start(120);
  const done = await runRollout(
    { server, org: acme, bots, seed: 4, watchS: 120 },
    {
      async onTick() {
        if (changed().length > 0) await report(bots, { loss: 0.3 });
      },
    },
  );
  expect(done).toMatchObject({ state: "passed", reason: "" });
});

test("one path more, a tenth of them, or no node to compare with proves nothing", () => {
  const figures = (more: object) => ({ paths: 8, lossy: 0, relayed: 0, nodes: 0, silent: 0, ...more });
  const before = { ring: 1, changing: figures({}), unchanged: figures({ paths: 80, nodes: 10 }) };
  const rises = (changing: object, unchanged: object = {}) =>
    risesSince(before, {
      changing: figures(changing),
      unchanged: figures({ paths: 80, nodes: 10, ...unchanged }),
    });
  expect(rises({ lossy: 1 }).changing).toBeUndefined();
  expect(rises({ paths: 20, lossy: 2 }).changing).toBeUndefined();
  expect(rises({ lossy: 2 }, { paths: 0 }).changing).toBeUndefined();
  expect(rises({ lossy: 2 }, { lossy: 16 })).toMatchObject({
    changing: undefined,
    unchanged: "16 of 80 paths lose packets, 0 of 80 before",
  });
  expect(rises({ lossy: 2 }).changing).toStartWith("2 of 8 paths lose packets");
  expect(rises({}, { silent: 2 }).unchanged).toBe("2 of 10 nodes are not in contact, 0 of 10 before");
});
