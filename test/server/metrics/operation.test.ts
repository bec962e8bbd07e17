// Operation of the server: TLS with its own CA, metrics, the log, strict variables.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, afterEach, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { readApiCaByFingerprint } from "../../../src/node/enroll/register-input.ts";
import { writeMetrics } from "../../../src/server/metrics/metrics.ts";
import type { ServeOptions, Serving } from "../../../src/server/serve.ts";
import { realSystem, type System } from "../../../src/base/system.ts";
import { agentHere, serveHere } from "../../support/in-process.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

const umask = process.umask();
afterAll(() => void process.umask(umask));

let directory: ReturnType<typeof temporaryDirectory>;
let log: string[] = [];
const started: Serving[] = [];
beforeEach(() => {
  directory = temporaryDirectory();
  log = [];
});
afterEach(async () => {
  for (const serving of started.splice(0)) await serving.stop();
  directory[Symbol.dispose]();
});

async function serve(more: Partial<ServeOptions> = {}, system: System = realSystem()): Promise<Serving> {
  const serving = await serveHere(join(directory.path, "data"), more, { system, log });
  started.push(serving);
  return serving;
}

const stopAll = async () => {
  for (const each of started.splice(0)) await each.stop();
};

/** The output of openssl for the server's certificate, trusting only this CA. */
async function seenByOpenssl(url: string, ca: string, name: string): Promise<string> {
  const file = join(directory.path, "ca.pem");
  await Bun.write(file, ca);
  const words = ["-connect", new URL(url).host, "-CAfile", file, "-verify_return_error", "-servername", name];
  const verify = [/^[\d.]+$/.test(name) ? "-verify_ip" : "-verify_hostname", name];
  const child = Bun.spawn(["openssl", "s_client", ...words, ...verify], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out] = await Promise.all([new Response(child.stdout).text(), child.exited]);
  return out;
}

describe("--tls auto", () => {
  test("uses a CA of its own that nodes pin, the same after a restart, for every name of the server", async () => {
    const options = { tls: "auto", publicUrl: "https://control.example.org:8420" } as const;
    const { caFingerprint = "", url } = await serve(options);
    expect(caFingerprint).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(url).toBe("https://control.example.org:8420");
    await stopAll();
    const again = await serve({ tls: "auto" });
    expect(again.caFingerprint).toBe(caFingerprint);
    expect(again.url).toStartWith("https://127.0.0.1:");
    const ca = await readApiCaByFingerprint(again.url, caFingerprint);
    expect((await fetch(`${again.url}/healthz`, { tls: { ca } })).status).toBe(200);
    expect(await seenByOpenssl(again.url, ca, "127.0.0.1")).toContain("Verify return code: 0 (ok)");
    expect(await seenByOpenssl(again.url, ca, "localhost")).toContain("Verify return code: 0 (ok)");
    expect(await seenByOpenssl(again.url, ca, "other.example")).not.toContain("return code: 0 (ok)");
    const wrong = readApiCaByFingerprint(again.url, `sha256:${"0".repeat(64)}`);
    expect(await wrong.then(String, String)).toContain("has no certificate with the fingerprint");
  });

  test("renews the certificate in time and keeps the CA", async () => {
    const real = realSystem();
    let ahead = 0;
    const { url, caFingerprint = "" } = await serve(
      { tls: "auto" },
      {
        ...real,
        now: () => Date.now() + ahead,
        // Time passes; the clock is not set.
        bootTime: () => ({ id: "test", isShared: true, ms: real.bootTime().ms + ahead }),
      },
    );
    const ca = await readApiCaByFingerprint(url, caFingerprint);
    const serial = async () => {
      const out = await seenByOpenssl(url, ca, "localhost");
      const pem = /-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/.exec(out)?.[0] ?? "";
      return Bun.spawnSync(["openssl", "x509", "-noout", "-serial"], {
        stdin: Buffer.from(pem),
      }).stdout.toString();
    };
    const before = await serial();
    expect(before).toStartWith("serial=");
    // Not so far that a certificate issued then is not valid yet.
    ahead = 61 * 86_400_000;
    await until(async () =>
      log.some((line) => line.includes("uses the new TLS certificate")) ? true : undefined,
    );
    ahead = 0;
    expect(await serial()).not.toBe(before);
    expect(await readApiCaByFingerprint(url, caFingerprint)).toBe(ca);
  }, 120_000);

  test("a node registers with only the fingerprint, and checks in again after a restart", async () => {
    const { url, caFingerprint = "" } = await serve({ tls: "auto" });
    await agent(["admin", "org", "create", "acme", "--network", "10.77.0.0/16"]);
    const { out } = await agent(["admin", "token", "create", "acme"]);
    const token = join(directory.path, "token");
    await Bun.write(token, out);
    const root = join(directory.path, "root");
    const who = ["--org-slug", "acme", "--node-name", "walker", "--mode", "server", "--no-start"];
    const register = (print: string) => {
      const where = ["--api-base", url, "--ca-fingerprint", print, "--config-root", root];
      return agentHere(["register", ...where, ...who, "--registration-token-file", token]);
    };
    expect((await register(`sha256:${"0".repeat(64)}`)).status).toBe(6);
    const bare = ["register", "--api-base", url, "--config-root", root, ...who];
    const untold = await agentHere([...bare, "--registration-token-file", token]);
    expect(untold).toMatchObject({ status: 6, err: expect.stringContaining("--ca-fingerprint") });
    expect(await register(caFingerprint)).toMatchObject({ status: 0 });
    await stopAll();
    await serve({ tls: "auto", listen: { hostname: "127.0.0.1", port: Number(new URL(url).port) } });
    expect(await agentHere(["checkin", "--config-root", root])).toMatchObject({ status: 0 });
  });

  test("commands to paste contain the fingerprint", async () => {
    const { caFingerprint = "" } = await serve({ tls: "auto" });
    const printed = await agent(["admin", "org", "create", "acme", "--network", "10.77.0.0/16"]);
    expect(printed.status).toBe(0);
    const token = await agent(["admin", "token", "create", "acme"]);
    expect(token.err).toContain(`--ca-fingerprint ${caFingerprint}`);
  });
});

