// `--dry-run` changes nothing, here or on the server, and lists exactly the files that the command then changes.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { keyringWord } from "../../src/brand.ts";
import { apiBase, makeNodeWorld, registerWords, type NodeWorld } from "../support/node.ts";
import { password } from "../support/server.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const Plan = v.object({
  plan: v.array(
    v.variant("step", [
      v.object({ step: v.literal("file"), path: v.string(), mode: v.string(), change: v.string() }),
      v.object({ step: v.literal("run"), argv: v.array(v.string()) }),
      v.object({ step: v.literal("request"), method: v.string(), url: v.string() }),
    ]),
  ),
});

/** Path → mode and content (of a link: its target) of everything below the directory of the test. */
function snapshot(): Record<string, string> {
  const paths = readdirSync(join(world.root, ".."), { recursive: true, encoding: "utf8" })
    // The link's target is listed under its own path.
    .filter((name) => !name.includes("/current/"))
    .map((name) => join(world.root, "..", name));
  return Object.fromEntries(
    paths.flatMap((path) => {
      const stat = lstatSync(path);
      if (stat.isDirectory() || stat.isSocket()) return [];
      const content = stat.isSymbolicLink() ? readlinkSync(path) : readFileSync(path, "latin1");
      return [[path, `${(stat.mode & 0o7777).toString(8)} ${content}`]];
    }),
  );
}

/** Runs the command with --dry-run, then without; the planned and the changed files, and the requests. */
async function both(words: readonly string[], stdin: string, env: Record<string, string> = {}) {
  const before = snapshot();
  world.requests.length = 0;
  const dry = await world.agent([...words, "--dry-run", "--json"], { stdin, env });
  expect(`${dry.status} ${dry.stderr}`).toBe("0 ");
  expect(snapshot()).toEqual(before);
  const asked = world.requests.splice(0);
  expect(asked.filter((each) => !each.startsWith("GET "))).toEqual([]);
  const { plan } = v.parse(Plan, dry.json);
  const done = await world.agent([...words, "--json"], { stdin, env });
  expect(`${done.status} ${done.stdout}`).toStartWith("0 ");
  const files = plan.flatMap((step) => (step.step === "file" && step.change !== "same" ? [step] : []));
  for (const { path, mode, change } of files) {
    expect(`${path} ${existsSync(path)}`).toBe(`${path} ${change !== "removed"}`);
    if (change !== "removed") expect(`0${(statSync(path).mode & 0o777).toString(8)}`).toBe(mode);
    if (change === "created") expect(before[path]).toBeUndefined();
  }
  const requests = plan.flatMap((step) =>
    step.step === "request" ? [`${step.method} ${new URL(step.url).pathname}`] : [],
  );
  return { before, after: snapshot(), files: files.map(({ path }) => path), requests, sent: world.requests };
}

const register = [...registerWords, "--registration-token-file", "-", "--no-start"];
const changedIn = (before: Record<string, string>, after: Record<string, string>) =>
  [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (path) => before[path] !== after[path],
  );
const inside = (name: string) => join(world.root, "acme", name);

test("register", async () => {
  const { after, files, requests, sent } = await both(register, await world.token());
  const isInner = (path: string) => /\/(current|generations|lock)(\/|$)/.test(path);
  const made = Object.keys(after).filter((path) => path.startsWith(inside("")) && !isInner(path));
  // The one directory that stays empty until the engine starts.
  expect(files.sort()).toEqual([...made, inside("run/")].sort());
  expect(requests).toEqual(sent);
});

test("sync-config", async () => {
  await world.agent(register, { stdin: await world.token() });
  writeFileSync(inside("overrides.yml"), "logging:\n  level: debug\n");
  const { files, requests, sent, before } = await both(["sync-config"], "");
  expect(files).toEqual([inside("config.yml")]);
  expect(requests).toEqual(sent);
  expect(readFileSync(inside("overrides.yml"), "utf8")).toBe(
    (before[inside("overrides.yml")] ?? "").slice(4),
  );
});

