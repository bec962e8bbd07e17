// Webhooks: signed deliveries, retries, which addresses they may reach, replicas and limits.

import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../../../src/base/quantities.ts";
import { makeApp } from "../../../src/server/app.ts";
import { Event } from "../../../src/api/events.ts";
import { networksOfFlag } from "../../../src/server/http/edge.ts";
import { operator } from "../../../src/server/audit/record.ts";
import {
  requestedBefore,
  claimDue,
  retryAfterS,
  settleDelivery,
  type Claimed,
  type Outcome,
} from "../../../src/server/webhooks/outbox.ts";
import { createServiceToken } from "../../../src/server/users/service-tokens.ts";
import { maxClockGapMs } from "../../../src/server/store/replicas.ts";
import { isPublic } from "../../../src/server/webhooks/webhook-target.ts";
import { Delivery, ListedDelivery, NewWebhook } from "../../../src/api/webhooks/webhooks.ts";
import { realSystem } from "../../../src/base/system.ts";
import { makeTestServer, type TestServerOptions } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

const directory = temporaryDirectory();
const disposables: { [Symbol.asyncDispose](): PromiseLike<void> }[] = [];
afterEach(async () => {
  for (const each of disposables.splice(0).reverse()) await each[Symbol.asyncDispose]();
});
afterAll(() => directory[Symbol.dispose]());

const loopback = networksOfFlag("", ["127.0.0.0/8", "::1"]);
const Body = v.object({ organization: v.string(), ...Event.entries });

const anyNode = { any: true };
const rule = { direction: "inbound", protocol: "tcp", ports: "443", peer: anyNode, target: anyNode };

type Received = { headers: Headers; text: string; body: v.InferOutput<typeof Body> };

/** The receiver of an administrator. */
function receive(answer: (count: number) => Response = () => new Response("ok"), tls?: Bun.TLSOptions) {
  const received: Received[] = [];
  const listener = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    ...(tls === undefined ? {} : { tls }),
    async fetch(request) {
      const text = await request.text();
      received.push({ headers: request.headers, text, body: v.parse(Body, JSON.parse(text)) });
      return answer(received.length);
    },
  });
  disposables.push({ [Symbol.asyncDispose]: () => listener.stop(true) });
  return { received, port: listener.port ?? 0 };
}

async function start(options: TestServerOptions = {}) {
  const server = await makeTestServer({ webhookNetworks: loopback, ...options });
  disposables.push(server);
  const org = await server.organization("acme");
  // Does not expire: these tests move the clock by hours.
  const maker = { userId: null, actor: operator };
  const { token: admin } = await createServiceToken(
    server.app.services,
    org,
    { name: "it", role: "admin" },
    maker,
  );
  const send = (method: string, path: string, body?: unknown) =>
    server.send(method, `/api/org/acme/${path}`, { token: admin, body });
  return {
    server,
    send,
    group: (name: string) => send("POST", "groups/", { name }),
    async hook(url: string, events?: string[]) {
      const answer = await send("POST", "webhooks/", events === undefined ? { url } : { url, events });
      expect(`${answer.status} ${answer.text}`).toStartWith("201");
      return v.parse(NewWebhook, answer.json);
    },
    async deliveries(id: number) {
      return v.parse(v.array(Delivery), (await send("GET", `webhooks/${id}/deliveries/`)).json);
    },
  };
}

/** The signature as another program computes it from the secret and the request. */
function signatureByOpenssl(secret: string, { headers, text }: Received): string {
  const key = Buffer.from(secret.replace("whsec_", ""), "base64").toString("hex");
  const signed = `${headers.get("webhook-id")}.${headers.get("webhook-timestamp")}.${text}`;
  const argv = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", `hexkey:${key}`, "-binary"];
  const { stdout } = Bun.spawnSync(argv, { stdin: Buffer.from(signed) });
  return `v1,${stdout.toString("base64")}`;
}

