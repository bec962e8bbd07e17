// Certificates by ACME, against real servers: Pebble with its faults, and step-ca.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import { join } from "node:path";
import { makeLog } from "../../../src/base/log.ts";
import type { AcmeOptions } from "../../../src/server/options.ts";
import { makeMeters } from "../../../src/server/http/meters.ts";
import {
  challengeOf,
  makeAcmeStore,
  readCertificate,
  readStatus,
  setStatus,
} from "../../../src/server/store/acme-state.ts";
import type { Database } from "../../../src/server/store/database.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { listenForChallenges } from "../../../src/server/tls/acme/http-challenges.ts";
import { makeAcmeRenewal, renewAt } from "../../../src/server/tls/acme/renewal.ts";
import { realSystem, type System } from "../../../src/base/system.ts";
import {
  describeAcme,
  startNames,
  startPebble,
  startStepCa,
  writeDnsHook,
  type NameServer,
  type PebbleOptions,
} from "../../support/acme-servers.ts";
import { freePort } from "../../support/free-port.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const name = "control.example.test";
const minute = 60_000;
const day = 86_400_000;

/** One replica's part: the database, the listener of challenges, and turns of the loop. */
async function makePlane(httpPort: number) {
  const directory = temporaryDirectory();
  const system = realSystem();
  const clock = { ms: 0 };
  const now = () => Date.now() + clock.ms;
  const db = await openSqlite({ path: join(directory.path, "control.db"), now, role: "server" });
  const secretKey = system.random(32);
  let logged = "";
  const log = makeLog({ verbose: true, write: (text) => void (logged += text), now, stamped: true });
  const find = (token: string) => challengeOf(db, token);
  const publicUrl = `https://${name}`;
  const listen = { hostname: "127.0.0.1", port: httpPort };
  const stop = listenForChallenges({ listen, publicUrl, find }, log);
  const meters = makeMeters();
  const deps = (more: Partial<System> = {}) => ({
    db,
    secretKey,
    log,
    meters,
    // Waits for the ACME server are a tenth.
    system: { ...system, now, sleep: (ms: number) => Bun.sleep(ms / 10), ...more },
  });
  return {
    db,
    clock,
    directory: directory.path,
    httpPort,
    logged: () => logged,
    turn: (options: AcmeOptions, more?: Partial<System>) => makeAcmeRenewal(options, deps(more)),
    certificate: () => readCertificate(db, secretKey),
    store: makeAcmeStore(db, secretKey),
    status: () => readStatus(db),
    samples: () => meters.samples(),
    async [Symbol.asyncDispose]() {
      await stop();
      await db.close();
      directory[Symbol.dispose]();
    },
  };
}

async function eventsOf(db: Database): Promise<unknown[]> {
  const rows = await db.all("SELECT type, after FROM events ORDER BY id");
  return rows.map((row) => [row["type"], JSON.parse(String(row["after"]))]);
}

const go = () => new AbortController().signal;

