import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../../src/base/errors.ts";
import { testConfig } from "../../../src/node/engine/engine.ts";
import { withLock } from "../../../src/node/files/lock.ts";
import { readSyncState } from "../../../src/node/files/generations.ts";
import { readCredentials } from "../../../src/node/files/organizations.ts";
import { defaultNodeName } from "../../../src/node/enroll/registration-checks.ts";
import { explainRefusal } from "../../../src/node/enroll/registration-refusals.ts";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { makeSigningKey, publicHalf } from "../../../src/pki/tokens.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { rejection } from "../../pki/thrown.ts";
import { engine, hasEngine, makeNodeWorld, registerWords, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;

beforeEach(async () => {
  world = await makeNodeWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

const read = (name: string) => readFileSync(join(world.root, "acme", name), "utf8");

async function nodes(): Promise<{ id: number; name: string }[]> {
  const listed = await world.api("GET", "/api/org/acme/nodes/");
  return v.parse(v.array(v.object({ id: v.number(), name: v.string() })), listed);
}

test("register writes exactly the documented files with their modes", async () => {
  const { directory, config } = await world.register();
  const modes: Record<string, number> = {
    "host.key": 0o600,
    "node.key": 0o600,
    "credentials.json": 0o600,
    "config.yml": 0o644,
    "ca.crt": 0o644,
    "host.crt": 0o644,
    "node.crt": 0o644,
    "node-config.json": 0o644,
  };
  for (const [name, mode] of Object.entries(modes)) {
    expect(`${name} ${(statSync(join(directory, name)).mode & 0o777).toString(8)}`).toBe(
      `${name} ${mode.toString(8)}`,
    );
  }
  expect(statSync(directory).mode & 0o777).toBe(0o755);
  expect(readdirSync(directory).sort()).toEqual(
    [...Object.keys(modes), "current", "generations", "run"].sort(),
  );
  expect(readdirSync(world.root)).toEqual(["acme"]);
  expect(config).toMatchObject({
    schema: 1,
    name: "alpha",
    org_slug: "acme",
    mode: "server",
    network: "10.77.0.0/16",
  });
  expect(readCredentials(directory)).toMatchObject({
    api_base: "https://control.example",
    org_slug: "acme",
    node_id: config.node_id,
  });
  expect(readCredentials(directory).api_token).toMatch(/^[A-Za-z0-9_-]{43}$/);
  expect(readSyncState(directory)?.config_version).toBe(config.config_version);
  expect(readlinkSync(join(directory, "config.yml"))).toBe("current/config.yml");
});

test.skipIf(!hasEngine)("the engine accepts what was written", async () => {
  const { directory } = await world.register();
  expect(await testConfig(engine, join(directory, "config.yml"), world.system)).toBeUndefined();
});

test("a second registration is refused; --force keeps the node and overrides.yml", async () => {
  const { directory, config } = await world.register();
  const refused = await rejection(world.register());
  expect(refused).toMatchObject({ code: "conflict" });
  expect(refused.details.hint).toContain("--force");
  writeFileSync(join(directory, "overrides.yml"), "logging:\n  level: debug\n");
  const before = readCredentials(directory).api_token;
  const again = await world.register({ force: true });
  expect(again.config.node_id).toBe(config.node_id);
  expect(readCredentials(directory).api_token).not.toBe(before);
  expect(read("overrides.yml")).toBe("logging:\n  level: debug\n");
  expect(read("config.yml")).toContain('level: "debug"');
  expect(await nodes()).toHaveLength(1);
  expect(readdirSync(world.root)).toEqual(["acme"]);
});

test("--force refuses another name before it sends anything, and keeps the name without one", async () => {
  await world.register();
  world.requests.length = 0;
  const refused = await rejection(world.register({ force: true, name: "other" }));
  expect(refused.code).toBe("conflict");
  expect(refused.message).toContain('as "alpha"');
  expect(refused.details.hint).toContain("agent unregister --org-slug acme");
  expect(world.requests).toEqual([]);
  const kept = await world.register({ force: true, name: undefined });
  expect(kept.config.name).toBe("alpha");
  // Without its keys it is a new node.
  rmSync(join(world.root, "acme", "host.key"));
  expect((await world.register({ force: true, name: "other" })).config.name).toBe("other");
  expect((await nodes()).map(({ name }) => name).sort()).toEqual(["alpha", "other"]);
});

test("a token that is bound to another name says which name the node has", async () => {
  await world.api("POST", "/api/org/acme/nodes/", { name: "laptop" });
  const registrationToken = await world.token({ node_name: "laptop" });
  const { config } = await world.register({ name: "mine", credential: { registrationToken } });
  expect(config.name).toBe("laptop");
  expect(world.logged).toContainEqual(expect.stringContaining('calls this node "laptop", not "mine"'));
});

test("--force waits for the lock of the directory that it replaces", async () => {
  const { directory } = await world.register();
  const before = readCredentials(directory).api_token;
  const { promise: worked, resolve: finish } = Promise.withResolvers<void>();
  const working = withLock(directory, "sync", world.system, () => worked);
  const registering = world.register({ force: true });
  const answered = () => world.requests.filter((each) => each.endsWith("/register/")).length === 2;
  for (let waited = 0; !answered() && waited < 5000; waited += 10) await Bun.sleep(10);
  await Bun.sleep(200);
  expect(readCredentials(directory).api_token).toBe(before);
  finish();
  await Promise.all([working, registering]);
  expect(readCredentials(directory).api_token).not.toBe(before);
  expect(readdirSync(directory).filter((name) => name.startsWith("lock"))).toEqual([]);
  expect(readdirSync(world.root)).toEqual(["acme"]);
});

test("--force keeps the last order of the same node, so that older ones stay invalid", async () => {
  const { directory, config } = await world.register();
  const path = join(directory, "orders.json");
  const key = await makeSigningKey("another");
  const order = {
    org: "acme",
    node_id: config.node_id,
    action: "restore",
    seq: 7,
    iat: 1,
    reason: "",
    jti: "1",
  };
  const taken = `${JSON.stringify({ jws: "x", order })}\n`;
  writeFileSync(path, taken);
  await world.register({ force: true });
  expect(readFileSync(path, "utf8")).toBe(taken);
  // Sequence numbers of another order key do not matter.
  const now = readFileSync(join(directory, "node-config.json"), "utf8");
  const other = { ...config, order_key: publicHalf(key) };
  writeFileSync(join(directory, "node-config.json"), JSON.stringify(other));
  await world.register({ force: true });
  expect(existsSync(path)).toBe(false);
  expect(JSON.parse(read("node-config.json")).order_key).toEqual(JSON.parse(now).order_key);
  // A damaged file is not copied.
  writeFileSync(path, "{");
  await world.register({ force: true });
  expect(existsSync(path)).toBe(false);
});

test("remains of a killed run are removed by the next register or unregister", async () => {
  const leave = () => {
    for (const name of [".acme.removed", ".acme.replaced", ".other.removed"]) {
      mkdirSync(join(world.root, name), { recursive: true });
      writeFileSync(join(world.root, name, "host.key"), "secret");
    }
  };
  leave();
  await world.register();
  expect(readdirSync(world.root).sort()).toEqual([".other.removed", "acme"]);
  leave();
  await world.agent(["unregister", "--org-slug", "acme", "--dry-run"]);
  expect(readdirSync(world.root)).toContain(".acme.removed");
  expect(await world.agent(["unregister", "--org-slug", "acme"])).toMatchObject({ status: 0 });
  leave();
  expect(await world.agent(["unregister", "--org-slug", "acme"])).toMatchObject({ status: 4 });
  expect(readdirSync(world.root)).toEqual([".other.removed"]);
});

test("an overrides.yml from before the registration is kept", async () => {
  mkdirSync(join(world.root, "acme"));
  writeFileSync(join(world.root, "acme/overrides.yml"), "listen:\n  port: 5555\n");
  await world.register();
  expect(read("config.yml")).toContain("port: 5555");
  expect(read("overrides.yml")).toContain("5555");
});

test("an administrator renews the certificates of a node by one command", async () => {
  const { config } = await world.register();
  const certificate = async () => {
    const [node] = v.parse(
      v.array(v.object({ certificate: v.object({ fingerprint: v.string() }) })),
      await world.api("GET", "/api/org/acme/nodes/"),
    );
    return node?.certificate.fingerprint;
  };
  const before = await certificate();
  const where = ["--api-base", "https://control.example", "--access-token-file", "-"];
  const { status, stdout } = await world.agent(["admin", "node", "renew", "acme", config.name, ...where], {
    stdin: world.owner,
  });
  expect([status, stdout]).toEqual([0, expect.stringContaining("Renewed the certificates of node alpha")]);
  expect(await certificate()).not.toBe(before);
});

/** Forwards the request, and breaks the answer. */
function breakAnswer(change: (answer: RegisterAnswer) => unknown): void {
  const through = world.system.fetch;
  world.system.fetch = async (url, init) => {
    const answer = await through(url, init);
    const body = v.parse(RegisterAnswer, await answer.json());
    return Response.json(change(body), { status: answer.status });
  };
}

test("this machine chooses its mode, also if a former control plane answers with the mode of the first registration", async () => {
  await world.register({ mode: "server" });
  breakAnswer((answer) => edit(answer, "node-config.json", (text) => text.replace("desktop", "server")));
  expect((await world.register({ force: true, mode: "desktop" })).config.mode).toBe("desktop");
  expect(JSON.parse(read("node-config.json")).mode).toBe("desktop");
});

test("a repeated run after a lost answer makes one node, one directory, one use of the token", async () => {
  const through = world.system.fetch;
  const registrationToken = await world.token({ uses: 1 });
  world.system.fetch = async (url, init) => {
    await through(url, init);
    throw new Error("the line broke");
  };
  expect(await rejection(world.register({ credential: { registrationToken } }))).toMatchObject({
    code: "control_plane_unreachable",
  });
  expect(readdirSync(world.root)).toEqual([".acme.pending"]);
  expect(statSync(join(world.root, ".acme.pending")).mode & 0o777).toBe(0o700);
  world.system.fetch = through;
  await world.register({ credential: { registrationToken } });
  expect(readdirSync(world.root)).toEqual(["acme"]);
  expect(await nodes()).toHaveLength(1);
});

test("a refused registration leaves no files", async () => {
  const registrationToken = await world.token({ uses: 1 });
  await world.register({ credential: { registrationToken } });
  const another = await world.token({ uses: 1 });
  for (const options of [
    { slug: "nobody", credential: { registrationToken: another } },
    { slug: "other", credential: { registrationToken: "A".repeat(43) } },
  ]) {
    const refused = await rejection(world.register(options));
    expect(refused.code).toBe("token_not_valid");
    expect(refused.details.hint).toContain(`--org-slug ("${options.slug}")`);
    expect(readdirSync(world.root)).toEqual(["acme"]);
  }
});

test("each refusal names the line that helps", async () => {
  const registrationToken = await world.token({ uses: 1, expires_in: "1h" });
  await world.register({ credential: { registrationToken } });
  const refusalFor = async (registration: object, token: string) => {
    rmSync(join(world.root, "acme"), { recursive: true, force: true });
    const { details } = await rejection(
      world.register({ credential: { registrationToken: token }, ...registration }),
    );
    return details.hint;
  };
  const fresh = () => world.token({ uses: 1 });
  const revoked = await fresh();
  await world.server.db.write((tx) =>
    tx.run(
      "UPDATE registration_tokens SET revoked_at = 1 WHERE id = (SELECT max(id) FROM registration_tokens)",
    ),
  );
  expect(await refusalFor({ name: "beta" }, revoked)).toStartWith("Ask an administrator for a new one");
  expect(await refusalFor({ name: "beta" }, registrationToken)).toContain("`agent admin token create acme`");
  expect(await refusalFor({ name: "beta", wishes: { is_relay: true } }, await fresh())).toContain(
    "`agent admin token create acme --lighthouse`",
  );
  const taken = await refusalFor({ name: "alpha" }, await fresh());
  expect(taken).toContain("`agent admin node revoke acme alpha`");
  expect(taken).toContain("`agent admin token create acme --node alpha`");
});

test("a refused token is explained whatever the server's words are, also by a former server", () => {
  const registration = { slug: "acme", credential: { registrationToken: "" } };
  const hintFor = (details: { hint?: string }) => {
    const explained = explainRefusal(
      new AppError("token_not_valid", "Other words.", details),
      registration,
      "a",
    );
    return explained instanceof AppError ? explained.details.hint : undefined;
  };
  const line = "`agent admin token create acme`";
  expect(hintFor({ hint: "Create a new one." })).toBe(`Ask an administrator for a new one: ${line}.`);
  expect(hintFor({})).toContain(line);
  expect(hintFor({})).toContain('--org-slug ("acme")');
});

const lies: [string, (answer: RegisterAnswer) => unknown, RegExp][] = [
  ["another key", (answer) => answer, /another key/],
  [
    "another organization",
    (answer) =>
      edit(answer, "node-config.json", (text) =>
        text
          .replace('"org_slug": "acme"', '"org_slug": "evil"')
          .replace('"org_slug":"acme"', '"org_slug":"evil"'),
      ),
    /organization "evil"/,
  ],
  [
    "another name",
    (answer) => edit(answer, "node-config.json", (text) => text.replace("alpha", "omega")),
    /host.crt is for "alpha"/,
  ],
  ["no CA", (answer) => edit(answer, "ca.crt", () => "nothing"), /refused/],
  [
    "a configuration without pki",
    (answer) => edit(answer, "config.yml", () => "listen:\n  port: 1\n"),
    /no pki section/,
  ],
];

function edit(
  answer: RegisterAnswer,
  file: keyof RegisterAnswer["config"]["files"],
  change: (text: string) => string,
): RegisterAnswer {
  const { files } = answer.config;
  return { ...answer, config: { ...answer.config, files: { ...files, [file]: change(files[file] ?? "") } } };
}

for (const [what, change, reason] of lies) {
  test(`an answer with ${what} is refused before anything is committed`, async () => {
    breakAnswer(change);
    if (what === "another key") {
      // The request is changed on its way: the returned certificate is for another key.
      const through = world.system.fetch;
      world.system.fetch = (url, init) => {
        const body = v.parse(v.record(v.string(), v.unknown()), JSON.parse(String(init?.body)));
        return through(url, {
          ...init,
          body: JSON.stringify({ ...body, host_public_key: makeHostKey().publicPem }),
        });
      };
    }
    const error = await rejection(world.register());
    expect(error.code).toBe("untrusted_answer");
    expect(error.message).toMatch(reason);
    expect(readdirSync(world.root)).toEqual([".acme.pending"]);
  });
}

test("a fixed port of another organization on this machine is refused before any request", async () => {
  await world.register({ wishes: { listen_port: 4242 } });
  await world.server.organization("beta", "10.78.0.0/16");
  const sent = world.requests.length;
  const wishes = { is_relay: true, public_ip: "192.0.2.1" };
  const error = await rejection(world.register({ slug: "beta", wishes }));
  expect(error).toMatchObject({ code: "collision", exitStatus: 1 });
  expect(error.message).toContain('"acme"');
  expect(world.requests).toHaveLength(sent);
  expect(readdirSync(world.root)).toEqual(["acme"]);
});

test("a clock that is wrong by years is reported as such", async () => {
  const { now } = world.system;
  world.system.now = () => now() + 5 * 365 * 86_400_000;
  const error = await rejection(world.register());
  expect(error.code).toBe("untrusted_answer");
  expect(error.details.hint).toContain("clock");
});

test("host names become node names", () => {
  expect(["Web-1.example.com", "MAC_Book Pro", "--x--", "…", "a".repeat(80)].map(defaultNodeName)).toEqual([
    "web-1",
    "mac-book-pro",
    "x",
    "node",
    "a".repeat(63),
  ]);
});

test("a log file on a full disk changes nothing of a registration, and a plan makes no log file", async () => {
  const words = [...registerWords, "--registration-token-file", "-", "--no-start", "--verbose"];
  const stdin = await world.token();
  const log = join(world.root, "..", `planned-${process.pid}.log`);
  expect(await world.agent([...words, "--dry-run", "--log-file", log], { stdin })).toMatchObject({
    status: 0,
  });
  expect(existsSync(log)).toBe(false);
  const { status, stderr } = await world.agent([...words, "--log-file", "/dev/full"], { stdin });
  expect({ status, stderr }).toMatchObject({ status: 0 });
  expect(existsSync(join(world.root, "acme", "host.key"))).toBe(true);
});

test("keys stay where a failure of this machine follows the request", async () => {
  const { fetch } = world.system;
  world.system.fetch = async (url, init) => {
    await fetch(url, init);
    throw new AppError("disk_full", "Cannot write something: no space left on the disk");
  };
  expect(await rejection(world.register())).toMatchObject({ code: "disk_full" });
  const kept = readFileSync(join(world.root, ".acme.pending", "host.key"), "utf8");
  world.system.fetch = fetch;
  await world.register();
  expect(read("host.key")).toBe(kept);
  expect((await nodes()).length).toBe(1);
});