test("events are sent signed, in order, and equal to those of the audit log", async () => {
  const { received, port } = receive();
  const { server, hook, group, send, deliveries } = await start();
  const { id, secret } = await hook(`http://localhost:${port}/in?x=1`, ["webhook.created", "group.*"]);
  for (const name of ["a", "b", "c"]) await group(name);
  await send("POST", "firewall_rules/", rule);
  await group("d");
  await until(() => received.length === 5);
  expect(received.map(({ body }) => `${body.organization} ${body.type} ${body.subject}`)).toEqual([
    `acme webhook.created webhook/${id}`,
    ...["a", "b", "c", "d"].map((name) => `acme group.created group/${name}`),
  ]);
  for (const each of received) {
    expect(each.headers.get("webhook-signature")).toBe(signatureByOpenssl(secret, each));
    expect(Number(each.headers.get("webhook-timestamp"))).toBe(Math.floor(server.clock.ms / 1000));
    expect(each.headers.get("host")).toBe(`localhost:${port}`);
  }
  const audit = v.parse(v.array(Event), (await send("GET", "events/")).json);
  for (const { body } of received) {
    const { organization: _, ...event } = body;
    expect(audit).toContainEqual(event);
  }
  await until(async () => (await deliveries(id)).every((each) => each.state === "delivered"));
  expect((await deliveries(id)).map(({ attempts, status }) => [attempts, status])).toEqual(
    Array.from({ length: 5 }, () => [1, 200]),
  );
  // A page that lists deliveries names their events, however old they are.
  const listed = v.parse(v.array(ListedDelivery), (await send("GET", `webhooks/${id}/deliveries/`)).json);
  expect(listed.map((each) => [each.event_id, each.event_type, each.event_subject])).toEqual(
    received.map(({ body }) => [body.id, body.type, body.subject]),
  );
  expect((await send("GET", "webhooks/")).text).not.toContain(secret);
  expect(JSON.stringify(await server.db.all("SELECT * FROM webhooks"))).not.toContain(secret);
});

test("a failing delivery is retried with growing waits and the same id, then given up", async () => {
  const { received, port } = receive(() => new Response(null, { status: 500 }));
  const { server, hook, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["webhook.created"]);
  for (const [at, afterS] of retryAfterS.entries()) {
    await until(async () => received.length === at + 1 && (await deliveries(id))[0]?.status === 500);
    const waitsUntil = Date.parse((await deliveries(id))[0]?.next_attempt_at ?? "");
    const waits = (waitsUntil - server.clock.ms) / 1000;
    expect(waits).toBeGreaterThanOrEqual(afterS * 0.8 - 1);
    expect(waits).toBeLessThanOrEqual(afterS * 1.2);
    await server.db.write((tx) => tx.run("UPDATE deliveries SET status = NULL"));
    server.clock.ms = waitsUntil + 1000;
  }
  await until(async () => (await deliveries(id))[0]?.state === "failed");
  expect(received.length).toBe(retryAfterS.length + 1);
  expect(new Set(received.map(({ headers }) => headers.get("webhook-id"))).size).toBe(1);
  expect(await deliveries(id)).toMatchObject([
    { message: "The receiver answered 500.", next_attempt_at: null },
  ]);
}, 120_000);

test("the list says which webhook fails now", async () => {
  let isReady = false;
  const { received, port } = receive(() => new Response(null, { status: isReady ? 200 : 500 }));
  const { server, hook, send, group, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["group.created"]);
  const failing = async () =>
    v
      .parse(v.array(v.looseObject({ failing: v.boolean() })), (await send("GET", "webhooks/")).json)
      .map((each) => each.failing);
  expect(await failing()).toEqual([false]);
  await group("a");
  await until(async () => (await deliveries(id))[0]?.status === 500);
  expect(await failing()).toEqual([true]);
  isReady = true;
  await server.db.write((tx) => tx.run("UPDATE deliveries SET next_at = $1", [server.clock.ms]));
  await group("b");
  await until(async () => (await deliveries(id)).every(({ state }) => state === "delivered"));
  expect(received.length).toBe(3);
  expect(await failing()).toEqual([false]);
});

