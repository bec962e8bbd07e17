// A jump of the server's clock: nothing is signed, nothing ends, revocations go on, and everybody is told.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { makeClockWatch } from "../../src/server/certificates/clock-watch.ts";
import { makeEarlyDue } from "../../src/server/nodes/lifecycle/renewal.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { watchSilence } from "../../src/server/nodes/contact/silence.ts";
import { retain } from "../../src/server/retention/retention.ts";
import { makeRotations } from "../../src/server/rollout/rotation-schedule.ts";
import { openClock } from "../../src/server/store/clock.ts";
import { makeClock } from "../support/clock.ts";
import { sourceFiles, sourceRoot } from "../support/imports.ts";
import {
  blocklistOf,
  certificateOf,
  codeOf,
  confirm,
  downloadOf,
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
} from "../support/nodes.ts";
import { makeTestServer, type TestServer, type TestServerOptions } from "../support/server.ts";

const [second, minute, hour, day] = [1000, 60_000, 3_600_000, 86_400_000];
let server: TestServer;
let org: Organization;
let staff: string;

// The server's own loops sleep on a clock that never moves.
async function start(options: TestServerOptions = {}) {
  server = await makeTestServer({ network: { sleep: makeClock().sleep }, ...options });
  org = await server.organization("acme");
  staff = await server.person("staff@example.org", { isStaff: true });
}
beforeEach(() => start());
afterEach(() => server[Symbol.asyncDispose]());

const watch = () => makeClockWatch(server.app.services);
const doubt = () => server.app.services.clock.doubt();
const events = async () =>
  (await server.db.all("SELECT type FROM events WHERE type LIKE 'server.clock%' ORDER BY id")).map(
    (row) => row["type"],
  );
const register = async (name: string) =>
  sendRegistration(server, "acme", {
    name,
    ...(await makeKeys(name)),
    registration_token: await registrationToken(server, org),
  });
/** Another process on the same data, on this machine. */
const another = () => {
  return openClock(server.db, server.machine);
};
const confirmClock = (time = server.clock.ms + server.clock.steppedMs) =>
  server.send("POST", "/api/servers/clock/", { token: staff, body: { time: new Date(time).toISOString() } });

describe.each([
  ["five days ahead", 5 * day],
  ["ten years ahead", 3650 * day],
  ["five days behind", -5 * day],
])("a clock that jumps %s", (_, steppedMs) => {
  test("signs nothing, and revocations go on", async () => {
    const [left, kept] = [await registerNode(server, org, "left"), await registerNode(server, org, "kept")];
    await confirm(kept);
    server.clock.steppedMs = steppedMs;
    const before = await kept.download();
    expect(codeOf(await register("late"))).toEqual([503, "clock_doubted"]);
    expect(
      codeOf(
        await server.send("POST", "/api/org/acme/ca/rotate/", {
          token: await owner(),
          body: { action: "start" },
        }),
      ),
    ).toEqual([503, "clock_doubted"]);
    expect(
      (
        await server.send("POST", "/api/org/", {
          token: staff,
          body: { slug: "other", network: "10.1.0.0/16", owner: "staff@example.org" },
        })
      ).status,
    ).toBe(503);
    await server.send("DELETE", `/api/org/acme/nodes/${left.id}/`, { token: await owner() });
    const answer = downloadOf(await kept.download());
    expect(blocklistOf(answer)).toHaveLength(1);
    expect(answer.files["host.crt"]).toBe(downloadOf(before).files["host.crt"]);
    expect(codeOf(await left.checkin())).toEqual([403, "node_revoked"]);
    server.clock.steppedMs = 0;
    expect(blocklistOf(downloadOf(await kept.download()))).toHaveLength(1);
    expect((await register("late")).status).toBe(201);
  });

  test("starts and advances no CA rotation, and writes one line", async () => {
    const turn = makeRotations(server.app.services);
    const look = watch();
    const phases = () =>
      server.db.all("SELECT rotation_phase FROM organizations WHERE rotation_phase <> 'none'");
    await look();
    server.clock.steppedMs = steppedMs;
    server.log.length = 0;
    for (let at = 0; at < 100; at++) {
      server.clock.ms += second;
      await look();
      await turn();
    }
    expect(await phases()).toEqual([]);
    expect(server.log.filter((line) => /clock|rotation/i.test(line))).toHaveLength(1);
    server.clock.ms += hour;
    await look();
    expect(server.log.filter((line) => /clock/i.test(line))).toHaveLength(2);
    server.clock.steppedMs = 0;
    await look();
    expect(await events()).toEqual(["server.clock_jumped", "server.clock_returned"]);
  });

  test("is recorded once the database takes the event, if it could not at first", async () => {
    const { services } = server.app;
    let isAway = true;
    const write: typeof services.db.write = (work) =>
      isAway ? Promise.reject(new Error("the database is away")) : services.db.write(work);
    const look = makeClockWatch({ ...services, db: { ...services.db, write } });
    await look();
    server.clock.steppedMs = steppedMs;
    server.log.length = 0;
    await look().catch(() => undefined);
    expect(await events()).toEqual([]);
    isAway = false;
    await look();
    await look();
    expect(await events()).toEqual(["server.clock_jumped"]);
    expect(server.log.filter((line) => /clock/i.test(line))).toHaveLength(1);
  });

  test("is in doubt for a process that starts in between, and for commands beside it", async () => {
    await watch()();
    server.clock.steppedMs = steppedMs;
    expect((await another()).doubt()).toMatchObject({ comparedWith: "boot", expected: server.clock.ms });
    expect((await another()).now()).toBe(server.clock.ms);
    server.clock.steppedMs = 0;
    expect((await another()).doubt()).toBeUndefined();
  });
});