describeAcme("certificates by ACME", () => {
  let names: NameServer;
  beforeAll(async () => {
    names = await startNames();
  });
  afterAll(async () => {
    await names[Symbol.asyncDispose]();
  });

  async function prepare(options: Omit<PebbleOptions, "httpPort" | "dns"> = {}) {
    const httpPort = freePort();
    const pebble = await startPebble({ ...options, httpPort, dns: names.address });
    const plane = await makePlane(httpPort);
    const acme: AcmeOptions = { directoryUrl: pebble.directory, trust: pebble.trust, name };
    return {
      pebble,
      plane,
      acme,
      async [Symbol.asyncDispose]() {
        await plane[Symbol.asyncDispose]();
        await pebble[Symbol.asyncDispose]();
      },
    };
  }

  test("HTTP-01 gives a certificate, although half of the nonces are refused and validation is slow", async () => {
    await using all = await prepare({ refusedNonces: 50, slowS: 2 });
    const { plane, acme } = all;
    await plane.turn(acme)(go());
    const certificate = await plane.certificate();
    const leaf = new X509Certificate(certificate?.chain ?? "");
    expect(leaf.checkHost(name)).toBe(name);
    expect(certificate?.privateKey).toStartWith("-----BEGIN PRIVATE KEY-----");
    const sealed = await plane.db.all("SELECT key, value FROM meta WHERE key LIKE 'acme_%' ORDER BY key");
    expect(sealed.map(({ key, value }) => [String(key).slice(0, 12), String(value).slice(0, 3)])).toEqual([
      ["acme_account", "s1."],
      ["acme_certifi", "s1."],
      ["acme_status", '{"f'],
    ]);
    expect(await eventsOf(plane.db)).toEqual([
      ["tls.certificate_issued", expect.objectContaining({ serial: certificate?.serial, profile: null })],
    ]);
    // The next turn has nothing to do.
    await plane.turn(acme, { run: () => Promise.reject(new Error("no hook")) })(go());
    expect((await plane.certificate())?.serial).toBe(certificate?.serial ?? "");
  }, 120_000);

  test("an IP address gets the profile shortlived; an unknown profile is named", async () => {
    await using all = await prepare();
    const { plane, acme } = all;
    await plane.turn({ ...acme, name: "127.0.0.1" })(go());
    const certificate = await plane.certificate();
    expect(certificate?.wish.profile).toBe("shortlived");
    expect(new X509Certificate(certificate?.chain ?? "").checkIP("127.0.0.1")).toBe("127.0.0.1");
    const lifetime = (certificate?.notAfter ?? 0) - (certificate?.notBefore ?? 0);
    expect(Math.round(lifetime / day)).toBe(6);

    await plane.turn({ ...acme, profile: "tlsserver" })(go());
    expect(plane.logged()).toContain("The ACME server has no profile");
    expect(plane.logged()).toContain("It offers: default, shortlived");
    expect((await plane.certificate())?.serial).toBe(certificate?.serial ?? "");
  }, 120_000);

  test("DNS-01 runs the hook to add the record and to remove it", async () => {
    await using all = await prepare();
    const { plane, acme } = all;
    const dnsHook = join(plane.directory, "hook");
    writeDnsHook(dnsHook, names);
    await plane.turn({ ...acme, dnsHook })(go());
    expect((await plane.certificate())?.wish.name).toBe(name);
    const failing = { ...acme, name: "other.example.test", dnsHook };
    const run: System["run"] = async (argv) => {
      ran.push(argv.slice(1, 3).join(" "));
      return { status: 3, stdout: "", stderr: "no such zone\n", timedOut: false };
    };
    const ran: string[] = [];
    await plane.turn(failing, { run })(go());
    expect(ran).toEqual([
      "add _acme-challenge.other.example.test",
      "remove _acme-challenge.other.example.test",
    ]);
    expect(plane.logged()).toContain("ended with 3: no such zone");
    // An address has no DNS-01.
    plane.clock.ms += 10 * minute;
    await plane.turn({ ...acme, name: "127.0.0.1", dnsHook })(go());
    expect(plane.logged()).toContain("offers no dns-01 for 127.0.0.1");
  }, 120_000);

  test("a stop does not wait for a hook that hangs, and is no failure", async () => {
    await using all = await prepare();
    const { plane, acme } = all;
    const closing = new AbortController();
    const ran: string[] = [];
    const run: System["run"] = (argv) => {
      ran.push(argv[1] ?? "");
      queueMicrotask(() => closing.abort(new Error("stopping")));
      return new Promise(() => undefined);
    };
    const turn = plane.turn({ ...acme, dnsHook: "/bin/hook" }, { run })(closing.signal);
    expect(
      await turn.then(
        () => "done",
        (error: unknown) => String(error),
      ),
    ).toBe("Error: stopping");
    expect([ran, (await plane.status()).failures]).toEqual([["add"], 0]);
    expect(await plane.store.order()).toBeDefined();
  }, 120_000);

  test("an external account is bound; without it the message names the flags", async () => {
    const externalAccount = { kid: "customer-7", key: Buffer.alloc(48, 7).toString("base64url") };
    await using all = await prepare({ externalAccount });
    const { plane, acme } = all;
    await plane.turn(acme)(go());
    expect(plane.logged()).toContain("--acme-eab-kid and --acme-eab-key-file");
    plane.clock.ms += 2 * minute;
    await plane.turn({
      ...acme,
      externalAccount: { ...externalAccount, key: "d3Jvbmcga2V5IHdyb25nIGtleSB3cm9uZyBrZXkgd3Jv" },
    })(go());
    expect((await plane.status()).failures).toBe(2);
    plane.clock.ms += 5 * minute;
    await plane.turn({ ...acme, externalAccount })(go());
    expect((await plane.certificate())?.wish.name).toBe(name);
    expect((await plane.status()).failures).toBe(0);
  }, 120_000);

  test("a failure keeps the certificate, is an event and a metric, and is retried with backoff", async () => {
    await using all = await prepare({ blocked: ["blocked.example.test"] });
    const { plane, acme } = all;
    await plane.turn(acme)(go());
    const before = (await plane.certificate())?.serial ?? "";
    const blocked = plane.turn({ ...acme, name: "blocked.example.test" });
    await blocked(go());
    await blocked(go());
    expect((await plane.status()).failures).toBe(1);
    plane.clock.ms += 1.1 * minute;
    await blocked(go());
    plane.clock.ms += 1.1 * minute;
    await blocked(go());
    expect((await plane.status()).failures).toBe(2);
    plane.clock.ms += minute;
    await blocked(go());
    expect((await plane.status()).failures).toBe(3);
    // A restarted server tries again after a minute.
    plane.clock.ms += 1.1 * minute;
    await plane.turn({ ...acme, name: "blocked.example.test" })(go());
    expect((await plane.status()).failures).toBe(4);
    expect((await plane.certificate())?.serial).toBe(before);
    const failed = (await eventsOf(plane.db)).slice(1);
    expect(failed).toHaveLength(4);
    expect(failed[0]).toEqual(["tls.certificate_failed", expect.objectContaining({ failures: 1 })]);
    const orders = plane.samples().find((each) => each.name === "acme_orders_total");
    expect(orders?.values).toEqual([
      { labels: { result: "ok" }, value: 1 },
      { labels: { result: "failed" }, value: 4 },
    ]);
    expect(plane.logged()).toContain("gives no certificate for blocked.example.test");
  }, 120_000);

  test("a challenge that is not answered fails with what to open, and the next order is a new one", async () => {
    await using all = await prepare();
    const { plane, acme } = all;
    const elsewhere = await startPebble({ httpPort: freePort(), dns: names.address });
    await using _ = elsewhere;
    await plane.turn({ ...acme, directoryUrl: elsewhere.directory, trust: elsewhere.trust })(go());
    expect(plane.logged()).toContain(`must reach this server as http://${name}/ on TCP port 80`);
    expect(await plane.store.order()).toBeUndefined();
    expect(await plane.db.get("SELECT value FROM meta WHERE key = 'acme_challenges'")).toBeUndefined();
    plane.clock.ms += 2 * minute;
    await plane.turn(acme)(go());
    expect((await plane.certificate())?.wish.directoryUrl).toBe(acme.directoryUrl);
  }, 120_000);

  test("a killed attempt continues its order with the same key, whichever request was the last", async () => {
    await using all = await prepare();
    const { plane, acme } = all;
    const { fetch } = realSystem();
    /** A network that ends for good at the request with this number. */
    const ending = (last: number): Partial<System> => {
      let count = 0;
      return {
        fetch: (url, init) =>
          ++count > last ? Promise.reject(new Error("the process was killed")) : fetch(url, init),
      };
    };
    let orders = new Set<string>();
    for (let last = 1; (await plane.certificate()) === undefined; last += 2) {
      expect(last).toBeLessThan(40);
      await plane.turn(acme, ending(last))(go());
      const order = await plane.store.order();
      if (order !== undefined) orders = orders.add(`${order.url} ${order.privateKey}`);
      plane.clock.ms += day / 4;
    }
    expect(orders.size).toBe(1);
    const certificate = await plane.certificate();
    expect([...orders][0]).toEndWith(` ${certificate?.privateKey}`);
    expect(await plane.store.order()).toBeUndefined();
  }, 120_000);

  test("an authority that has lost account and order gets the same key and a new order", async () => {
    const httpPort = freePort();
    await using plane = await makePlane(httpPort);
    const first = await startPebble({ httpPort, dns: names.address });
    const acme: AcmeOptions = { directoryUrl: first.directory, trust: first.trust, name };
    const { fetch } = realSystem();
    await plane.turn(acme, {
      fetch: (url, init) =>
        url.includes("/finalize-order/") ? Promise.reject(new Error("killed")) : fetch(url, init),
    })(go());
    const lost = await plane.store.order();
    const account = await plane.store.account(acme.directoryUrl, () =>
      Promise.reject(new Error("there is one")),
    );
    expect([lost !== undefined, account.url !== undefined]).toEqual([true, true]);
    await first[Symbol.asyncDispose]();
    plane.clock.ms += 2 * minute;
    await plane.turn(acme)(go());
    expect(plane.logged()).toContain("cannot be reached");
    await using again = await startPebble({
      port: Number(new URL(first.directory).port),
      httpPort,
      dns: names.address,
    });
    plane.clock.ms += 5 * minute;
    await plane.turn({ ...acme, trust: again.trust })(go());
    const certificate = await plane.certificate();
    expect(certificate?.wish.name).toBe(name);
    expect(certificate?.privateKey).not.toBe(lost?.privateKey ?? "");
    const after = await plane.store.account(acme.directoryUrl, () =>
      Promise.reject(new Error("there is one")),
    );
    expect(after.key).toEqual(account.key);
  }, 120_000);

  test("the authority's suggestion (ARI) renews early, and names the replaced certificate", async () => {
    await using all = await prepare();
    const { plane, acme, pebble } = all;
    const turn = plane.turn(acme);
    await turn(go());
    const first = await plane.certificate();
    await turn(go());
    const { suggestedAt = 0 } = await plane.status();
    expect(suggestedAt).toBeGreaterThan(first?.notBefore ?? 0);
    expect(suggestedAt).toBeLessThan(first?.notAfter ?? 0);
    const iso = (ms: number) => new Date(ms).toISOString();
    const suggestedWindow = { start: iso(Date.now() - 2 * day), end: iso(Date.now() - day) };
    await pebble.manage("/set-renewal-info/", {
      Certificate: first?.chain.slice(0, first.chain.indexOf("-----END") + 26),
      ARIResponse: JSON.stringify({ suggestedWindow }),
    });
    plane.clock.ms += 7 * 3_600_000;
    await turn(go());
    const second = await plane.certificate();
    expect(second?.serial).not.toBe(first?.serial ?? "");
    expect(pebble.log()).toContain("is a replacement of");
  }, 120_000);

  test("replicas answer each other's challenges; nothing else is served on port 80", async () => {
    await using all = await prepare();
    const { plane, acme } = all;
    await plane.store.setChallenges({ "token-1": "token-1.thumb" });
    const get = (path: string, init: RequestInit = {}) =>
      fetch(`http://127.0.0.1:${plane.httpPort}${path}`, { redirect: "manual", ...init });
    const answered = await get("/.well-known/acme-challenge/token-1");
    expect([answered.status, await answered.text()]).toEqual([200, "token-1.thumb"]);
    for (const other of ["token-2", "", "../x", "%00", "a".repeat(300), "__proto__"])
      expect((await get(`/.well-known/acme-challenge/${other}`)).status).not.toBe(200);
    const moved = await get("/api/?a=b", { headers: { Host: "evil.example" } });
    expect([moved.status, moved.headers.get("location")]).toEqual([308, `https://${name}/api/?a=b`]);
    expect((await get("/", { method: "POST", body: "x" })).status).toBe(405);
    expect(acme.name).toBe(name);
  }, 120_000);

  test("step-ca gives certificates for a name and for an address", async () => {
    const httpPort = freePort();
    await using plane = await makePlane(httpPort);
    await using ca = await startStepCa(httpPort, names.address);
    const acme: AcmeOptions = { directoryUrl: ca.directory, trust: ca.trust, name };
    await plane.turn(acme)(go());
    const first = await plane.certificate();
    expect(new X509Certificate(first?.chain ?? "").checkHost(name)).toBe(name);
    // Another wish is another order, at once.
    await plane.turn({ ...acme, name: "127.0.0.1" })(go());
    expect(new X509Certificate((await plane.certificate())?.chain ?? "").checkIP("127.0.0.1")).toBe(
      "127.0.0.1",
    );
  }, 120_000);
});