test("a delivery that ended, or waits for long, is sent again with its id; one under way, or of another webhook, is not", async () => {
  let isReady = false;
  const { received, port } = receive(() => new Response(null, { status: isReady ? 200 : 500 }));
  const { server, hook, send, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["webhook.created"]);
  const other = await hook(`http://127.0.0.1:${port}/other`, ["node.*"]);
  await until(async () => (await deliveries(id))[0]?.status === 500);
  const [first] = await deliveries(id);
  const again = (webhook: number, delivery: number) =>
    send("POST", `webhooks/${webhook}/deliveries/${delivery}/send_again/`, {});
  expect(await again(id, first?.id ?? 0)).toMatchObject({ status: 409, json: { code: "conflict" } });
  await server.db.write((tx) => tx.run("UPDATE deliveries SET next_at = NULL"));
  expect((await again(other.id, first?.id ?? 0)).status).toBe(404);
  expect((await again(id, 999_999)).status).toBe(404);
  isReady = true;
  const sent = received.length;
  expect(await again(id, first?.id ?? 0)).toMatchObject({ status: 202, json: { state: "waiting" } });
  await until(
    async () => (await deliveries(id)).find((each) => each.id === first?.id)?.state === "delivered",
  );
  expect(received.length).toBe(sent + 1);
  expect(received.at(-1)?.headers.get("webhook-id")).toBe(received[0]?.headers.get("webhook-id") ?? "");
  // As after several failures.
  const halfAnHour = server.clock.ms + 1_800_000;
  await server.db.write((tx) =>
    tx.run("UPDATE deliveries SET next_at = $1, delivered_at = NULL WHERE id = $2", [
      halfAnHour,
      first?.id ?? 0,
    ]),
  );
  expect((await again(id, first?.id ?? 0)).status).toBe(202);
  await until(() => received.length === sent + 2);
});

test("an attempt that was asked for is made once, and the delivery keeps the schedule of its own", async () => {
  const { received, port } = receive(() => new Response(null, { status: 500 }));
  const { server, hook, send, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["webhook.created"]);
  await until(async () => (await deliveries(id))[0]?.status === 500);
  const { id: delivery } = (await deliveries(id))[0] ?? { id: 0 };
  const asked = async () => {
    const answer = await send("POST", `webhooks/${id}/deliveries/${delivery}/send_again/`, {});
    expect(answer).toMatchObject({ status: 202, json: { state: "waiting", status: null, message: null } });
  };
  const answered = { state: "waiting", status: 500, message: "The receiver answered 500." };
  // As after the last but one of its own attempts, and after the last: neither is given up by it.
  for (const attempts of [retryAfterS.length, retryAfterS.length + 1]) {
    const scheduledAt = server.clock.ms + 28_800_000;
    const sent = received.length;
    await server.db.write((tx) =>
      tx.run("UPDATE deliveries SET attempts = $1, next_at = $2", [attempts, scheduledAt]),
    );
    for (const times of [1, 2]) {
      await asked();
      await until(async () => (await deliveries(id))[0]?.status === 500);
      const next_attempt_at = formatTime(scheduledAt);
      expect(await deliveries(id)).toMatchObject([{ ...answered, attempts, next_attempt_at }]);
      expect(received).toHaveLength(sent + times);
    }
  }
});