async function owner(): Promise<string> {
  const email = "owner@example.org";
  const found = await server.db.get("SELECT id FROM users WHERE email = $1", [email]);
  if (found !== undefined) return (await server.app.services.sessions.start(Number(found["id"]))).access;
  const token = await server.person(email);
  await server.join(org, email, "owner");
  return token;
}

test("what is wrong is in the readiness check, the list of servers and the answers of commands", async () => {
  const ready = async () => (await server.send("GET", "/readyz")).json;
  expect(await ready()).toEqual({ status: "ok", warnings: [] });
  server.clock.steppedMs = 5 * day;
  expect(await ready()).toEqual({ status: "ok", warnings: ["clock_doubted"] });
  const { json } = await server.send("GET", "/api/servers/", { token: staff });
  expect(json).toMatchObject({
    warnings: [
      {
        code: "clock_doubted",
        text: expect.stringContaining("5 days ahead"),
        hint: expect.stringContaining("admin clock confirm"),
      },
    ],
  });
});

test("a confirmed clock is believed by all processes, which is an event", async () => {
  await watch()();
  server.clock.steppedMs = 5 * day;
  const other = await another();
  expect([doubt(), other.doubt()].every((each) => each !== undefined)).toBe(true);
  expect(codeOf(await confirmClock(server.clock.ms))).toEqual([409, "conflict"]);
  expect((await confirmClock()).status).toBe(200);
  expect([doubt(), (await another()).doubt()]).toEqual([undefined, undefined]);
  expect(other.doubt()).toBeDefined();
  await other.look();
  expect(other.doubt()).toBeUndefined();
  expect(await events()).toEqual(["server.clock_confirmed"]);
  expect((await register("late")).status).toBe(201);
  // What was right before is a jump now.
  server.clock.steppedMs = 0;
  expect(doubt()).toBeDefined();
});

test("the time since the boot is asked once in a second at most, and at once when the clock jumps", async () => {
  await watch()();
  let asked = 0;
  const bootTime = () => {
    asked++;
    return server.machine.bootTime();
  };
  const clock = await openClock(server.db, { ...server.machine, bootTime });
  const opened = asked;
  for (let at = 0; at < 1000; at++) {
    server.clock.ms++;
    expect(clock.now()).toBe(server.clock.ms);
  }
  expect(asked - opened).toBeLessThanOrEqual(2);
  server.clock.steppedMs = 5 * day;
  expect(clock.now()).toBe(server.clock.ms);
});

