// The control plane as a program: its data directory, and admin commands beside the running server.

import { Database as Sqlite } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { createServer } from "node:net";
import { createSecureContext, TLSSocket } from "node:tls";
import { defer } from "../../src/base/defer.ts";
import { makeHostKey } from "../../src/pki/keys.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { cleanEnvironment } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { runAdmin } from "../support/admin.ts";
import { refusal, useServing } from "../support/serving.ts";

const here = useServing();
const admin = (args: readonly string[], input?: string) => runAdmin(here.data, args, input);

const password = "correct horse battery";
const createUser = (email: string, ...flags: string[]) =>
  admin(["user", "create", email, "--password-file", "-", ...flags], `${password}\n`);

describe("the data directory", () => {
  test("is private, and its key is created once; a second server is refused while the first runs", async () => {
    const serving = await here.serve();
    expect(serving.firstUserLink).toStartWith(`${serving.url}/setup/#`);
    expect(statSync(here.data).mode & 0o777).toBe(0o700);
    for (const name of ["control.db", "secret.key", "serve.lock"]) {
      expect([name, statSync(join(here.data, name)).mode & 0o077]).toEqual([name, 0]);
    }
    expect(await refusal(here.serve())).toBe("busy");
    await here.end(serving);
    expect((await fetch(`${(await here.serve()).url}/readyz`)).status).toBe(200);
  });

  test("is not made by a start that fails for a taken port", async () => {
    using taken = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data: () => undefined } });
    const listen = { hostname: "127.0.0.1", port: taken.port };
    expect(await refusal(here.serve({ listen }))).toBe("failed");
    expect(existsSync(here.data)).toBe(false);
    await here.end(await here.serve());
    // Later starts keep what there is.
    expect(await refusal(here.serve({ listen }))).toBe("failed");
    expect(existsSync(join(here.data, "control.db"))).toBe(true);
  });

  test("without its key, or with another key, the server does not start and overwrites nothing", async () => {
    await createUser("ada@example.org");
    const key = await Bun.file(join(here.data, "secret.key")).text();
    rmSync(join(here.data, "secret.key"));
    expect(await refusal(here.serve())).toBe("bad_configuration");
    expect(existsSync(join(here.data, "secret.key"))).toBe(false);
    await Bun.write(join(here.data, "secret.key"), key);
    chmodSync(join(here.data, "secret.key"), 0o644);
    expect(await refusal(here.serve())).toBe("bad_configuration");
    chmodSync(join(here.data, "secret.key"), 0o600);
    expect(await refusal(here.serve())).toBe("none");
  });

  test("a shared directory with foreign files is refused; an empty one is made private", async () => {
    mkdirSync(here.data, { mode: 0o755 });
    chmodSync(here.data, 0o755);
    await Bun.write(join(here.data, "holiday.jpg"), "");
    expect(await refusal(here.serve())).toBe("bad_configuration");
    expect(statSync(here.data).mode & 0o777).toBe(0o755);
    rmSync(join(here.data, "holiday.jpg"));
    await here.serve();
    expect(statSync(here.data).mode & 0o777).toBe(0o700);
  });
});

test("a database on a network without TLS is warned of", async () => {
  const warned = async (databaseUrl: string) => {
    const before = here.logged.length;
    // Nothing listens there.
    await refusal(here.serve({ databaseUrl }));
    return here.logged.slice(before).includes("Nothing protects the connection to PostgreSQL");
  };
  expect(await warned("postgres://u:p@0.0.0.0:1/d")).toBe(true);
  expect(await warned("postgres://u:p@0.0.0.0:1/d?sslmode=require")).toBe(true);
  expect(await warned("postgres://u:p@0.0.0.0:1/d?sslmode=verify-full")).toBe(false);
  expect(await warned("postgres://u:p@127.0.0.1:1/d")).toBe(false);
}, 60_000);

test("no variable of the environment lets a database in the middle have any certificate", async () => {
  const [key, certificate] = ["key.pem", "cert.pem"].map((name) => join(here.directory, name));
  const subject = ["-subj", "/CN=localhost", "-days", "2", "-keyout", key ?? "", "-out", certificate ?? ""];
  runSync([
    "openssl",
    "req",
    "-x509",
    "-nodes",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    ...subject,
  ]);
  const secureContext = createSecureContext({
    key: await Bun.file(key ?? "").text(),
    cert: await Bun.file(certificate ?? "").text(),
  });
  let told = 0;
  // As PostgreSQL does: S means that TLS follows.
  const database = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => {
      socket.write("S");
      const inside = new TLSSocket(socket, { isServer: true, secureContext });
      inside.on("error", () => undefined).on("data", () => (told += 1));
    });
  });
  await new Promise<void>((resolve) => database.listen(0, "127.0.0.1", resolve));
  using _ = defer(() => void database.close());
  const { port } = Object(database.address());
  await Bun.write(join(here.directory, "url"), `postgres://u:p@localhost:${port}/d?sslmode=verify-full`);
  const main = join(import.meta.dir, "../../src/main.ts");
  const words = [
    "admin",
    "user",
    "list",
    "--database-url-file",
    join(here.directory, "url"),
    "--data-dir",
    here.data,
  ];
  const child = Bun.spawn([process.execPath, main, ...words], {
    env: cleanEnvironment({ NODE_TLS_REJECT_UNAUTHORIZED: "0" }),
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  // A server that runs answers with this when the certificate has ended, not with an error of its own.
  expect(await new Response(child.stderr).text()).toContain("The database cannot be used now");
  expect(await child.exited).not.toBe(0);
  expect(told).toBe(0);
}, 60_000);

test("passwords that people or commands set have hashes of the real cost, unlike in most tests", async () => {
  const { url } = await here.serve();
  await createUser("ada@example.org");
  await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "ada@example.org"]);
  const invited = await admin(["member", "create", "acme", "kim@example.org", "--json"]);
  const { link } = v.parse(v.object({ link: v.string() }), JSON.parse(invited.out));
  const body = JSON.stringify({ secret: link.split("#")[1], password });
  const headers = { "Content-Type": "application/json" };
  expect((await fetch(`${url}/api/join/`, { method: "POST", headers, body })).status).toBe(200);
  using database = new Sqlite(join(here.data, "control.db"), { readonly: true });
  const real: unknown = expect.stringMatching(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  expect(database.query("SELECT email, password_hash FROM users ORDER BY email").all()).toEqual([
    { email: "ada@example.org", password_hash: real },
    { email: "kim@example.org", password_hash: real },
  ]);
});

describe("admin commands beside a running server", () => {
  test("from an empty directory to a node that is revoked during a poll", async () => {
    const { url } = await here.serve();
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
    const Made = v.object({ id: v.number(), token: v.string(), command: v.string() });
    const { token, command } = v.parse(Made, JSON.parse(made.out));
    expect(command).toContain(`--api-base ${url} --org-slug acme`);

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
          { step: "file", path: join(here.data, "/"), mode: "0700", change: "created" },
          { step: "file", path: join(here.data, "secret.key"), mode: "0600", change: "created" },
          { step: "file", path: join(here.data, "control.db"), mode: "0600", change: "created" },
          { step: "file", path: join(here.data, "data.begun"), mode: "0600", change: "created" },
        ],
      },
    ]);
    expect(existsSync(here.data)).toBe(false);
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
