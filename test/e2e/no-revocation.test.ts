// The compiled check-auth with servers that send no valid order: a warning, exit 6, and the engine keeps running. Then a
// real order stops it, and a restore starts it again.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import {
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { inCi, installMissing, runSync } from "../support/debian.ts";
import { makeOrganization, registerNode, type Organization, type Registered } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = installMissing(["/usr/bin/nebula", "/usr/bin/faketime", "/usr/bin/openssl"]);
if (missing !== undefined && inCi) throw new Error(missing);
const nebula = "/usr/bin/nebula";

const directory = temporaryDirectory();
const root = join(directory.path, "node");
const note = join(root, "acme/auth-revoked.json");
const credentials = join(root, "acme/credentials.json");
let plane: ControlPlane;
let acme: Organization;
let node: Registered;
let engine: Bun.Subprocess;
let written: string;

/** Without a tun device the engine needs no rights and changes nothing on this machine. */
async function startEngine(): Promise<Bun.Subprocess> {
  const path = join(directory.path, "engine.log");
  const fd = openSync(path, "w");
  const argv = [nebula, "-config", join(root, "acme/config.yml")];
  const child = Bun.spawn(argv, { env: cleanEnvironment(), stdio: ["ignore", fd, fd] });
  closeSync(fd);
  for (let waited = 0; waited < 10_000; waited += 20) {
    if (readFileSync(path, "utf8").includes("Nebula interface is active")) return child;
    await Bun.sleep(20);
  }
  throw new Error(`The engine did not start:\n${readFileSync(path, "utf8")}`);
}

beforeAll(async () => {
  if (missing !== undefined) return;
  buildAgent();
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
  node = await registerNode(acme, root, "one", await acme.makeToken());
  await acme.api("PATCH", "/api/org/acme/", { config_overrides: { tun: { disabled: true } } });
  const overrides = "listen:\n  host: 127.0.0.1\n  port: 0\n";
  writeFileSync(join(root, "acme/overrides.yml"), overrides);
  await runAgent(["sync-config", "--config-root", root, "--overlay-binary", nebula]);
  written = readFileSync(credentials, "utf8");
  engine = await startEngine();
}, 60_000);

afterAll(async () => {
  if (missing !== undefined) return;
  engine.kill("SIGKILL");
  await engine.exited;
  await plane.stop();
  directory[Symbol.dispose]();
});

async function check(prefix: readonly string[] = []) {
  const words = ["check-auth", "--json", "--config-root", root, "--overlay-binary", nebula];
  const { status, stdout } = await runAgent(words, { inside: (argv) => [...prefix, ...argv] });
  return { status, json: JSON.parse(stdout) as unknown };
}

/** The answers of this address must not change the engine or the files. */
async function leavesAlone(apiBase: string, prefix: readonly string[] = []): Promise<void> {
  writeFileSync(credentials, written.replace(plane.url, apiBase));
  try {
    expect(await check(prefix)).toMatchObject({
      status: 6,
      json: { organizations: [{ result: "unsure", action: "none", reason: expect.stringMatching(/./) }] },
    });
  } finally {
    writeFileSync(credentials, written);
  }
  expect(existsSync(note)).toBe(false);
  expect(engine.exitCode).toBeNull();
}

const shaped = (status: number, code: string) => () =>
  Response.json({ error: "x", code, detail: "No.", status_code: status }, { status });
const page = "<html><body>Welcome to the hotel. Sign in</body></html>";
const answers: Record<string, () => Response> = {
  "a bare 401": () => new Response(null, { status: 401 }),
  "a bare 403": () => new Response("Forbidden", { status: 403 }),
  "a 401 of our shape": shaped(401, "token_not_valid"),
  "a 403 of our shape": shaped(403, "permission_denied"),
  "a 403 that says revoked, with an order that nobody signed": () =>
    Response.json(
      { error: "x", code: "node_revoked", detail: "No.", status_code: 403, order: "e30.e30.AAAA" },
      { status: 403 },
    ),
  "a 404": () => new Response("Not found", { status: 404 }),
  "a 404 of our shape": shaped(404, "not_found"),
  "a 500": shaped(500, "internal"),
  "a 503 of a proxy": () => new Response("Try later", { status: 503 }),
  "a captive portal's page": () => new Response(page, { headers: { "Content-Type": "text/html" } }),
  "a captive portal's redirect": () => Response.redirect("http://portal.invalid/", 302),
  "half an answer": () =>
    new Response('{"last_checkin_at":"20', { headers: { "Content-Type": "application/json" } }),
};
for (const [what, answer] of Object.entries(answers)) {
  test.skipIf(missing !== undefined)(
    `${what} is not a revocation`,
    async () => {
      using server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: answer });
      await leavesAlone(`http://127.0.0.1:${server.port}`);
    },
    30_000,
  );
}

test.skipIf(missing !== undefined)(
  "a foreign TLS certificate is not a revocation",
  async () => {
    const [cert, key] = ["cert.pem", "key.pem"].map((name) => join(directory.path, name));
    const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    const argv = [
      "openssl",
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:P-256",
      "-nodes",
    ];
    runSync([...argv, "-days", "2", ...subject, "-out", cert ?? "", "-keyout", key ?? ""]);
    using server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      tls: { cert: Bun.file(cert ?? ""), key: Bun.file(key ?? "") },
      fetch: shaped(403, "node_revoked"),
    });
    await leavesAlone(`https://localhost:${server.port}`);
  },
  30_000,
);

test.skipIf(missing !== undefined)(
  "unknown names, closed ports and closed connections are not revocations",
  async () => {
    await leavesAlone("https://control.invalid");
    await leavesAlone("http://127.0.0.1:1");
    using cutting = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: { data: (socket) => void socket.end() },
    });
    await leavesAlone(`http://127.0.0.1:${cutting.port}`);
  },
  60_000,
);

test.skipIf(missing !== undefined)(
  "a clock that is wrong by years changes nothing",
  async () => {
    for (const offset of ["+20y", "-5y"]) {
      const { json } = await check(["/usr/bin/faketime", "-f", offset]);
      expect(json).toMatchObject({ organizations: [{ action: "none" }] });
      expect(existsSync(note)).toBe(false);
      expect(engine.exitCode).toBeNull();
    }
  },
  30_000,
);

test.skipIf(missing !== undefined)(
  "a signed order stops the engine once, and a restore starts it again",
  async () => {
    const path = paths.node("acme", node.node_id);
    expect((await acme.api("DELETE", path)).status).toBe(204);
    expect(await check()).toMatchObject({
      status: 7,
      json: { organizations: [{ result: "revoked", action: "stopped" }] },
    });
    expect(await engine.exited).toBe(0);
    expect(JSON.parse(readFileSync(note, "utf8"))).toMatchObject({ node_id: node.node_id });
    expect(await check()).toMatchObject({ status: 0, json: { organizations: [{ result: "revoked" }] } });
    expect((await acme.api("POST", paths.restore("acme", node.node_id), {})).status).toBe(200);
    expect(await check()).toMatchObject({ status: 0, json: { organizations: [{ result: "resumed" }] } });
    expect(existsSync(note)).toBe(false);
    // The engine runs with its new certificate.
    engine = await startEngine();
  },
  60_000,
);