test("sync-config --renew names the certificates that it replaces", async () => {
  await world.agent(register, { stdin: await world.token() });
  const certificates = () => ["host.crt", "node.crt"].map((name) => readFileSync(inside(name), "utf8"));
  const former = certificates();
  const words = ["sync-config", "--renew", "--access-token-file", "-"];
  const { files, requests, sent } = await both(words, world.owner);
  expect(files.sort()).toEqual([inside("host.crt"), inside("node.crt")]);
  certificates().forEach((each, at) => expect(each).not.toBe(former[at] ?? ""));
  expect(requests).toEqual(sent);
});

test("up, down, start, stop, restart and switch need no daemon for their plan", async () => {
  await world.agent(
    register.map((word) => (word === "server" ? "desktop" : word)),
    { stdin: await world.token() },
  );
  const verbs = {
    up: "start",
    down: "stop",
    start: "start",
    stop: "stop",
    restart: "restart",
    switch: "switch",
  };
  for (const [command, verb] of Object.entries(verbs)) {
    const { status, json } = await world.agent([command, "acme", "--dry-run", "--json"]);
    expect({ command, status, json }).toMatchObject({
      status: 0,
      json: { plan: [{ step: "request", method: `${verb} acme` }] },
    });
  }
});

test("checkin and check-auth", async () => {
  await world.agent(register, { stdin: await world.token() });
  for (const command of ["checkin", "check-auth"]) {
    const { before, after, files, requests, sent } = await both([command], "");
    expect(files.sort()).toEqual(changedIn(before, after).sort());
    expect(files).toHaveLength(command === "checkin" ? 0 : 2);
    expect(requests).toEqual(sent);
  }
});

test("unseal", async () => {
  await world.agent(register, { stdin: await world.token() });
  for (const name of ["seal.json", "seal-enforced"]) writeFileSync(inside(name), "{}");
  const refused = await world.agent(["unseal", "acme"]);
  expect([refused.status, refused.stderr]).toEqual([2, expect.stringContaining("give --yes")]);
  const { before, after, files } = await both(["unseal", "acme", "--yes"], "");
  expect(files.sort()).toEqual(["seal-enforced", "seal.json"].map(inside));
  expect(files).toEqual(changedIn(before, after).sort());
  expect((await world.agent(["unseal", "acme", "--yes"])).stdout).toBe(
    "acme is not sealed on this machine.\n",
  );
});

test("unregister", async () => {
  await world.agent(register, { stdin: await world.token() });
  writeFileSync(inside("overrides.yml"), "logging:\n  level: debug\n");
  const words = ["unregister", "--org-slug", "acme", "--access-token-file", "-"];
  const { before, files, requests, sent } = await both(words, world.owner);
  const lay = Object.keys(before).filter((path) => path.startsWith(inside("")));
  expect(files.sort()).toEqual(lay.sort());
  expect(requests).toEqual(sent);
});

test("overlay install, update and rollback", async () => {
  const engine = (version: string) => {
    const path = join(world.root, "../engine");
    writeFileSync(path, `#!/bin/sh\n[ "$1" = -version ] && echo Version: ${version}\nexit 0\n`);
    return path;
  };
  const { overlayBinary } = world.settings;
  const installed = await both(["overlay", "install", "--file", engine("1.10.3")], "");
  expect(installed.files).toEqual([overlayBinary]);
  const check = await world.agent(["overlay", "update", "--check", "--version", "1.10.2"]);
  expect([check.status, check.stdout]).toEqual([
    0,
    "No newer engine: 1.10.2 is offered, 1.10.3 is installed\n",
  ]);
  const updated = await both(["overlay", "update", "--file", engine("1.11.0")], "");
  expect(updated.files.sort()).toEqual([overlayBinary, `${overlayBinary}.old`]);
  expect(changedIn(updated.before, updated.after).sort()).toEqual(updated.files);
  const back = await both(["overlay", "update", "--rollback"], "");
  expect(changedIn(back.before, back.after).sort()).toEqual(back.files.sort());
});

test("install-systemd --dry-run refuses programs that the real run refuses", async () => {
  const { executable } = world.system;
  const { overlayBinary } = world.settings;
  const foreign = join(world.root, "../agent");
  for (const [program, refused] of [
    ["/usr/bin/env", overlayBinary],
    [foreign, foreign],
  ] as const) {
    world.system.executable = program;
    const { status, stdout, stderr } = await world.agent(["install-systemd", "--dry-run"]);
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr).toContain(`A service of root must not run ${refused}`);
  }
  world.system.executable = executable;
  expect((await world.agent(["install-systemd", "--uninstall", "--dry-run"])).status).toBe(0);
});

