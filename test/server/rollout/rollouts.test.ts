// Updates in rings on the control plane, with nodes that check in and report.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { Rollout } from "../../../src/api/rollouts.ts";
import { Node } from "../../../src/protocol/node.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { realSystem } from "../../../src/base/system.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { watchSilence } from "../../../src/server/nodes/contact/silence.ts";
import { advanceRollouts, makeRollouts } from "../../../src/server/rollout/rollout-turn.ts";
import { createRollout } from "../../../src/server/rollout/rollouts.ts";
import { codeOf, registerNode } from "../../support/nodes.ts";
import { makeRandom } from "../../support/random.ts";
import {
  checkIn,
  makeFleet,
  newer,
  older,
  runRollout,
  type Bot,
  type Fault,
} from "../../support/rollout-fleet.ts";
import { makeTestServer, onPostgres, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner: string;
const watchS = 60;

beforeEach(async () => {
  // The test takes the turns, beside no loop of the server.
  const sleep = (ms: number, signal?: AbortSignal) => realSystem().sleep(ms < 1000 ? ms : 3_600_000, signal);
  server = await makeTestServer({ network: { sleep } });
  acme = await server.organization("acme", "10.77.0.0/16");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
});
afterEach(() => server[Symbol.asyncDispose]());

const path = "/api/org/acme/rollouts/";
const create = (body: object = {}) =>
  server.send("POST", path, { token: owner, body: { engine: newer, watch_s: watchS, ...body } });
const start = async (body: object = {}) => {
  const answer = await create(body);
  if (answer.status !== 201) throw new Error(answer.text);
  return v.parse(Rollout, answer.json);
};
const steer = (id: number, action: string) =>
  server.send("POST", `${path}${id}/steer/`, { token: owner, body: { action } });
const changed = (bots: readonly Bot[]) => bots.filter(({ engine }) => engine === newer).length;

describe("a good update", () => {
  test("goes through the rings, hubs last and one of a kind at a time", async () => {
    const bots = await makeFleet(server, acme, 40, (at) =>
      at < 3 ? { is_lighthouse: true, public_ip: `192.0.2.${at + 1}` } : {},
    );
    await start();
    const sizes = new Map<number, number>();
    const done = await runRollout(
      { server, org: acme, bots, seed: 1, watchS },
      {
        async onTick({ ring, state }) {
          if (state === "running") sizes.set(ring, Math.max(sizes.get(ring) ?? 0, changed(bots)));
          const busy = await server.db.get(
            `SELECT count(*) AS n FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
             WHERE n.is_lighthouse = 1 AND m.state = 'told'`,
          );
          expect(Number(busy?.["n"])).toBeLessThanOrEqual(1);
        },
      },
    );
    expect(done).toMatchObject({ state: "passed", reason: "" });
    expect([...sizes.values()]).toEqual([1, 2, 10, 40]);
    expect(changed(bots)).toBe(40);
    const left = await server.db.get("SELECT count(*) AS n FROM nodes WHERE update_order IS NOT NULL");
    expect(Number(left?.["n"])).toBe(0);
  });

  test("leaves out nodes without permission, with a higher version, or of other groups", async () => {
    const bots = await makeFleet(server, acme, 3);
    await registerNode(server, acme, "closed", { overlay_version: older });
    const higher = await registerNode(server, acme, "higher", { overlay_version: "1.12.0" });
    const updates = { may: ["engine"], order: 0, zone: 0 };
    await higher.checkin({ overlay_version: "1.12.0", updates });
    const { rings } = await start();
    expect(rings.map(({ waiting }) => waiting).reduce((sum, each) => sum + each)).toBe(bots.length);
    const listed = await server.send("GET", "/api/org/acme/nodes/", { token: owner });
    const permitted = v.parse(v.array(Node), listed.json).map(({ name, may_update }) => [name, may_update]);
    expect(permitted).toContainEqual(["closed", []]);
    expect(permitted).toContainEqual(["higher", ["engine"]]);
  });

  test("begins with nodes that have just made their first check-in", async () => {
    for (const name of ["node0", "node1"]) {
      const node = await registerNode(server, acme, name, { overlay_version: older });
      await checkIn(server, { node, engine: older, order: undefined, at: 0, said: "nothing" });
    }
    const { id } = await start();
    await advanceRollouts(server.app.services);
    const shown = await server.send("GET", `${path}${id}/nodes/`, { token: owner });
    expect(shown.json).toMatchObject([{ state: "told" }, { state: "waiting" }]);
  });

  test("is refused for a lower version, although the replaced program still checks in with its own", async () => {
    const bots = await makeFleet(server, acme, 3);
    await start({ engine: undefined, agent: "1.3.0" });
    expect(await runRollout({ server, org: acme, bots, seed: 7, watchS })).toMatchObject({ state: "passed" });
    // A long check of server mode began before the change.
    for (const { node } of bots) await node.checkin({ version: "1.0.0" });
    await server.app.services.reports.stop();
    const lower = await create({ engine: undefined, agent: "1.2.0" });
    expect(codeOf(lower)).toEqual([409, "conflict"]);
    expect(lower.text).toContain("has this version or a higher one");
    // Root may have gone back by hand since.
    server.clock.ms += 120_000;
    expect((await create({ engine: undefined, agent: "1.2.0" })).status).toBe(201);
  });

  test("is refused where nothing may be updated, and beside another one", async () => {
    await registerNode(server, acme, "closed", { overlay_version: older });
    expect(codeOf(await create())).toEqual([409, "conflict"]);
    expect(codeOf(await create({ engine: undefined }))).toEqual([400, "validation_failed"]);
    await makeFleet(server, acme, 2);
    await start();
    expect(codeOf(await create())).toEqual([409, "conflict"]);
  });

  test("and a drill exclude each other: nodes would go back for what the drill takes away", async () => {
    await makeFleet(server, acme, 2);
    const drill = () =>
      server.send("POST", "/api/org/acme/drills/", {
        token: owner,
        body: { kind: "control-plane-away", for_s: 10 },
      });
    const { id } = await start();
    expect((await drill()).text).toContain(`Rollout ${id} is under way`);
    await server.db.write((tx) => tx.run("UPDATE rollouts SET state = 'stopped', ended_at = 1"));
    expect((await drill()).status).toBe(201);
    expect((await create()).text).toContain("is under way until");
    server.clock.ms += 15_000 + 60_000;
    expect((await create()).status).toBe(201);
  });

  test("has its rings, too, if the clock of the control plane was set back since the last one", async () => {
    await makeFleet(server, acme, 40);
    const sizes = ({ rings }: Rollout) => rings.map(({ waiting }) => waiting);
    expect(sizes(await start())).toEqual([1, 1, 8, 30]);
    const ahead = "UPDATE rollouts SET state = 'stopped', ended_at = 1, created_at = created_at + 3600000";
    await server.db.write((tx) => tx.run(ahead));
    expect(sizes(await start())).toEqual([1, 1, 8, 30]);
  });

  test("waits for the hours of the nodes", async () => {
    const bots = await makeFleet(server, acme, 2);
    // The clock of the tests begins at midnight (UTC) of a Saturday.
    await start({ hours: [{ days: ["sat"], from: 2, until: 4 }] });
    const began = server.clock.ms;
    const shown = await server.send("GET", path, { token: owner });
    expect(shown.json).toMatchObject([{ waits_until: "2026-11-21T02:00:00Z" }]);
    let first = 0;
    await runRollout(
      { server, org: acme, bots, seed: 2, watchS },
      { onTick: () => void (first ||= changed(bots) > 0 ? server.clock.ms : 0) },
    );
    expect(first - began).toBeGreaterThan(7_200_000 - 60_000);
    expect(changed(bots)).toBe(2);
  });
});

describe("root ends the permission during an update", () => {
  const statesOf = async (bot: Bot) =>
    server.db.get("SELECT state, reason FROM rollout_nodes WHERE node_id = $1", [bot.node.id]);

  for (const when of ["waiting", "told"] as const)
    test(`of a node that is ${when}: it is left out, and the others go on`, async () => {
      const bots = await makeFleet(server, acme, 12);
      await start();
      let closed: Bot | undefined;
      const done = await runRollout(
        { server, org: acme, bots, seed: 6, watchS },
        {
          async onTick({ ring }) {
            if (ring !== 2 || closed !== undefined) return;
            const sql = "SELECT node_id FROM rollout_nodes WHERE state = $1 ORDER BY ring DESC LIMIT 1";
            const row = await server.db.get(sql, [when]);
            closed = bots.find(({ node }) => node.id === row?.["node_id"]);
            if (closed !== undefined) closed.isClosed = true;
          },
        },
      );
      expect(done).toMatchObject({ state: "passed", reason: "" });
      expect(changed(bots)).toBe(11);
      expect(closed?.engine).toBe(older);
      expect(closed && (await statesOf(closed))).toEqual({
        state: "skipped",
        reason: "Root of this machine no longer permits the update",
      });
    });
});

describe("a bad update", () => {
  for (const fault of ["fails", "silent", "mute", "lost"] satisfies Fault[])
    test(`(${fault}) stops in the first ring, and is taken back`, async () => {
      const bots = await makeFleet(server, acme, 12);
      const { id } = await start();
      const most = { changed: 0 };
      const done = await runRollout(
        { server, org: acme, bots, fault, seed: 3, watchS },
        { onTick: () => void (most.changed = Math.max(most.changed, changed(bots))) },
      );
      expect(done).toMatchObject({ id, state: "stopped", ring: 1 });
      expect(done.failed_node).toMatch(/^node\d+$/);
      expect(done.reason).not.toBe("");
      expect(most.changed).toBe(1);
      expect(changed(bots)).toBe(0);
      const event = await server.db.get("SELECT after FROM events WHERE type = 'rollout.stopped'");
      expect(String(event?.["after"])).toContain(done.reason.slice(0, 20));
    });

  test("says which probe and which line of the log", async () => {
    const bots = await makeFleet(server, acme, 3);
    await start();
    const done = await runRollout({ server, org: acme, bots, fault: "fails", seed: 4, watchS });
    expect(done).toMatchObject({ reason: "No packets", probe: "large packets", log: "level=error" });
    // A line of an engine's log holds the network addresses of peers, which members do not learn.
    const member = await server.person("member@example.org");
    await server.join(acme, "member@example.org", "member");
    for (const path of [`rollouts/${done.id}/`, "rollouts/", `rollouts/${done.id}/nodes/`, "events/"]) {
      const answer = await server.send("GET", `/api/org/acme/${path}`, { token: member });
      expect([path, answer.status, answer.text.includes("level=error")]).toEqual([path, 200, false]);
    }
  });
});

test("an administrator pauses, resumes and aborts", async () => {
  const bots = await makeFleet(server, acme, 6);
  const { id } = await start();
  expect((await steer(id, "pause")).status).toBe(200);
  expect(codeOf(await steer(id, "pause"))).toEqual([409, "conflict"]);
  for (let at = 0; at < 10; at++) {
    server.clock.ms += 5000;
    await server.app.services.reports.stop();
  }
  expect(changed(bots)).toBe(0);
  expect((await steer(id, "resume")).status).toBe(200);
  expect((await steer(id, "abort")).status).toBe(200);
  const done = await runRollout({ server, org: acme, bots, seed: 5, watchS });
  expect(done).toMatchObject({ state: "stopped", reason: "An administrator ended it" });
  expect(changed(bots)).toBe(0);
});

test("a ring that is taken back is over in time although the clock was set back meanwhile", async () => {
  const bots = await makeFleet(server, acme, 3);
  const { id } = await start();
  expect((await steer(id, "abort")).status).toBe(200);
  await server.db.write((tx) => tx.run("UPDATE rollouts SET since = since + 86400000"));
  await server.db.write((tx) => tx.run("UPDATE rollout_nodes SET state = 'returning' WHERE ring = 1"));
  // The node is away.
  const done = await runRollout({ server, org: acme, bots: bots.slice(0, 0), seed: 8, watchS });
  expect(done.state).toBe("stopped");
});

describe("a node that was away while its ring was taken back", () => {
  const newest = "1.12.0";

  /** The first node of the fleet that changes is told to go back, and does not learn it. */
  async function awayAfterAbort(bots: readonly Bot[]): Promise<Bot> {
    const { id } = await start();
    await advanceRollouts(server.app.services);
    const told = await server.db.get("SELECT node_id FROM rollout_nodes WHERE state = 'told'");
    const bot = bots.find(({ node }) => node.id === told?.["node_id"]);
    if (bot === undefined) throw new Error("No node was told");
    await checkIn(server, bot);
    expect(bot.order).toMatchObject({ engine: newer });
    expect((await steer(id, "abort")).status).toBe(200);
    for (const passedMs of [0, 61_000]) {
      server.clock.ms += passedMs;
      await advanceRollouts(server.app.services);
    }
    return bot;
  }

  test("is told when it returns, also if the next rollout has left it out", async () => {
    const bots = await makeFleet(server, acme, 4);
    const away = await awayAfterAbort(bots);
    const others = bots.filter((bot) => bot !== away);
    await server.app.services.reports.stop();
    const longAgo = "UPDATE sightings SET last_checkin_at = 0 WHERE node_id = $1";
    await server.db.write((tx) => tx.run(longAgo, [away.node.id]));
    await start({ engine: newest });
    const done = await runRollout({ server, org: acme, bots: others, seed: 9, watchS });
    expect(done).toMatchObject({ state: "passed", reason: "" });
    expect(done.rings.map(({ left_out: leftOut }) => leftOut)).toEqual([0, 1]);
    await checkIn(server, away);
    expect(away.order).toMatchObject({ engine: newer, back: true });
  });

  test("gets the order of the next rollout, although it reports late that it is back", async () => {
    const [bot] = await makeFleet(server, acme, 1);
    if (bot === undefined) throw new Error("There is no node");
    await awayAfterAbort([bot]);
    await checkIn(server, bot);
    const back = bot.order?.order;
    await server.app.services.reports.stop();
    await start({ engine: newest });
    await advanceRollouts(server.app.services);
    const report = await server.send("POST", `/api/org/acme/nodes/${bot.node.id}/update_report/`, {
      token: bot.node.token,
      body: { order: back, state: "returned" },
    });
    expect(report.status).toBe(204);
    await checkIn(server, bot);
    expect(bot.order).toMatchObject({ engine: newest });
  });
});

test("its turn notes no look of the server: another server's clock may differ from that of the loop that does", async () => {
  await makeFleet(server, acme, 2);
  await start();
  await watchSilence(server.app.services, server.clock.ms);
  const noted = () => server.db.all("SELECT value FROM meta WHERE key = 'ephemeral_watch'");
  const before = await noted();
  server.clock.ms += 20_000;
  await advanceRollouts(server.app.services);
  expect(await noted()).toEqual(before);
});

test("a rollout begins at once, although a turn before it was slow", async () => {
  await makeFleet(server, acme, 2);
  let ms = 0;
  const system = { ...server.app.services.system, monotonic: () => (ms += 1000) };
  const turn = makeRollouts({ ...server.app.services, system });
  await turn();
  const { id } = await start();
  await turn();
  const shown = await server.send("GET", `${path}${id}/nodes/`, { token: owner });
  expect(shown.json).toMatchObject([{ state: "told" }, { state: "waiting" }]);
});

test("a rollout of an organization that was deleted is left alone", async () => {
  await makeFleet(server, acme, 2);
  await start();
  expect((await server.send("DELETE", "/api/org/acme/", { token: owner })).status).toBe(204);
  for (let turn = 0; turn < 3; turn++) await advanceRollouts(server.app.services);
  const changes = await server.db.all("SELECT id FROM events WHERE type = 'rollout.changed'");
  expect(changes).toEqual([]);
});

test("the last ring, paused because it proved nothing, is finished by who resumes it, and webhooks hear it", async () => {
  await makeFleet(server, acme, 3);
  const { id } = await start();
  await server.db.write((tx) =>
    tx.run("UPDATE rollouts SET state = 'paused', reason = 'No peer answers', ring = rings"),
  );
  await server.db.write((tx) => tx.run("UPDATE rollout_nodes SET state = 'passed'"));
  expect((await steer(id, "resume")).status).toBe(200);
  const events = await server.db.all("SELECT type FROM events WHERE subject = $1 ORDER BY id", [
    `rollout/${id}`,
  ]);
  expect(events.map(({ type }) => type)).toEqual(["rollout.created", "rollout.changed", "rollout.passed"]);
});

test("a ring that proves nothing pauses the rollout with an event that says why", async () => {
  await makeFleet(server, acme, 3);
  const { id } = await start();
  await server.db.write((tx) => tx.run("UPDATE rollout_nodes SET state = 'passed'"));
  await advanceRollouts(server.app.services);
  const events = await server.db.all("SELECT type, after FROM events WHERE subject = $1 ORDER BY id", [
    `rollout/${id}`,
  ]);
  expect(events.map(({ type }) => type)).toEqual(["rollout.created", "rollout.changed"]);
  expect(JSON.parse(String(events[1]?.["after"]))).toMatchObject({
    action: "pause",
    reason: expect.stringContaining("Nothing is proven"),
  });
});

test("one that an administrator ends does not keep what an earlier pause found", async () => {
  const [bot] = await makeFleet(server, acme, 3);
  const { id } = await start();
  const sql =
    "UPDATE rollouts SET state = 'paused', reason = 'x', failed_node = $1, probe = 'p', log_line = 'l'";
  await server.db.write((tx) => tx.run(sql, [bot?.node.id ?? 0]));
  expect((await steer(id, "abort")).status).toBe(200);
  const row = await server.db.get("SELECT state, reason, failed_node, probe, log_line FROM rollouts");
  expect(Object.values({ ...row })).toEqual(["returning", "An administrator ended it", null, "", ""]);
});

test("a node reports its own update alone, and only one that it has", async () => {
  const [bot, other] = await makeFleet(server, acme, 2);
  await start();
  const body = { order: 1, state: "passed" };
  const place = `/api/org/acme/nodes/${bot?.node.id}/update_report/`;
  expect((await server.send("POST", place, { body, token: other?.node.token ?? "" })).status).toBe(403);
  expect((await server.send("POST", place, { body, token: bot?.node.token ?? "" })).status).toBe(409);
});

/** Throws before or after a write, as a kill would end it. */
function killedServices(random: () => number, share: number) {
  const { services } = server.app;
  const kills = { count: 0 };
  const writeFor: typeof services.db.writeFor = async (concern, work) => {
    if (random() < share) {
      kills.count++;
      throw new Error("killed before the commit");
    }
    const result = await services.db.writeFor(concern, work);
    if (random() < share) {
      kills.count++;
      throw new Error("killed after the commit");
    }
    return result;
  };
  // The members of a database are its own: a copy would lose them.
  const db = new Proxy(services.db, {
    get: (target, name) => (name === "writeFor" ? writeFor : Reflect.get(target, name)),
  });
  return { services: { ...services, db }, kills };
}

test("goes on where it was after each of 200 kills between its writes", async () => {
  const bots = await makeFleet(server, acme, 20);
  let killed = 0;
  for (let seed = 1; killed < (onPostgres ? 20 : 200); seed++) {
    const random = makeRandom(seed);
    for (const bot of bots) Object.assign(bot, { engine: older, said: "done" });
    await server.db.write((tx) => tx.run("UPDATE nodes SET overlay_version = $1", [older]));
    // What has just passed counts although a node reports another version.
    await server.db.write((tx) => tx.run("UPDATE rollout_nodes SET at = 0"));
    await createRollout(
      server.app.services,
      acme,
      { engine: newer, watch_s: watchS, groups: [], hours: [] },
      operator,
    );
    const { services, kills } = killedServices(random, 0.4);
    const fault = seed % 3 === 0 ? ("fails" as const) : undefined;
    const done = await runRollout(
      { server, org: acme, bots, seed, watchS, ...(fault === undefined ? {} : { fault }) },
      { services },
    );
    expect([seed, done.state]).toEqual([seed, fault === undefined ? "passed" : "stopped"]);
    expect([seed, changed(bots)]).toEqual([seed, fault === undefined ? 20 : 0]);
    killed += kills.count;
  }
}, 60_000);

/** Active nodes that permit updates, without machines. */
async function addNodes(count: number): Promise<void> {
  await server.db.write(async (tx) => {
    const now = server.clock.ms;
    const ip = (at: number) => `10.77.${at >> 8}.${at & 255}`;
    for (let at = 1; at <= count; at++)
      await tx.run(
        `INSERT INTO nodes (org_id, name, ip, state, created_at, registered_at, overlay_version, may_update)
         VALUES ($1, $2, $3, 'active', $4, $4, $5, 'agent,engine 60')`,
        [acme.id, `node${at}`, ip(at), now, older],
      );
    const seen =
      "INSERT INTO sightings (node_id, last_checkin_at) SELECT id, $1 FROM nodes WHERE org_id = $2";
    await tx.run(seen, [now, acme.id]);
  });
}

test("the nodes of a large organization are written in slices, which go on after a kill between them", async () => {
  await addNodes(1700);
  expect(await start()).toMatchObject({ state: "running", ring: 0, rings: [] });
  const { services, kills } = killedServices(makeRandom(3), 0.6);
  const { advanceRollouts } = await import("../../../src/server/rollout/rollout-turn.ts");
  const sizes = new Set<number>();
  const size = async () => Number((await server.db.get("SELECT count(*) AS n FROM rollout_nodes"))?.["n"]);
  const ring = async () => Number((await server.db.get("SELECT ring FROM rollouts"))?.["ring"]);
  while ((await ring()) === 0) {
    sizes.add(await size());
    await advanceRollouts(services).catch(() => undefined);
  }
  expect(kills.count).toBeGreaterThan(0);
  expect(sizes.size).toBeGreaterThan(1);
  const rings = await server.db.all(
    "SELECT ring, count(*) AS n FROM rollout_nodes GROUP BY ring ORDER BY ring",
  );
  expect(rings.map((each) => Number(each["n"]))).toEqual([1, 84, 340, 1275]);
}, 60_000);

test("a rollout pauses if no node is left to update once its nodes are written", async () => {
  await addNodes(600);
  const { id } = await start();
  await server.db.write((tx) => tx.run("UPDATE nodes SET may_update = NULL"));
  for (let turn = 0; turn < 2; turn++) await advanceRollouts(server.app.services);
  const shown = await server.send("GET", `${path}${id}/`, { token: owner });
  expect(shown.json).toMatchObject({ state: "paused", rings: [], reason: "No node is left to update" });
  expect((await steer(id, "abort")).status).toBe(200);
  await advanceRollouts(server.app.services);
  const ended = await server.send("GET", `${path}${id}/`, { token: owner });
  expect(ended.json).toMatchObject({ state: "stopped" });
});