test("of two servers one makes an attempt that was asked for; its own time makes it an own one", async () => {
  const { port } = receive(() => new Response(null, { status: 500 }));
  const { server, hook, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["webhook.created"]);
  await until(async () => (await deliveries(id))[0]?.status === 500);
  // Its own loop sends nothing more.
  await server.app.flush();
  const now = server.clock.ms;
  const scheduledAt = now + 60_000;
  const ask = () =>
    server.db.write((tx) => tx.run("UPDATE deliveries SET next_at = $1", [requestedBefore(scheduledAt)]));
  await ask();
  const both = await Promise.all([1, 2].map(() => claimDue(server.db, now, new Set(), new Set())));
  expect(both.flat()).toMatchObject([{ attempts: 1, scheduledAt }]);
  const settle = (claimed: Claimed, outcome: Partial<Outcome>) =>
    settleDelivery(
      server.db,
      claimed,
      { status: 500, message: "500", delivered: false, ...outcome },
      { now, random: 0 },
    );
  for (const claimed of both.flat()) await settle(claimed, { interrupted: true });
  // The server that made it stopped: the next one makes it, and the schedule stays.
  const [next] = await claimDue(server.db, now, new Set(), new Set());
  expect(next).toMatchObject({ attempts: 1, scheduledAt });
  if (next !== undefined) await settle(next, {});
  expect(await deliveries(id)).toMatchObject([{ attempts: 1, next_attempt_at: formatTime(scheduledAt) }]);
  await ask();
  const [late] = await claimDue(server.db, scheduledAt, new Set(), new Set());
  expect(late).toMatchObject({ attempts: 2 });
  expect(late?.scheduledAt).toBeUndefined();
  // It ended while the request was under way.
  if (late !== undefined) await settle(late, { status: 200, message: null, delivered: true });
  expect(await deliveries(id)).toMatchObject([{ state: "delivered", attempts: 2 }]);
});

test("a delivery that a server with a clock ahead is sending is not sent again", async () => {
  const { port } = receive(() => new Response(null, { status: 500 }));
  const { server, hook, send, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["webhook.created"]);
  await until(async () => (await deliveries(id))[0]?.status === 500);
  const { id: delivery } = (await deliveries(id))[0] ?? { id: 0 };
  const ahead = server.clock.ms + maxClockGapMs;
  // As that server claims it.
  await server.db.write((tx) => tx.run("UPDATE deliveries SET next_at = $1", [ahead]));
  expect(await claimDue(server.db, ahead, new Set(), new Set())).toHaveLength(1);
  const again = () => send("POST", `webhooks/${id}/deliveries/${delivery}/send_again/`, {});
  expect(await again()).toMatchObject({ status: 409, json: { code: "conflict" } });
  // Neither does this server take it over before the request of the other one is over.
  const requestMs = 15_000;
  expect(await claimDue(server.db, ahead + requestMs + maxClockGapMs, new Set(), new Set())).toEqual([]);
});

test("redirects are not followed, and a failing webhook does not delay the others", async () => {
  const inside = receive();
  const redirecting = receive(() => Response.redirect(`http://127.0.0.1:${inside.port}/`, 307));
  const silent = receive(() => new Response(new ReadableStream({ pull: () => Bun.sleep(60_000) })));
  const fine = receive();
  const { hook, group, deliveries } = await start();
  const first = await hook(`http://127.0.0.1:${redirecting.port}/`, ["group.created"]);
  const gone = await hook("http://127.0.0.1:1/", ["group.created"]);
  await hook(`http://127.0.0.1:${silent.port}/`, ["group.created"]);
  await hook(`http://127.0.0.1:${fine.port}/`, ["group.created"]);
  for (const name of ["a", "b", "c"]) await group(name);
  await until(() => fine.received.length === 3);
  await until(async () => (await deliveries(first.id)).every((each) => each.status === 307));
  expect((await deliveries(first.id))[0]?.message).toBe(
    "The receiver answered with a redirect. Webhooks do not follow redirects.",
  );
  expect(inside.received).toEqual([]);
  await until(async () => (await deliveries(gone.id)).every((each) => each.message !== null));
  const refused = (await deliveries(gone.id))[0];
  expect(refused).toMatchObject({ state: "waiting", status: null, attempts: 1 });
  expect(refused?.message).toMatch(/^The connection failed: the connection was refused \(\w+\)\.$/);
});

