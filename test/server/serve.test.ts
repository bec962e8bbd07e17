import { afterAll, afterEach, beforeEach, describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../src/errors.ts";
import { makeLog } from "../../src/log.ts";
import { makeHostKey } from "../../src/pki/keys.ts";
import { RegisterAnswer } from "../../src/protocol.ts";
import { clientAddress, isOwnName, parseListen, parseNetworks } from "../../src/server/http/edge.ts";
import { startServer, type ServeOptions, type Serving } from "../../src/server/serve.ts";
import { realSystem } from "../../src/system.ts";
import { runAdmin } from "../support/admin.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const umask = process.umask();
afterAll(() => void process.umask(umask));

let directory: ReturnType<typeof temporaryDirectory>;
let data = "";
const started: Serving[] = [];
let logged = "";
beforeEach(() => {
  directory = temporaryDirectory();
  data = join(directory.path, "data");
  logged = "";
});
afterEach(async () => {
  for (const serving of started.splice(0)) await serving.stop();
  directory[Symbol.dispose]();
});

async function serve(more: Partial<ServeOptions> = {}): Promise<Serving> {
  const write = (text: string) => void (logged += text);
  const log = makeLog({ verbose: false, write, now: Date.now, stamped: true });
  const options: ServeOptions = {
    dataDirectory: data,
    listen: { hostname: "127.0.0.1", port: 0 },
    allowPlainHttp: false,
    trustedProxies: [],
    accessLifetimeS: 900,
    refreshLifetimeS: 86_400,
    ...more,
  };
  const serving = await startServer(options, { system: realSystem(), log });
  started.push(serving);
  return serving;
}

const admin = (args: readonly string[], input?: string) => runAdmin(data, args, input);

async function refusal(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "none",
    (error: unknown) => (error instanceof AppError ? error.code : String(error)),
  );
}

/** Sends raw bytes, which HTTP clients would not send, and returns the answer. */
async function rawAnswer(port: number, request: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const decoder = new TextDecoder();
  let answer = "";
  await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: (socket) => void socket.write(request),
      data: (_, bytes) => void (answer += decoder.decode(bytes)),
      close: () => resolve(answer),
    },
  });
  return promise;
}

const password = "correct horse battery";
const createUser = (email: string, ...flags: string[]) =>
  admin(["user", "create", email, "--password-file", "-", ...flags], `${password}\n`);

describe("the data directory", () => {
  test("is private, and its key is created once; a second server is refused while the first runs", async () => {
    const serving = await serve();
    expect(serving.firstAccountLink).toStartWith(`${serving.url}/setup/#`);
    expect(statSync(data).mode & 0o777).toBe(0o700);
    for (const name of ["control.db", "secret.key", "serve.lock"]) {
      expect([name, statSync(join(data, name)).mode & 0o077]).toEqual([name, 0]);
    }
    expect(await refusal(serve())).toBe("busy");
    await serving.stop();
    started.length = 0;
    expect((await fetch(`${(await serve()).url}/readyz`)).status).toBe(200);
  });

  test("without its key, or with another key, the server does not start and overwrites nothing", async () => {
    await createUser("ada@example.org");
    const key = await Bun.file(join(data, "secret.key")).text();
    rmSync(join(data, "secret.key"));
    expect(await refusal(serve())).toBe("bad_configuration");
    expect(existsSync(join(data, "secret.key"))).toBe(false);
    await Bun.write(join(data, "secret.key"), key);
    chmodSync(join(data, "secret.key"), 0o644);
    expect(await refusal(serve())).toBe("bad_configuration");
    chmodSync(join(data, "secret.key"), 0o600);
    expect(await refusal(serve())).toBe("none");
  });

  test("a shared directory with foreign files is refused; an empty one is made private", async () => {
    mkdirSync(data, { mode: 0o755 });
    chmodSync(data, 0o755);
    await Bun.write(join(data, "holiday.jpg"), "");
    expect(await refusal(serve())).toBe("bad_configuration");
    expect(statSync(data).mode & 0o777).toBe(0o755);
    rmSync(join(data, "holiday.jpg"));
    await serve();
    expect(statSync(data).mode & 0o777).toBe(0o700);
  });
});