test("install-systemd says whether an organization is damaged, or not registered", async () => {
  await world.agent(register, { stdin: await world.token() });
  writeFileSync(inside("node-config.json"), "{");
  const refused = async (slug: string) => {
    const { status, stderr } = await world.agent(["install-systemd", "--org-slug", slug, "--dry-run"]);
    return `${status} ${stderr}`;
  };
  expect(await refused("acme")).toStartWith(
    `78 agent: ${inside("node-config.json")} is damaged: it is not JSON`,
  );
  expect(await refused("beta")).toStartWith('4 agent: No organization "beta" is registered');
});

describe("login", () => {
  const home = () => join(world.root, "../home");
  const environment = () => ({ XDG_CONFIG_HOME: home() });
  const profiles = () => [
    join(home(), "overlay-agent/profiles/control.example.session"),
    join(home(), "overlay-agent/profiles/profiles.json"),
  ];

  test("with a password", async () => {
    // The machine's own node proves where the session is.
    await world.agent(register, { stdin: await world.token() });
    const words = [
      "login",
      "--api-base",
      apiBase,
      "--email",
      "owner@company.example",
      "--password-file",
      "-",
    ];
    const { files, requests, sent } = await both(words, password, environment());
    expect(files.filter((path) => !path.endsWith("/")).sort()).toEqual(profiles());
    expect(requests).toEqual(sent);
    expect(requests).toHaveLength(2);
  });

  test("where the daemon proves the session, as for users who may not read the tokens of nodes", async () => {
    const proofs = [{ organization: "acme", node_id: 1, proof: "p".repeat(43) }];
    const answer = JSON.stringify({ ok: true, message: "", version: "9", pid: 1, proofs });
    const unix = join(world.root, "../cmd.sock");
    using _ = Bun.listen({ unix, socket: { data: (socket) => void socket.write(`${answer}\n`) } });
    const words = [
      "login",
      "--api-base",
      apiBase,
      "--email",
      "owner@company.example",
      "--password-file",
      "-",
    ];
    const { requests, sent } = await both(words, password, environment());
    expect(requests).toEqual(sent);
    expect(requests).toEqual(["POST /api/token/", "POST /api/user/sessions/nodes/"]);
  });

  test("with a service token", async () => {
    const made = await world.api("POST", "/api/org/acme/service_tokens/", { name: "ci", role: "admin" });
    const { token } = v.parse(v.object({ token: v.string() }), made);
    const words = ["login", "--api-base", apiBase, "--access-token-file", "-"];
    const { requests, sent } = await both(words, token, environment());
    expect(requests).toEqual(sent);
  });

  test.each([
    [
      ["login", apiBase, "--device"],
      ["POST /api/device/", "POST /api/device/token/", "GET /api/user/"],
    ],
    [["login", apiBase, "--email", "owner@company.example"], ["POST /api/token/"]],
  ])("%p", async (words, expected) => {
    const { json } = await world.agent([...words, "--dry-run", "--json"], { env: environment() });
    const steps = v.parse(Plan, json).plan;
    const requests = steps.flatMap((step) =>
      step.step === "request" ? [`${step.method} ${new URL(step.url).pathname}`] : [],
    );
    expect(requests).toEqual(expected);
  });

  test("names no file for a session that goes into the keyring", async () => {
    const { run } = world.system;
    const entries: string[] = [];
    world.system.run = async (argv, options) => {
      if (argv[1] !== keyringWord) return run(argv, options);
      if (argv[2] === "set") entries.push(argv[3] ?? "");
      return { status: 0, stdout: "", stderr: "", timedOut: false };
    };
    const words = [
      "login",
      "--api-base",
      apiBase,
      "--email",
      "owner@company.example",
      "--password-file",
      "-",
    ];
    const bus = { ...environment(), DBUS_SESSION_BUS_ADDRESS: "unix:path=/dev/null" };
    const { files } = await both(words, password, bus);
    expect(files.filter((path) => !path.endsWith("/"))).toEqual(profiles().slice(1));
    expect(entries).toEqual(["profile control.example"]);
  });
});