test("what waited for a time that comes again waits no longer", async () => {
  const node = await registerNode(server, org, "waiting");
  const { db, clock } = server;
  const at = { next_at: "deliveries", at: "rollout_nodes", reported_at: "relay_traffic" } as const;
  await watchSilence(server.app.services, clock.ms);
  await db.write(async (tx) => {
    const later = clock.ms + hour;
    await tx.run(
      `INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at) VALUES ($1, '', '[]', '', 1)`,
      [org.id],
    );
    await tx.run(
      `INSERT INTO deliveries (webhook_id, event_id, attempts, next_at, created_at)
       SELECT max(w.id), (SELECT max(id) FROM events), 1, $1, 1 FROM webhooks w`,
      [later],
    );
    await tx.run(
      `INSERT INTO rollouts (org_id, groups, hours, watch_s, state, ring, rings, since, created_at)
       VALUES ($1, '[]', '[]', 60, 'running', 1, 1, 1, 1)`,
      [org.id],
    );
    await tx.run(
      `INSERT INTO rollout_nodes (rollout_id, node_id, ring, state, at) SELECT id, $1, 1, 'passed', $2 FROM rollouts`,
      [node.id, later],
    );
    await tx.run("INSERT INTO relay_traffic (node_id, org_id, reported_at) VALUES ($1, $2, $3)", [
      node.id,
      org.id,
      later,
    ]);
  });
  const waiting = async () => {
    const found = await Promise.all(
      Object.entries(at).map(([column, table]) => db.get(`SELECT ${column} AS at FROM ${table}`)),
    );
    return found.map((row) => Number(row?.["at"]) - clock.ms);
  };
  clock.ms += minute;
  await watchSilence(server.app.services, clock.ms);
  expect(await waiting()).toEqual([hour - minute, hour - minute, hour - minute]);
  clock.ms -= 2 * hour;
  await watchSilence(server.app.services, clock.ms);
  // The retry keeps its distance.
  expect(await waiting()).toEqual([hour - minute, 0, 0]);
});

test("an alarm that waits for the end of quiet hours still does after the clock was set back", async () => {
  await registerNode(server, org, "quiet");
  const { db, clock } = server;
  await watchSilence(server.app.services, clock.ms);
  const morning = clock.ms + 6 * hour;
  await db.write(async (tx) => {
    await tx.run(
      `INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at) VALUES ($1, '', '[]', '', 1)`,
      [org.id],
    );
    await tx.run(
      `INSERT INTO deliveries (webhook_id, event_id, attempts, next_at, created_at)
       SELECT max(w.id), (SELECT max(id) FROM events), 0, $1, 1 FROM webhooks w`,
      [morning],
    );
  });
  clock.ms -= 15_000;
  await watchSilence(server.app.services, clock.ms);
  const [row] = await db.all("SELECT next_at FROM deliveries ORDER BY id DESC LIMIT 1");
  expect(Number(row?.["next_at"])).toBe(morning);
});

test("a clock that was ahead after a boot ends no revocation, neither a former one nor one of that time", async () => {
  await server[Symbol.asyncDispose]();
  await start({ clock: { uptimeMs: minute } });
  const { db, clock, app } = server;
  const { services } = app;
  const look = () => watchSilence(services, services.system.now());
  const [stolen, kept] = [await registerNode(server, org, "stolen"), await registerNode(server, org, "kept")];
  await confirm(kept);
  await look();
  const columns = "org_id, node_id, authority_id, kind, version, pem, not_before, renew_at, created_at";
  await db.write(async (tx) => {
    const ends = [clock.ms + 20 * day, stolen.id];
    await tx.run("UPDATE certificates SET not_after = $1 WHERE node_id = $2", ends);
    // A former certificate of the node, which is blocked already.
    await tx.run(
      `INSERT INTO certificates (${columns}, fingerprint, not_after, state)
       SELECT ${columns}, 'of before', not_after - 1, 'blocked' FROM certificates WHERE node_id = $1 AND kind = 'overlay'`,
      [stolen.id],
    );
  });
  clock.steppedMs = 25 * day;
  await look();
  await retain(services, new AbortController().signal);
  await server.send("DELETE", `/api/org/acme/nodes/${stolen.id}/`, { token: await owner() });
  expect(blocklistOf(downloadOf(await kept.download()))).toEqual([]);
  clock.steppedMs = 0;
  await look();
  expect(blocklistOf(downloadOf(await kept.download()))).toHaveLength(2);
  clock.ms += hour;
  await makeClockWatch(services)();
  expect(services.clock.isSettled()).toBe(true);
});

test("only staff confirm the clock", async () => {
  const body = { time: new Date(server.clock.ms).toISOString() };
  expect((await server.send("POST", "/api/servers/clock/", { token: await owner(), body })).status).toBe(403);
});