describe("internal addresses", () => {
  test.each([
    "http://example.org/",
    "https://127.0.0.1/",
    "https://localhost/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://0.0.0.0/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://192.168.1.1:8443/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://[::1]/",
    "https://[::]/",
    "https://[fe80::1]/",
    "https://[fd00::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[::ffff:203.0.113.5]/",
    "https://[64:ff9b::a00:1]/",
    "https://[2002:a00:1::]/",
    "https://inside.example/",
    "https://mixed.example/",
    "https://nowhere.example/",
    "https://user:pass@example.org/",
    "ftp://example.org/",
    "not an address",
  ])("%s is refused", async (url) => {
    const names: Record<string, string[]> = {
      "example.org": ["93.184.216.34"],
      "inside.example": ["10.0.0.7"],
      "mixed.example": ["93.184.216.34", "fd00::7"],
      localhost: ["127.0.0.1"],
    };
    const { send } = await start({
      webhookNetworks: [],
      network: { lookup: async (name) => names[name] ?? [] },
    });
    const answer = await send("POST", "webhooks/", { url });
    expect([answer.status, answer.json]).toEqual([
      400,
      expect.objectContaining({ code: "validation_failed" }),
    ]);
    expect(answer.text).not.toContain("10.0.0.7");
  });

  test("a refusal does not tell which internal names exist", async () => {
    const names: Record<string, string[]> = { "a.inside": ["10.0.0.7"], "b.inside": ["10.0.0.8", "9.9.9.9"] };
    const { send } = await start({
      webhookNetworks: [],
      network: { lookup: async (name) => names[name] ?? [] },
    });
    const refusals = [];
    for (const scheme of ["https", "http"]) {
      for (const letter of ["a", "b", "c"]) {
        const answer = await send("POST", "webhooks/", { url: `${scheme}://${letter}.inside/` });
        expect(answer.status).toBe(400);
        refusals.push(answer.text.replaceAll(`${letter}.inside`, "NAME"));
      }
    }
    expect(new Set(refusals).size).toBe(1);
  });

  test("public addresses are accepted", () => {
    expect(["93.184.216.34", "8.8.8.8", "2606:4700::1111"].every(isPublic)).toBe(true);
    // By it, Azure steers its machines.
    expect(isPublic("168.63.129.16")).toBe(false);
  });

  test("a name that resolves to an internal address later gets no delivery", async () => {
    const { received, port } = receive();
    let address = "93.184.216.34";
    const { hook, deliveries } = await start({
      webhookNetworks: [],
      network: { lookup: async () => [address] },
    });
    const { id } = await hook(`https://rebound.example:${port}/`);
    address = "127.0.0.1";
    await until(
      async () => (await deliveries(id))[0]?.message?.includes("an address that is not public") === true,
    );
    expect(received).toEqual([]);
  });

  test("the sender connects to the checked address, and its certificate must name the host", async () => {
    const [key, cert] = ["key.pem", "cert.pem"].map((name) => join(directory.path, name));
    const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x";
    const names = ["-addext", "subjectAltName=DNS:hook.example", "-keyout", key ?? "", "-out", cert ?? ""];
    expect(Bun.spawnSync(["openssl", ...words.split(" "), ...names]).exitCode).toBe(0);
    const pem = readFileSync(cert ?? "", "utf8");
    const { received, port } = receive(undefined, { cert: pem, key: readFileSync(key ?? "", "utf8") });
    const { fetch } = realSystem();
    const { hook, deliveries } = await start({
      network: {
        lookup: async () => ["127.0.0.1"],
        fetch: (url, init) => fetch(url, { ...init, tls: { ...init?.tls, ca: pem } }),
      },
    });
    await hook(`https://hook.example:${port}/`);
    const other = await hook(`https://other.example:${port}/`);
    await until(() => received.length === 2);
    expect(received[0]?.headers.get("host")).toBe(`hook.example:${port}`);
    await until(async () => (await deliveries(other.id))[0]?.message != null);
    expect((await deliveries(other.id))[0]?.message).toContain("ALTNAME");
    expect(received.length).toBe(2);
  });
});

