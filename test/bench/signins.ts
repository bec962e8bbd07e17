// `bun test/bench/signins.ts [COUNT] [provider]`: COUNT (1,000) sign-ins at once, in browsers: with passwords (not with
// `provider`), and by a real provider of identities. Each succeeds, or gets 429 with `Retry-After` and tries again then, until
// all are signed in. Meanwhile 10,000 nodes check in, each every 6 seconds (bar: p99 10 ms). The provider runs in this process:
// it takes one processor while it works.
// `bun test/bench/signins.ts storm [SECONDS]`: check-ins of 100,000 nodes, each once a minute (bar: p99 20 ms, 400 MB), and
// the same while 32 people sign in again and again (bar: p99 50 ms).

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { operator } from "../../src/server/audit/record.ts";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent } from "../support/agent.ts";
import { freePort } from "../support/free-port.ts";
import { type IdentityProvider, signInAt, startIdentityProvider } from "../support/oidc.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { checkins } from "./checkin.ts";
import {
  choose,
  figure,
  type Load,
  load,
  print,
  residentKb,
  startProgram,
  startServer,
  writeRequests,
} from "./measure.ts";
import { password, seed } from "./seed.ts";

const nodes = 10_000;
/** 64 connections that pause 38 ms on average send 1,667 a second. */
const pace = { connections: 64, pauseMs: 38 };

type Sent = {
  status: number;
  retryAfter: number | undefined;
  location: string | undefined;
  cookie: string | undefined;
};

/** One request on a connection of its own: `fetch` would send 256 at once. */
function send(url: URL, method: string, headers: Record<string, string>, body = ""): Promise<Sent> {
  const { promise, resolve, reject } = Promise.withResolvers<Sent>();
  let text = "";
  const lines = Object.entries({
    Host: url.host,
    Connection: "close",
    ...headers,
    "Content-Length": `${body.length}`,
  });
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const request = `${method} ${url.pathname}${url.search} HTTP/1.1\r\n${head}\r\n${body}`;
  const valueOf = (name: string) => new RegExp(`^${name}: (.*)\\r$`, "im").exec(text)?.[1];
  const ended = () => {
    const status = Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? Number.NaN);
    if (Number.isNaN(status)) return reject(new Error(`The connection ended with ${JSON.stringify(text)}`));
    const retryAfter = valueOf("retry-after");
    resolve({
      status,
      retryAfter: retryAfter === undefined ? undefined : Number(retryAfter),
      location: valueOf("location"),
      cookie: /^set-cookie: (__Host-oidc=[^;]*)/im.exec(text)?.[1],
    });
  };
  Bun.connect({
    hostname: url.hostname,
    port: Number(url.port),
    socket: {
      open: (socket) => void socket.write(request),
      data: (_, data) => void (text += data.toString()),
      close: ended,
      error: (_, error) => reject(error),
    },
  }).catch(reject);
  return promise;
}

/** How often a sign-in was refused until it succeeded. Throws for any other answer. */
async function persist(once: () => Promise<Sent>, hasSucceeded: (sent: Sent) => boolean): Promise<number> {
  for (let refused = 0; ; refused++) {
    const sent = await once();
    if (hasSucceeded(sent)) return refused;
    if (sent.status !== 429 || sent.retryAfter === undefined) throw new Error(JSON.stringify(sent));
    await Bun.sleep(sent.retryAfter * 1000);
  }
}

/** 1,000 users with the same password: hashing one for each takes a minute. */
async function addPeople(dataDirectory: string, count: number): Promise<void> {
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  await db.write(async (tx) => {
    for (let at = 1; at < count; at++) {
      await tx.run(
        `INSERT INTO users (email, password_hash, created_at) SELECT $1, password_hash, created_at FROM users WHERE id = 1`,
        [`person${at}@example.org`],
      );
    }
  });
  await db.close();
}

async function addProvider(dataDirectory: string, { issuer, clientId, clientSecret }: IdentityProvider) {
  const { makeExchange } = await import("../../src/server/oidc/provider-requests.ts");
  const { createProvider, installation } = await import("../../src/server/oidc/providers.ts");
  const { providersApi } = await import("../../src/api/providers/providers.ts");
  const { parseNetworks } = await import("../../src/base/ip.ts");
  const { parse } = await import("valibot");
  const system = realSystem();
  const { db, secretKey } = await openData({ dataDirectory }, "server", system);
  const exchange = makeExchange({ system, secretKey, webhookNetworks: parseNetworks(["127.0.0.0/8"]) });
  const given = {
    name: "Company",
    issuer,
    client_id: clientId,
    client_secret: clientSecret,
    creates_users: true,
  };
  const services = { db, system, secretKey, publicUrl: "http://127.0.0.1", exchange };
  await createProvider(services, installation, parse(providersApi.create.body, given), operator);
  await db.close();
}

const ownPage = (url: string) => ({
  Origin: url,
  "Sec-Fetch-Site": "same-origin",
  "Content-Type": "application/json",
});

function withPassword(url: string, at: number): Promise<number> {
  const body = JSON.stringify({ email: `person${at}@example.org`, password });
  const target = new URL("/api/session/", url);
  return persist(
    () => send(target, "POST", ownPage(url), body),
    ({ status }) => status === 201,
  );
}