test("neither a sleep of days, nor small corrections, nor a slow drift are jumps", async () => {
  const look = watch();
  await look();
  server.clock.ms += 5 * day;
  expect(doubt()).toBeUndefined();
  server.clock.steppedMs = 100 * second;
  expect(doubt()).toBeUndefined();
  for (let at = 0; at < 100; at++) {
    server.clock.ms += hour;
    server.clock.steppedMs += 2 * second;
    await look();
    expect(doubt()).toBeUndefined();
  }
});

test("many small steps together are a jump", async () => {
  const look = watch();
  await look();
  for (let at = 0; at < 10; at++) {
    server.clock.ms += second;
    server.clock.steppedMs += 100 * second;
    await look();
  }
  expect(doubt()).toBeDefined();
});

test("slow and quick loops end nothing by a wrong time", async () => {
  const node = await registerNode(server, org, "brief", {
    registration_token: await registrationToken(server, org, { ephemeral: true }),
  });
  await confirm(node);
  server.clock.steppedMs = 3650 * day;
  expect(server.app.services.system.now()).toBe(server.clock.ms);
  expect((await node.checkin()).status).toBe(200);
});

describe("after a boot", () => {
  const boot = (change: Partial<TestServer["clock"]>) =>
    Object.assign(server.clock, {
      bootId: "second",
      uptimeMs: server.clock.uptimeMs - 86_390_000,
      ...change,
    });

  test("a clock that shows an earlier time than before is in doubt until it is right", async () => {
    await watch()();
    server.clock.ms += hour;
    boot({ steppedMs: -400 * day });
    const clock = await another();
    expect(clock.doubt()).toMatchObject({ comparedWith: "last start" });
    server.clock.ms += minute;
    expect(clock.now()).toBe(server.clock.ms - hour);
    // The time from the network.
    server.clock.steppedMs = 0;
    expect(clock.doubt()).toBeUndefined();
    expect(clock.now()).toBe(server.clock.ms);
  });

  test("steps are usual in the first hour, and in doubt later", async () => {
    await watch()();
    boot({ steppedMs: 5 * day });
    const clock = await another();
    await clock.look();
    expect(clock.doubt()).toBeUndefined();
    server.clock.steppedMs = 0;
    await clock.look();
    expect(clock.doubt()).toBeUndefined();
    server.clock.ms += hour;
    await clock.look();
    server.clock.steppedMs = 5 * day;
    expect(clock.doubt()).toMatchObject({ comparedWith: "boot" });
  });

  test.each([
    [20, false],
    [400, true],
  ])("a machine that was off for %i days: in doubt is %p", async (days, isDoubtful) => {
    await watch()();
    boot({ steppedMs: days * day });
    expect((await another()).doubt() !== undefined).toBe(isDoubtful);
  });
});

test("certificates that were signed too early are due once the clock is right", async () => {
  await server[Symbol.asyncDispose]();
  // The first hour of a machine whose clock is wrong at its boot.
  await start({ clock: { uptimeMs: minute } });
  const node = await registerNode(server, org, "early");
  const untouched = await registerNode(server, org, "untouched");
  server.clock.steppedMs = 5 * day;
  expect(
    (await server.send("POST", `/api/org/acme/nodes/${node.id}/renew_cert/`, { token: await owner() }))
      .status,
  ).toBe(200);
  const early = downloadOf(await node.download());
  expect(() => certificateOf(early, server.clock.ms)).toThrow("not valid yet");
  server.clock.steppedMs = 0;
  const first = downloadOf(await untouched.download()).files;
  await makeEarlyDue(server.app.services);
  await node.checkin();
  const late = downloadOf(await node.download());
  expect(certificateOf(late, server.clock.ms).notBefore * 1000).toBeLessThanOrEqual(server.clock.ms);
  expect(late.files["node.crt"]).not.toBe(early.files["node.crt"]);
  expect(downloadOf(await untouched.download()).files).toEqual(first);
  // Once.
  const { config_version } = downloadOf(await node.download());
  await makeEarlyDue(server.app.services);
  await node.checkin();
  expect(downloadOf(await node.download()).config_version).toBe(config_version);
});

