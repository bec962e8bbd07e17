// How many streams of events a caller, an organization and the server have at a time.

import { afterEach, beforeEach, expect, spyOn, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { operator, record } from "../../../src/server/audit/record.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { sendEvents, type StreamCall } from "../../../src/server/stream/send-events.ts";
import { makeStreams } from "../../../src/server/stream/streams.ts";
import { makeTail } from "../../../src/server/stream/event-tail.ts";
import { signInBrowser } from "../../support/browser-session.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeAcme } from "../../support/people.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

let server: TestServer;
beforeEach(async () => {
  server = await makeTestServer();
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

type Reader = Awaited<ReturnType<typeof connect>>;

/** A console that is connected: it has read the first line. */
async function connect(
  streams: ReturnType<typeof makeStreams>,
  org: { id: number; slug: string },
  userId: number,
) {
  const call: StreamCall = {
    caller: { kind: "person", userId, email: `user-${userId}@example.org`, isStaff: false },
    org: { id: org.id, slug: org.slug, role: "member", visiting: false },
    request: new Request("https://control.example/"),
    admitAgain: () => Promise.resolve(),
  };
  const reader = (await streams.open(call, 0)).getReader();
  await reader.read();
  return reader;
}

/** Whether the stream ends within a moment, after what stands in it. */
async function hasEnded(reader: Reader): Promise<boolean> {
  const moment = Bun.sleep(2000);
  for (;;) {
    const next = await Promise.race([reader.read(), moment]);
    if (next === undefined) return false;
    if (next.done) return true;
  }
}

const endedOf = (readers: readonly Reader[]) => Promise.all(readers.map(hasEnded));

function makeLimited(perCaller: number, inAll: number) {
  const { db, system, log, reports } = server.app.services;
  return makeStreams({ db, system, log, reports }, { perCaller, inAll });
}

test("a caller with too many loses the oldest, also when several come at once", async () => {
  const acme = await server.organization("acme");
  const streams = makeLimited(2, 100);
  const readers = [];
  for (let at = 0; at < 4; at++) readers.push(await connect(streams, acme, 1));
  const more = await Promise.all([connect(streams, acme, 1), connect(streams, acme, 1)]);
  expect(await endedOf([...readers, ...more])).toEqual([true, true, true, true, false, false]);
  streams.close();
});

test("shows addresses by the role that the caller has now", async () => {
  const { acme } = await makeAcme(server);
  const { db, system } = server.app.services;
  const tail = makeTail({ db, system, reports: server.app.services.reports, failed: () => undefined });
  const over = new AbortController();
  const sent: string[] = [];
  const note = (ip: string) =>
    db.writeFor({ org: acme.id }, (tx) => {
      const actor = { kind: "node", id: 1, ip } as const;
      return record(tx, { orgId: acme.id, at: 0, type: "node.updated", subject: "node/1", actor });
    });
  const call = {
    caller: { kind: "person", userId: 99, email: "eve@example.org", isStaff: false },
    org: { id: acme.id, slug: "acme", role: "admin", visiting: false },
    request: new Request("https://control.example/"),
    admitAgain: () => Promise.resolve(),
  } satisfies StreamCall;
  const after = await tail.newest(acme.id);
  await note("203.0.113.1");
  const send = (text: string) => sent.push(text) > 0;
  const pumped = sendEvents({ db, system, tail }, call, after, { signal: over.signal, send });
  await until(() => sent.join("").includes("203.0.113.1"));
  Object.assign(call.org, { role: "member" });
  await note("203.0.113.2");
  await until(() => sent.join("").split("node.updated").length === 3);
  expect(sent.join("")).not.toContain("203.0.113.2");
  over.abort();
  await pumped;
});

test("a follower that throws costs the others no events", async () => {
  const acme = await server.organization("acme");
  const { db, system, reports } = server.app.services;
  const failures: unknown[] = [];
  const tail = makeTail({ db, system, reports, failed: (error) => void failures.push(error) });
  const failure = new Error("broken follower");
  let seen = 0;
  const broken = tail.follow(acme.id, () => {
    throw failure;
  });
  const well = tail.follow(acme.id, (events) => void (seen += events.length));
  await broken.begun;
  await recordMany(acme, 1);
  await until(() => seen === 1);
  expect(failures).toEqual([failure]);
  broken.leave();
  well.leave();
});

test("a full server ends streams of the organization with the most, and refuses no new one", async () => {
  const acme = await server.organization("acme");
  const crowd = await server.organization("crowd", "10.78.0.0/16");
  const streams = makeLimited(10, 5);
  const first = await connect(streams, acme, 1);
  const many = [];
  for (let at = 0; at < 6; at++) many.push(await connect(streams, crowd, 100 + at));
  const second = await connect(streams, acme, 2);
  expect(await endedOf([first, second, ...many])).toEqual([
    false,
    false,
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
  streams.close();
});

test("a stream names the nodes of its organization that were in contact, once, with what they have applied", async () => {
  const acme = await server.organization("acme");
  const other = await server.organization("other", "10.78.0.0/16");
  const node = await registerNode(server, acme, "web-1");
  const foreign = await registerNode(server, other, "web-2");
  const streams = makeLimited(10, 10);
  const reader = await connect(streams, acme, 1);
  const decoder = new TextDecoder();
  const nextSeen = async () => {
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) throw new Error(`The stream ended: ${text}`);
      text = decoder.decode(value);
      if (text.startsWith("event: seen"))
        return JSON.parse(text.slice(text.indexOf("data: ") + 6)) as unknown;
    }
  };
  await foreign.checkin({ config_version: foreign.answer.config.config_version });
  const { config_version: applied } = node.answer.config;
  await node.checkin({ config_version: applied });
  expect(await nextSeen()).toEqual([[node.id, server.clock.ms, applied]]);
  server.clock.ms += 60_000;
  await node.checkin({});
  expect(await nextSeen()).toEqual([[node.id, server.clock.ms, applied]]);
  streams.close();
});

/** A stream without a network. `admitAgain`: whether its caller may have more. */
function pumped(acme: { id: number; slug: string }, after: number, admitAgain: () => Promise<void>) {
  const { db, system, reports } = server.app.services;
  const sent: string[] = [];
  const over = new AbortController();
  const call: StreamCall = {
    caller: { kind: "person", userId: 1, email: "ada@example.org", isStaff: false },
    org: { id: acme.id, slug: acme.slug, role: "member", visiting: false },
    request: new Request("https://control.example/"),
    admitAgain,
  };
  const tail = makeTail({ db, system, reports, failed: expect.unreachable });
  const client = { signal: over.signal, send: (text: string) => sent.push(text) > 0 };
  const ended = sendEvents({ db, system, tail }, call, after, client).catch((error: unknown) => error);
  return { ended, events: () => sent.filter((text) => text.startsWith("id: ")).length };
}

const gone = () => Promise.reject(new AppError("not_found", "gone"));

async function recordMany(acme: { id: number }, count: number): Promise<void> {
  const event = { orgId: acme.id, at: 1, type: "node.updated", actor: operator, subject: "node/1" } as const;
  const { db } = server.app.services;
  await db.writeFor({ org: acme.id }, (tx) =>
    record(
      tx,
      Array.from({ length: count }, () => event),
    ),
  );
}

test("what happens until the first look of a tail is not lost, also if the database fails then", async () => {
  const acme = await server.organization("acme");
  const { db, system, reports } = server.app.services;
  const after = await makeTail({ db, system, reports, failed: expect.unreachable }).newest(acme.id);
  let failures = 0;
  const failing = {
    ...db,
    all: (...asked: Parameters<typeof db.all>) =>
      failures++ === 0 ? Promise.reject(new Error("away")) : db.all(...asked),
  };
  const tail = makeTail({ db: failing, system, reports, failed: () => undefined });
  const sent: string[] = [];
  const over = new AbortController();
  let looks = 0;
  const call: StreamCall = {
    caller: { kind: "person", userId: 1, email: "ada@example.org", isStaff: false },
    org: { id: acme.id, slug: acme.slug, role: "member", visiting: false },
    request: new Request("https://control.example/"),
    // Between the reading of what was missed and the end of the tail's failure.
    admitAgain: async () => {
      if (looks++ === 1) await recordMany(acme, 1);
    },
  };
  const client = { signal: over.signal, send: (text: string) => sent.push(text) > 0 };
  const ended = sendEvents({ db, system, tail }, call, after, client);
  await until(() => sent.some((text) => text.startsWith("id: ")));
  over.abort();
  await ended;
});

test("rights that end while missed events are read end the stream between two pages", async () => {
  const acme = await server.organization("acme");
  await recordMany(acme, 450);
  let looks = 0;
  const { ended, events } = pumped(acme, 0, () => (++looks < 2 ? Promise.resolve() : gone()));
  expect(await ended).toBeInstanceOf(AppError);
  expect(events()).toBe(200);
});

test("an event after the end of the rights is not sent", async () => {
  const acme = await server.organization("acme");
  let mayRead = true;
  const { ended, events } = pumped(acme, 0, () => (mayRead ? Promise.resolve() : gone()));
  await until(() => events() > 0);
  const before = events();
  mayRead = false;
  await recordMany(acme, 1);
  expect(await ended).toBeInstanceOf(AppError);
  expect(events()).toBe(before);
});

test("HEAD opens no stream, which nothing would end", async () => {
  const { owner } = await makeAcme(server);
  const open = spyOn(server.app.services.streams, "open");
  const { status, headers } = await server.send("HEAD", "/api/org/acme/stream/", { token: owner });
  expect([status, headers.get("content-type")]).toEqual([200, "text/event-stream; charset=utf-8"]);
  expect(open).not.toHaveBeenCalled();
});

test("a stream does not keep the session that opened it alive", async () => {
  await makeAcme(server);
  const open = spyOn(server.app.services.streams, "open");
  open.mockImplementation(async () => new Response("").body ?? new ReadableStream());
  const browser = await signInBrowser(server);
  const half = 6 * 3_600_000;
  server.clock.ms += half;
  expect((await browser.send("GET", "/api/org/acme/stream/")).status).toBe(200);
  const [call] = open.mock.calls[0] ?? expect.unreachable();
  open.mockRestore();
  server.clock.ms += half - 1;
  await call.admitAgain();
  server.clock.ms += 1;
  expect(await call.admitAgain().catch((error: unknown) => error)).toBeInstanceOf(AppError);
});

test.each<[string, () => Promise<unknown>]>([
  ["is removed", () => server.db.write((tx) => tx.run("DELETE FROM memberships WHERE user_id = 2"))],
  ["is disabled", () => setActive(server.app.services, "ada@example.org", false, operator)],
  ["signs out", () => server.db.write((tx) => tx.run("DELETE FROM browser_sessions"))],
  [
    "needs a second factor from now on",
    () => server.db.write((tx) => tx.run("UPDATE organizations SET second_factor = 1")),
  ],
])("a stream sends nothing more once its user %s", async (_, change) => {
  const { acme } = await makeAcme(server);
  await server.person("ada@example.org");
  await server.join(acme, "ada@example.org", "member");
  const open = spyOn(server.app.services.streams, "open");
  open.mockImplementation(async () => new Response("").body ?? new ReadableStream());
  const browser = await signInBrowser(server, "ada@example.org");
  expect((await browser.send("GET", "/api/org/acme/stream/")).status).toBe(200);
  const [call] = open.mock.calls[0] ?? expect.unreachable();
  open.mockRestore();
  await call.admitAgain();
  await change();
  expect(await call.admitAgain().catch((error: unknown) => error)).toBeInstanceOf(AppError);
});