test("a restart within a minute of the last failure tries again after that minute, then with backoff", async () => {
  await using plane = await makePlane(freePort());
  const failedAt = Date.now() - minute / 2;
  await plane.db.write((tx) => setStatus(tx, { failures: 8, failedAt }));
  const options = { directoryUrl: "https://ca.example/dir", name };
  const turn = plane.turn(options, { fetch: () => Promise.reject(new Error("no answer")) });
  const failures = async () => {
    await turn(go());
    return (await plane.status()).failures;
  };
  expect(await failures()).toBe(8);
  plane.clock.ms += 1.1 * minute;
  expect(await failures()).toBe(9);
  plane.clock.ms += 1.1 * minute;
  expect(await failures()).toBe(9);
});

test("a certificate is renewed in its last third, or when suggested, but never in its last tenth", () => {
  const wish = { directoryUrl: "https://ca.example/dir", name };
  const certificate = { wish, chain: "", privateKey: "", notBefore: 0, notAfter: 90 * day, serial: "1" };
  const at = (more: object, suggestedAt?: number) =>
    renewAt({ ...wish, ...more }, certificate, {
      failures: 0,
      ...(suggestedAt === undefined ? {} : { suggestedAt }),
    }) / day;
  expect(at({})).toBe(60);
  expect(at({}, 70 * day)).toBe(70);
  expect(at({}, 5 * day)).toBe(5);
  expect(at({}, 400 * day)).toBe(81);
  expect(at({ name: "other.example" })).toBe(0);
  expect(at({ name: "CONTROL.example.test" })).toBe(60);
  expect(at({ directoryUrl: "https://other.example/dir" })).toBe(0);
  expect(at({ profile: "shortlived" })).toBe(0);
});