describe("CAs that were made by the clock of a boot that was ahead", () => {
  const rotation = async () =>
    (await server.db.get("SELECT rotation_phase, rotation_back FROM organizations WHERE id = $1", [
      org.id,
    ])) ?? {};
  const activeFrom = async () => {
    const rows = await server.db.all("SELECT not_before FROM authorities WHERE state = 'active'");
    return Math.max(...rows.map((row) => Number(row["not_before"])));
  };
  const advance = async (turn: () => Promise<void>, times = 200) => {
    for (let at = 0; at < times; at++) {
      server.clock.ms += second;
      await turn();
    }
  };
  beforeEach(async () => {
    await server[Symbol.asyncDispose]();
    await start({ clock: { uptimeMs: minute } });
  });

  test.each([
    ["trust", 0],
    ["issue", 3],
  ])(
    "a rotation in the phase %s goes back to the former ones once the clock is right",
    async (phase, turns) => {
      const turn = makeRotations(server.app.services);
      const before = await activeFrom();
      server.clock.steppedMs = 5 * day;
      const started = await server.send("POST", "/api/org/acme/ca/rotate/", {
        token: await owner(),
        body: { action: "start" },
      });
      expect(started.status).toBe(200);
      await advance(turn, turns);
      expect(await rotation()).toMatchObject({ rotation_phase: phase, rotation_back: 0 });
      server.clock.steppedMs = 0;
      await turn();
      expect(await rotation()).toMatchObject({ rotation_back: 1 });
      expect(server.log.filter((line) => line.includes("rolled back"))).toHaveLength(1);
      expect(await activeFrom()).toBe(before);
      const late = await registerNode(server, org, "late");
      for (let round = 0; round < 3; round++) {
        await confirm(late);
        await advance(turn);
      }
      expect(await rotation()).toMatchObject({ rotation_phase: "none" });
      expect(await activeFrom()).toBe(before);
    },
  );

  test("an organization that was created then gets others", async () => {
    const turn = makeRotations(server.app.services);
    server.clock.steppedMs = 5 * day;
    await turn();
    const made = await server.send("POST", "/api/org/", {
      token: (await server.app.services.sessions.start(await staffId())).access,
      body: { slug: "other", network: "10.1.0.0/16", owner: "staff@example.org" },
    });
    expect(made.status).toBe(201);
    server.clock.steppedMs = 0;
    expect(await activeFrom()).toBeGreaterThan(server.clock.ms);
    const registerThere = async (name: string) => {
      const made = await server.db.get("SELECT id FROM organizations WHERE slug = 'other'");
      const token = await registrationToken(server, { id: Number(made?.["id"]), slug: "other" });
      return sendRegistration(server, "other", {
        name,
        ...(await makeKeys(name)),
        registration_token: token,
      });
    };
    const refused = await registerThere("soon");
    expect(codeOf(refused)).toEqual([503, "clock_doubted"]);
    expect(refused.text).toContain("is valid only from");
    expect(refused.text).toContain("`agent admin ca rotate ORG`");
    await advance(turn);
    expect((await registerThere("late")).status).toBe(201);
    expect(await activeFrom()).toBeLessThanOrEqual(server.clock.ms);
    expect(await rotation()).toMatchObject({ rotation_phase: "none" });
  });
});

async function staffId(): Promise<number> {
  return Number((await server.db.get("SELECT id FROM users WHERE email = 'staff@example.org'"))?.["id"]);
}

test("every file that signs for nodes or makes CAs asks the clock", () => {
  const signers = /\b(signCertificate|issueNodeX509|makeCa|makeX509Ca|issueServerX509)\(/;
  const found = sourceFiles().filter(
    (file) => file.startsWith("server/") && signers.test(readFileSync(join(sourceRoot, file), "utf8")),
  );
  // issue.ts gets its keys from authorities.ts. own-tls.ts signs for the server itself, again when the clock is back. The two of
  // seals run on the machine of a signer.
  expect(found.toSorted()).toEqual([
    "server/certificates/issue.ts",
    "server/certificates/make-authorities.ts",
    "server/config/offline-key.ts",
    "server/config/sign-seal.ts",
    "server/tls/own-tls.ts",
  ]);
  for (const file of ["server/certificates/authorities.ts", "server/certificates/make-authorities.ts"])
    expect(readFileSync(join(sourceRoot, file), "utf8")).toContain("clock.requireBelieved()");
});