/** The way to the provider and back. What is returned brings its answer. */
async function prepare(url: string, provider: IdentityProvider, at: number): Promise<() => Promise<number>> {
  provider.person = { sub: `subject-${at}`, email: `of-provider${at}@example.org`, email_verified: true };
  const headers = ownPage(url);
  const begun = await fetch(`${url}/api/session/oidc/`, { method: "POST", headers, body: '{"provider":1}' });
  const cookie = begun.headers.getSetCookie()[0]?.split(";")[0] ?? "";
  const { url: page } = (await begun.json()) as { url: string };
  const back = await signInAt(page);
  const browser = { Cookie: cookie, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" };
  return () =>
    persist(
      () => send(back, "GET", browser),
      ({ status, location }) => status === 303 && location === "/console/",
    );
}

/** Processor time of the thread that answers all requests; in steps of 10 ms. */
function mainThreadMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/task/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

async function atOnce(all: readonly (() => Promise<number>)[]) {
  const begun = performance.now();
  const refused = await Promise.all(all.map((each) => each()));
  const seconds = (performance.now() - begun) / 1000;
  const first = refused.filter((times) => times === 0).length;
  return `all in after ${seconds.toFixed(1)} s, ${first} at the first try, ${Math.max(...refused)} refusals at most`;
}

/** How long check-ins took. */
function describe(name: string, { rate, p50Ms, p99Ms, maxMs }: Load, most: number): void {
  figure(`${name}, check-ins, p99`, p99Ms, { unit: "ms", most });
  print(
    `${"".padEnd(7)}${rate.toFixed(0)} a second, p50 ${p50Ms.toFixed(1)} ms, longest ${maxMs.toFixed(0)} ms`,
  );
}

async function atATime([given = "1000", only]: string[]): Promise<void> {
  const count = Number(given);
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  await seed({ dataDirectory: data }, nodes, { people: 1 });
  await addPeople(data, count);
  const port = freePort();
  const url = `http://127.0.0.1:${port}`;
  const codesS = 1800;
  await using provider = await startIdentityProvider([`${url}/api/session/oidc/1/callback/`], { codesS });
  await addProvider(data, provider);
  const requests = writeRequests(join(directory.path, "requests"), checkins(nodes, nodes));
  const flags = ["--data-dir", data, "--listen", `127.0.0.1:${port}`, "--webhook-allow", "127.0.0.0/8"];
  await using server = await startProgram([buildAgent(), "serve", "--json", ...flags]);
  await load(server.url, requests, { seconds: 8 });
  const before = mainThreadMs(server.pid);
  describe("alone", await load(server.url, requests, { seconds: 10, ...pace }), 10);
  /** Of the main thread, for check-ins. */
  const share = (mainThreadMs(server.pid) - before) / 10_000;
  const measured = async (name: string, all: readonly (() => Promise<number>)[]) => {
    const loading = load(server.url, requests, { seconds: 10, ...pace });
    await Bun.sleep(1000);
    const begun = mainThreadMs(server.pid);
    const since = performance.now();
    const running = atOnce(all);
    describe(name, await loading, 10);
    const said = await running;
    const spentMs = mainThreadMs(server.pid) - begun - Math.min(9000, performance.now() - since) * share;
    print(`${"".padEnd(7)}${said}; ${(spentMs / count).toFixed(2)} ms of the main thread for each`);
  };
  const numbers = Array.from({ length: count }, (_, at) => at);
  if (only !== "provider")
    await measured(
      `${count} passwords at once`,
      numbers.map((at) => () => withPassword(url, at)),
    );
  const prepared: (() => Promise<number>)[] = [];
  for (const at of numbers) prepared.push(await prepare(url, provider, at));
  await measured(`${count} by a provider at once`, prepared);
  await server.stop();
}

const many = 100_000;
const people = 32;

async function storm([lasting = "20"]: string[]): Promise<void> {
  const seconds = Number(lasting);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { people: emails } = await seed({ dataDirectory: data }, many, { people });
  const requests = writeRequests(join(directory.path, "requests"), checkins(many, many));
  await using server = await startServer(["--data-dir", data]);
  // All nodes once, so that all are in memory.
  await load(server.url, requests, { seconds: 10 });
  const calm = await load(server.url, requests, { seconds, ...pace });
  describe("100,000 nodes", calm, 20);
  figure("memory", residentKb(server.pid) / 1024, { unit: "MB", digits: 0, most: 400 });

  const ended = new AbortController();
  let signedIn = 0;
  const signIn = async (email: string) => {
    while (!ended.signal.aborted) {
      const body = JSON.stringify({ email, password });
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch(`${server.url}${tokenPairsApi.create.path}`, {
        method: "POST",
        headers,
        body,
      });
      if (answer.status !== 200) throw new Error(`Signing in: ${answer.status} ${await answer.text()}`);
      await answer.body?.cancel();
      signedIn++;
    }
  };
  const stormy = Promise.all(emails.map(signIn));
  const storming = await load(server.url, requests, { seconds, ...pace });
  ended.abort();
  await stormy;
  describe("the same in a sign-in storm", storming, 50);
  figure(`sign-ins a second, ${people} at once`, signedIn / seconds);
  await server.stop();
}

if (import.meta.main) await choose({ atOnce: atATime, storm });