describe("listening", () => {
  test("plain HTTP beyond loopback needs --allow-plain-http", async () => {
    const listen = { hostname: "0.0.0.0", port: 0 };
    expect(await refusal(serve({ listen }))).toBe("bad_configuration");
    expect(await refusal(serve({ listen, allowPlainHttp: true }))).toBe("none");
  });

  test("an error names a port that is in use", async () => {
    const { url } = await serve();
    const other = {
      dataDirectory: join(directory.path, "other"),
      listen: parseListen("", new URL(url).host),
    };
    expect(await refusal(serve(other))).toBe("failed");
  });

  test("TLS works, and goes on while its files cannot be read", async () => {
    const files = join(directory.path, "tls");
    mkdirSync(files);
    const [certFile, keyFile] = [join(files, "tls.crt"), join(files, "tls.key")];
    const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost";
    Bun.spawnSync(["openssl", ...words.split(" "), "-keyout", keyFile, "-out", certFile], {
      stderr: "ignore",
    });
    const { url } = await serve({ tls: { certFile, keyFile } });
    const { host } = new URL(url);
    const other = { dataDirectory: join(directory.path, "other"), tls: { certFile, keyFile } };
    expect(await refusal(serve({ ...other, listen: parseListen("", host) }))).toBe("failed");
    // A file replaces the directory: ENOTDIR.
    renameSync(files, `${files}.away`);
    writeFileSync(files, "");
    await Bun.sleep(5500);
    expect(logged).toContain("the former one stays in use");
    const answer = await fetch(`${url}/healthz`, { tls: { rejectUnauthorized: false } });
    expect(answer.status).toBe(200);
  });

  test("browsers are told to insist on TLS where the operator gave the certificate, under the public name", async () => {
    const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=control.example";
    const [certFile, keyFile] = [join(directory.path, "tls.crt"), join(directory.path, "tls.key")];
    Bun.spawnSync(["openssl", ...words.split(" "), "-keyout", keyFile, "-out", certFile], {
      stderr: "ignore",
    });
    const files = { certFile, keyFile };
    const free = Bun.listen({ hostname: "0.0.0.0", port: 0, socket: { data: () => undefined } });
    const { port } = free;
    free.stop(true);
    const listen = { hostname: "0.0.0.0", port };
    const seen = async (more: Partial<ServeOptions>, name: string) => {
      const serving = await serve({ listen, dataDirectory: data, ...more });
      const scheme = more.tls === undefined ? "http" : "https";
      const paths = ["/healthz", "/api/user/", "/api", "/nothing/"];
      const headers = { Host: name };
      const answers = paths.map(async (path) => {
        const url = `${scheme}://127.0.0.1:${port}${path}`;
        const tls = { rejectUnauthorized: false };
        return (await fetch(url, { headers, tls, redirect: "manual" })).headers.get(
          "strict-transport-security",
        );
      });
      const found = await Promise.all(answers);
      await serving.stop();
      started.length = 0;
      return found;
    };
    const publicUrl = "https://control.example:8420";
    const insisted = Array.from({ length: 4 }, () => "max-age=2592000");
    const silent = Array.from({ length: 4 }, () => null);
    expect(await seen({ tls: files, publicUrl }, "control.example:8420")).toEqual(insisted);
    expect(await seen({ tls: files, publicUrl }, "localhost:8420")).toEqual(silent);
    expect(await seen({ tls: files, publicUrl }, "other.example:8420")).toEqual(silent);
    expect(await seen({ tls: "auto", publicUrl }, "control.example:8420")).toEqual(silent);
    expect(await seen({ allowPlainHttp: true, publicUrl }, "control.example:8420")).toEqual(silent);
    for (const host of ["localhost:8420", "a.localhost", "192.0.2.1:8420", "[2001:db8::1]:8420"]) {
      expect(await seen({ tls: files, publicUrl: `https://${host}` }, host)).toEqual(silent);
    }
  });

  test("thousands of requests on a few connections all get an answer", async () => {
    const { url } = await serve();
    const one = async () => {
      const { status, headers } = await fetch(`${url}/healthz`, { keepalive: true });
      return status === 200 && headers.get("connection") !== "close";
    };
    for (let round = 0; round < 60; round++) {
      expect(await Promise.all(Array.from({ length: 50 }, one))).not.toContain(false);
    }
  });

  test.each(["127.0.0.1", "127.0.0.1:99999", ":80", "a b:1", "http://x:1"])(
    "%s is no place to listen",
    (text) => {
      expect(() => parseListen("--listen", text)).toThrow("--listen");
    },
  );

  test("on loopback, only own names are answered, which stops DNS rebinding", async () => {
    const { url } = await serve();
    const { host, port } = new URL(url);
    const as = async (name: string) => (await fetch(`${url}/healthz`, { headers: { Host: name } })).status;
    for (const name of [host, `localhost:${port}`, "[::1]:80"])
      expect([name, await as(name)]).toEqual([name, 200]);
    for (const name of [
      "evil.example.org",
      `evil.example.org:${port}`,
      "127.0.0.1.evil.example.org",
      "localhost.evil",
    ])
      expect([name, await as(name)]).toEqual([name, 421]);
    expect(isOwnName("control.example.org", "https://control.example.org:8420")).toBe(true);
  });

  test.each(["a b", "[::1", "evil.example:99999", "a@b", ":80", ""])(
    "the invalid Host %p is refused wherever the server listens",
    async (name) => {
      const { url } = await serve({ listen: { hostname: "0.0.0.0", port: 0 }, allowPlainHttp: true });
      const port = Number(new URL(url).port);
      const request = `POST /api/token/ HTTP/1.1\r\nHost: ${name}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`;
      const answer = await rawAnswer(port, request);
      expect(answer).toStartWith("HTTP/1.1 400 ");
      expect(answer).toContain('"code":"bad_request"');
    },
  );

  test.each(["x", "*", "@evil/healthz", ":1/api/", "\\"])(
    "CONNECT to %p is refused like any other request that has no address, once everybody has been let in",
    async (target) => {
      const { url } = await serve();
      const { host, port } = new URL(url);
      expect((await fetch(`${url}/healthz`)).status).toBe(200);
      const answer = await rawAnswer(
        Number(port),
        `CONNECT ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
      );
      expect(answer).toStartWith("HTTP/1.1 400 ");
      expect(answer).toContain('"code":"bad_request"');
    },
  );

  test("a disconnect within a body is not a server error, and its address is logged", async () => {
    const { url } = await serve();
    const head = `POST /api/token/ HTTP/1.1\r\nHost: ${new URL(url).host}\r\nContent-Type: application/json\r\n`;
    const socket = await Bun.connect({
      hostname: "127.0.0.1",
      port: Number(new URL(url).port),
      socket: { data: () => undefined },
    });
    socket.write(`${head}Content-Length: 100\r\n\r\n{"email`);
    socket.flush();
    await Bun.sleep(100);
    socket.terminate();
    const end = Date.now() + 20_000;
    while (!logged.includes("path=/api/token/") && Date.now() < end) await Bun.sleep(20);
    expect(logged).toContain("status=400");
    expect(logged).toContain("from=127.0.0.1");
    expect(logged).not.toContain(" error ");
  });

  test("X-Forwarded-For counts only in the part that trusted proxies wrote", () => {
    const proxies = parseNetworks("--trusted-proxy", ["10.0.0.0/8", "192.0.2.7"]);
    const seen = (peer: string, forwarded: string | null) => clientAddress(peer, forwarded, proxies);
    expect(seen("203.0.113.1", "198.51.100.1")).toBe("203.0.113.1");
    expect(seen("10.1.1.1", "198.51.100.1")).toBe("198.51.100.1");
    expect(seen("10.1.1.1", "6.6.6.6, 198.51.100.1, 192.0.2.7")).toBe("198.51.100.1");
    expect(seen("::ffff:10.1.1.1", "198.51.100.1")).toBe("198.51.100.1");
    expect(seen("10.1.1.1", "evil, 10.2.2.2")).toBe("10.2.2.2");
    expect(seen("10.1.1.1", null)).toBe("10.1.1.1");
    expect(clientAddress("10.1.1.1", "198.51.100.1", [])).toBe("10.1.1.1");
  });

  test.each([
    ["203.0.113.7:1234", "203.0.113.7"],
    ["[2001:db8::1]:443", "2001:db8::1"],
    ["[2001:db8::1]", "2001:db8::1"],
    ["2001:DB8:0::1", "2001:db8::1"],
    ["::ffff:203.0.113.7", "203.0.113.7"],
    ["[::ffff:203.0.113.7]:65535", "203.0.113.7"],
    ["\t 203.0.113.7 \t", "203.0.113.7"],
    ['"203.0.113.7:80"', "203.0.113.7"],
    ['"[2001:db8::1]:443"', "2001:db8::1"],
    ["6.6.6.6, 203.0.113.7:1, 10.2.2.2:2", "203.0.113.7"],
    ["6.6.6.6,203.0.113.7,[::ffff:10.2.2.2]:2", "203.0.113.7"],
  ])("X-Forwarded-For %p names %s", (forwarded, client) => {
    const proxies = parseNetworks("--trusted-proxy", ["10.0.0.0/8"]);
    expect(clientAddress("10.1.1.1", forwarded, proxies)).toBe(client);
  });

  test.each([
    "unknown",
    "_hidden",
    "",
    '"',
    '""',
    '"203.0.113.7',
    "203.0.113.7:",
    "203.0.113.7:123456",
    "203.0.113.7:80:80",
    "203.0.113.7;",
    "[203.0.113.7]:80",
    "[2001:db8::1",
    "2001:db8::1]:443",
    "[2001:db8::1]443",
    "[[2001:db8::1]]",
    "fe80::1%eth0",
    "for=203.0.113.7",
    'for="[2001:db8::1]:4711"',
    "203.0.113.7 6.6.6.6",
    "0x7f.1",
    "3405803783",
    "203.0.113.07",
    "203.0.113.256",
    "localhost",
    `203.0.113.7:1${" ".repeat(100)}x`,
    "[".repeat(80),
  ])("at %p, which is no address, the proxy itself counts, and nothing to the left", (entry) => {
    const proxies = parseNetworks("--trusted-proxy", ["10.0.0.0/8"]);
    for (const forwarded of [entry, `6.6.6.6, ${entry}`]) {
      expect(clientAddress("10.1.1.1", forwarded, proxies)).toBe("10.1.1.1");
    }
  });
});

describe("admin commands beside a running server", () => {
  test("from an empty directory to a node that is revoked during a poll", async () => {
    const { url } = await serve();
    expect((await createUser("ada@example.org", "--staff")).status).toBe(0);
    const org = await admin([
      "org",
      "create",
      "acme",
      "--network",
      "10.77.0.0/16",
      "--owner",
      "ada@example.org",
    ]);
    expect(org.status).toBe(0);
    const made = await admin(["token", "create", "acme", "--group", "web", "--json"]);
    const { token } = v.parse(v.object({ id: v.number(), token: v.string() }), JSON.parse(made.out));
    expect(made.err).toContain(`--api-base ${url} --org-slug acme`);

    const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
      fetch(`${url}/api/org/acme/nodes/${path}`, {
        method: "POST",
        headers: { "Content-Type": "application/json", ...headers },
        body: JSON.stringify(body),
      });
    const registered = await post("register/", {
      name: "laptop",
      host_public_key: makeHostKey().publicPem,
      registration_token: token,
    });
    const { node, api_token } = v.parse(RegisterAnswer, await registered.json());
    expect(node.groups).toEqual(["web"]);

    const checkin = { version: "1", uptime: 1, config_version: 1 };
    const auth = { Authorization: `Bearer ${api_token}` };
    const now = await post(`${node.id}/checkin/`, checkin, auth);
    const { config_version } = v.parse(v.object({ config_version: v.number() }), await now.json());
    const waiting = post(
      `${node.id}/checkin/`,
      { ...checkin, config_version },
      { ...auth, Prefer: "wait=25" },
    );
    await Bun.sleep(100);
    expect((await admin(["node", "revoke", "acme", "laptop", "--reason", "stolen"])).status).toBe(0);
    const told = await waiting;
    expect(told.status).toBe(403);
    expect(await told.json()).toMatchObject({ code: "node_revoked", order: expect.any(String) });

    expect((await admin(["node", "list", "acme", "--json"])).out).toBe('{"nodes":[]}\n');
    expect((await admin(["node", "restore", "acme", "laptop"])).status).toBe(0);
    expect((await admin(["node", "show", "acme", "laptop", "--json"])).out).toContain('"state":"active"');
  });

  test("--dry-run creates nothing", async () => {
    const { status, out } = await createUser("ada@example.org", "--dry-run", "--json");
    expect([status, JSON.parse(out)]).toEqual([
      0,
      {
        plan: [
          { step: "file", path: join(data, "/"), mode: "0700", change: "created" },
          { step: "file", path: join(data, "secret.key"), mode: "0600", change: "created" },
          { step: "file", path: join(data, "control.db"), mode: "0600", change: "created" },
        ],
      },
    ]);
    expect(existsSync(data)).toBe(false);
  });

  test.each([
    [["org", "create", "Acme", "--network", "10.77.0.0/16"], 1, "slug"],
    [["org", "create", "acme"], 2, "--network"],
    [["user", "create", "ada@example.org"], 2, "--password-file"],
    [["user", "disable", "nobody@example.org"], 1, "nobody@example.org"],
    [["token", "create", "nowhere"], 1, "nowhere"],
    [["token", "create", "acme", "--expires", "soon"], 2, "--expires"],
  ])("admin %j ends with %i and names %s", async (args, status, word) => {
    // The commands need existing data.
    await createUser("grace@example.org");
    const result = await admin(args);
    expect(result.status).toBe(status);
    expect(result.err).toContain(word);
  });
});