test("one of several replicas sends each delivery, and takes over those of a stopped replica", async () => {
  const { received, port } = receive();
  const { server, hook, group } = await start();
  await hook(`http://127.0.0.1:${port}/`, ["group.created"]);
  const replicas = await Promise.all(
    Array.from({ length: 2 }, () => makeApp({ ...server.app.services, db: server.db })),
  );
  for (let at = 0; at < 40; at++) await group(`g${at}`);
  await until(() => received.length >= 20);
  for (const each of replicas) await each.flush();
  await until(() => received.length >= 40);
  await Bun.sleep(300);
  const names = received.map(({ body }) => body.subject);
  expect(new Set(names).size).toBe(40);
  // A delivery that a stopped replica was sending may come twice, with the same id.
  const ids = new Set(received.map(({ headers }) => headers.get("webhook-id")));
  expect(ids.size).toBe(40);
  expect(names.length).toBeLessThanOrEqual(42);
}, 120_000);

test("a deleted webhook gets no more deliveries; changes and limits", async () => {
  const { received, port } = receive(() => new Response(null, { status: 503 }));
  const { server, hook, group, send, deliveries } = await start();
  const { id } = await hook(`http://127.0.0.1:${port}/`, ["group.created"]);
  expect((await send("PATCH", `webhooks/${id}/`, { events: ["node.*"] })).json).toMatchObject({
    events: ["node.*"],
  });
  await send("PATCH", `webhooks/${id}/`, { events: ["group.created"] });
  expect((await send("PATCH", `webhooks/${id}/`, { events: ["nothing.*"] })).status).toBe(400);
  await group("a");
  await until(async () => (await deliveries(id))[0]?.status === 503);
  expect((await send("DELETE", `webhooks/${id}/`)).status).toBe(204);
  expect((await send("GET", `webhooks/${id}/deliveries/`)).status).toBe(404);
  server.clock.ms += 3_600_000;
  await group("b");
  await Bun.sleep(1500);
  expect(received.length).toBe(1);
  for (let at = 0; at < 20; at++) await hook(`http://127.0.0.1:${port}/${at}`, ["ca.rotated"]);
  expect((await send("POST", "webhooks/", { url: `http://127.0.0.1:${port}/` })).status).toBe(409);
  const member = await server.person("member@example.org");
  await server.join(await server.organization("second", "10.79.0.0/16"), "member@example.org", "member");
  expect((await server.send("GET", "/api/org/second/webhooks/", { token: member })).status).toBe(403);
}, 120_000);

test("a URL with line breaks, control characters or spaces is refused", async () => {
  const { send } = await start();
  for (const odd of ["\r\n", "\n", "\t", "\u0001", "\u007f", "\u202e", " "]) {
    for (const url of [`https://93.184.216.34/a${odd}b`, `https://93.184.216.34/${odd}`]) {
      const answer = await send("POST", "webhooks/", { url });
      expect([url, answer.status]).toEqual([url, 400]);
      expect(answer.text).toContain("control characters");
    }
  }
});

test("an ntfy topic that cannot be decoded is refused on create and update", async () => {
  const { hook, send } = await start();
  const url = "http://127.0.0.1/%E0%A4%A";
  const { id } = await hook("http://127.0.0.1/100%25", ["alarm.*"]);
  for (const answer of [
    await send("POST", "webhooks/", { url, format: "ntfy" }),
    await send("PATCH", `webhooks/${id}/`, { url, format: "ntfy" }),
  ]) {
    expect(answer.status).toBe(400);
    expect(answer.text).toContain("Write a percent sign as %25.");
  }
  expect((await send("PATCH", `webhooks/${id}/`, { format: "ntfy" })).status).toBe(200);
  // Other formats do not decode the path.
  const other = await hook(url, ["alarm.*"]);
  expect((await send("PATCH", `webhooks/${other.id}/`, { format: "ntfy" })).status).toBe(400);
});