const agent = (args: readonly string[], env: Record<string, string> = {}) =>
  agentHere([...args, "--data-dir", join(directory.path, "data")], { env });

describe("settings", () => {
  test.each([
    ["AGENT_LISTNE", "AGENT_LISTEN"],
    ["AGENT_DATABASE_URI_FILE", "AGENT_DATABASE_URL_FILE"],
  ])("%s is no variable, %s was meant: exit 78", async (given, meant) => {
    const { status, err } = await agent(["serve"], { [given]: "x" });
    expect([status, err]).toEqual([78, expect.stringContaining(`Did you mean ${meant}?`)]);
  });

  test("a variable of another command is accepted", async () => {
    const { status } = await agent(["serve", "--dry-run"], {
      AGENT_ORG_SLUG: "acme",
      AGENT_LISTEN: "[::1]:0",
    });
    expect(status).toBe(0);
  });

  test("an unknown flag names the nearest one, and TLS has only one source", async () => {
    expect(await agent(["serve", "--metric-listen", "x"])).toMatchObject({
      status: 2,
      err: expect.stringContaining("--metrics-listen"),
    });
    expect((await agent(["serve", "--tls", "auto", "--tls-cert", "x"])).status).toBe(2);
  });
});

describe("metrics", () => {
  const Line =
    /^(?:# (?:HELP|TYPE) .+|[a-z_]+(?:\{[a-z_]+="[^"\n]*"(?:,[a-z_]+="[^"\n]*")*\})? -?[\d.e+-]+)$/;

  test("have a listener of their own and the format of Prometheus", async () => {
    const { url, metricsUrl = "" } = await serve({ metricsListen: { hostname: "127.0.0.1", port: 0 } });
    const elsewhere = await fetch(metricsUrl, { headers: { Host: "evil.example.org" } });
    expect(elsewhere.status).toBe(421);
    expect((await fetch(`${url}/metrics`)).status).toBe(404);
    expect((await fetch(new URL("/api/org/", metricsUrl))).status).toBe(404);
    expect((await fetch(metricsUrl, { method: "POST" })).status).toBe(405);
    await fetch(`${url}/healthz`);
    const body = { email: "a@example.org", password: "wrong password" };
    await fetch(`${url}/api/token/`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = await fetch(metricsUrl);
    expect(answer.headers.get("content-type")).toStartWith("text/plain; version=0.0.4");
    const lines = (await answer.text()).trimEnd().split("\n");
    expect(lines.filter((line) => !Line.test(line))).toEqual([]);
    expect(lines).toContain('overlay_agent_http_requests_total{method="GET",route="healthz",status="200"} 1');
    expect(lines).toContain('overlay_agent_http_request_seconds_count{route="healthz"} 1');
    expect(lines).toContain('overlay_agent_logins_total{result="failed"} 1');
    expect(
      Number(lines.find((line) => line.startsWith("overlay_agent_store_bytes "))?.split(" ")[1]),
    ).toBeGreaterThan(4096);
  });

  test("count nodes by state, certificates by days left, and waiting polls", async () => {
    await using server = await makeTestServer();
    const org = await server.organization("acme");
    const [a, b] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    const admin = await server.person("admin@example.org");
    await server.join(org, "admin@example.org", "admin");
    await server.send("POST", "/api/org/acme/nodes/", { token: admin, body: { name: "c" } });
    await server.send("DELETE", `/api/org/acme/nodes/${b.id}/`, { token: admin });
    const metrics = async () => (await writeMetrics(server.app.services)).split("\n");
    const version = (await metrics(), await a.checkin());
    const { config_version } = v.parse(v.object({ config_version: v.number() }), version.json);
    const waiting = a.checkin({ config_version }, { wait: 20 });
    await until(async () =>
      (await metrics()).includes("overlay_agent_long_polls_waiting 1") ? true : undefined,
    );
    const now = await metrics();
    for (const state of ["active", "pending", "revoked"]) {
      expect(now).toContain(`overlay_agent_nodes{organization="acme",state="${state}"} 1`);
    }
    expect(now.filter((line) => line.startsWith("overlay_agent_certificates_expiring{"))).toEqual([]);
    server.clock.ms += 80 * 86_400_000;
    const later = await metrics();
    expect(later).toContain('overlay_agent_certificates_expiring{organization="acme",days_left="14"} 1');
    const ca = later.find((line) => line.includes('ca_days_left{organization="acme",kind="overlay"}'));
    expect(Number(ca?.split(" ").at(-1))).toBeCloseTo(650, 0);
    server.app.close();
    await waiting;
  });
});

test("only check-ins that may wait are counted as polls", async () => {
  await using server = await makeTestServer();
  const node = await registerNode(server, await server.organization("acme"), "a");
  // The version differs from the organization's, so the answer comes at once.
  await node.checkin({ config_version: 0 }, { wait: 5 });
  const body = { version: "1.0.0", uptime: 7 };
  const path = `/api/org/acme/nodes/${node.id}/checkin/`;
  for (const prefer of ["wait=0", "respond-async"]) {
    await server.send("POST", path, { token: node.token, body, headers: { Prefer: prefer } });
  }
  await server.send("POST", path, { token: "wrong", body, headers: { Prefer: "wait=5" } });
  const total = server.app.services.meters.samples().find(({ name }) => name === "http_requests_total");
  const counted = (total?.values ?? [])
    .filter(({ labels }) => labels?.["route"]?.startsWith("nodes_checkin") === true)
    .map(({ labels, value }) => [labels?.["route"], labels?.["status"], value]);
  expect(counted).toEqual([
    ["nodes_checkin_held", "200", 1],
    ["nodes_checkin", "200", 2],
    ["nodes_checkin", "401", 1],
  ]);
});

describe("the log", () => {
  test("names each change by the request id of its answer; answers without a log line have no id", async () => {
    await using server = await makeTestServer();
    const org = await server.organization("acme");
    const node = await registerNode(server, org, "a");
    const body = { email: "a@example.org", password: "a secret \n that is none" };
    const answer = await server.send("POST", "/api/token/?x=secret", { body, address: "198.51.100.7" });
    const id = answer.headers.get("x-request-id") ?? "none";
    const line = server.log.find((each) => each.includes(id)) ?? "";
    expect(line).toMatch(
      / info request request_id=\S+ method=POST path=\/api\/token\/ status=401 ms=\d+ from=198\.51\.100\.7\n$/,
    );
    expect((await node.checkin()).headers.has("x-request-id")).toBe(false);
    expect((await server.send("GET", "/healthz")).headers.has("x-request-id")).toBe(false);
    expect(server.log.join("")).not.toMatch(/secret|checkin|healthz/);
  });
});
