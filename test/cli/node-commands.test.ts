// The commands of a node, in this process, against the real application: objects, sentences, exit statuses, dry runs, and
// no secret in any output.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { readCredentials } from "../../src/node/files/organizations.ts";
import { byHand, startOverlay } from "../../src/node/enroll/provision-services.ts";
import {
  apiBase,
  engine,
  hasEngine,
  makeNodeWorld,
  registerByCommand,
  registerWords,
  type NodeWorld,
} from "../support/node.ts";

let world: NodeWorld;

beforeEach(async () => {
  world = await makeNodeWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

const register = () => registerByCommand(world);

/** Every file below the root with its content. */
function snapshot(directory = world.root): Record<string, string> {
  return Object.fromEntries(
    readdirSync(directory, { recursive: true, encoding: "utf8" })
      .filter((name) => statSync(join(directory, name)).isFile())
      .map((name) => [name, readFileSync(join(directory, name), "utf8")]),
  );
}

const Plan = v.object({ plan: v.array(v.record(v.string(), v.unknown())) });

test("checkin", async () => {
  await register();
  const { status, json } = await world.agent(["checkin", "--json"]);
  expect({ status, json }).toEqual({
    status: 0,
    json: {
      organizations: [
        {
          org_slug: "acme",
          last_checkin_at: expect.stringMatching(/Z$/),
          config_version: expect.any(Number),
          config_changed: false,
          certificate_not_after: expect.stringMatching(/Z$/),
        },
      ],
    },
  });
});

test("sync-config: same, changed, failed", async () => {
  await register();
  const same = await world.agent(["sync-config", "--json"]);
  expect(same).toMatchObject({ status: 0, json: { organizations: [{ org_slug: "acme", result: "same" }] } });
  writeFileSync(join(world.root, "acme/overrides.yml"), "listen:\n  port: 4777\n");
  const changed = await world.agent(["sync-config", "--json"]);
  expect(changed).toMatchObject({
    status: 0,
    json: { organizations: [{ result: "changed", config_version: 1 }] },
  });
  writeFileSync(join(world.root, "acme/overrides.yml"), "cipher: aes\n");
  const failed = await world.agent(["sync-config", "--json"]);
  expect(failed.status).toBe(78);
  expect(failed.json).toMatchObject({
    organizations: [{ result: "failed", reason: expect.stringContaining('"cipher"') }],
  });
});

test("sync-config --renew renews the certificate with a user's access token, and requires one", async () => {
  await register();
  const before = readFileSync(join(world.root, "acme/host.crt"), "utf8");
  world.server.clock.ms += 60_000;
  expect((await world.agent(["sync-config", "--renew"])).status).toBe(2);
  const renewed = await world.agent(["sync-config", "--renew", "--access-token-file", "-", "--json"], {
    stdin: world.owner,
  });
  expect(renewed).toMatchObject({ status: 0, json: { organizations: [{ result: "changed" }] } });
  expect(readFileSync(join(world.root, "acme/host.crt"), "utf8")).not.toBe(before);
});

test("check-auth: ok, then exit 7 once when the node is revoked", async () => {
  await register();
  const fine = await world.agent(["check-auth", "--json"]);
  expect(fine).toMatchObject({
    status: 0,
    json: { organizations: [{ org_slug: "acme", result: "ok", action: "none" }] },
  });
  await world.api("DELETE", "/api/org/acme/nodes/1/");
  const second = await world.agent(["check-auth", "--all", "--json"]);
  expect(second).toMatchObject({
    status: 7,
    json: { organizations: [{ result: "revoked", action: "stopped" }] },
  });
  expect(await world.agent(["check-auth", "--all", "--json"])).toMatchObject({
    status: 0,
    json: { organizations: [{ result: "revoked", action: "none" }] },
  });
});

test("a refusal without a valid order gives exit 6 in every command, and a checkin keeps its shape", async () => {
  await register();
  const { fetch } = world.system;
  for (const order of [undefined, "nonsense"]) {
    const body = { error: "x", code: "node_revoked", detail: "No.", status_code: 403, order };
    world.system.fetch = async () => Response.json(body, { status: 403 });
    for (const command of ["check-auth", "sync-config", "checkin"]) {
      const { status, json } = await world.agent([command, "--json"]);
      expect({ command, status, json }).toMatchObject({
        command,
        status: 6,
        json: { organizations: [{ org_slug: "acme" }] },
      });
    }
  }
  world.system.fetch = fetch;
  await world.api("DELETE", "/api/org/acme/nodes/1/");
  expect(await world.agent(["checkin", "--json"])).toMatchObject({
    status: 7,
    json: { organizations: [{ org_slug: "acme", error: { code: "node_revoked" } }] },
  });
});

test("with several organizations, the worst exit status wins and all others are reported", async () => {
  await register();
  mkdirSync(join(world.root, "beta"));
  writeFileSync(
    join(world.root, "beta/node-config.json"),
    readFileSync(join(world.root, "acme/node-config.json"), "utf8").replace('"acme"', '"beta"'),
  );
  const { status, json } = await world.agent(["check-auth", "--json"]);
  expect(status).toBe(4);
  expect(json).toMatchObject({
    organizations: [
      { org_slug: "acme", result: "ok" },
      { org_slug: "beta", result: "unsure", reason: expect.stringContaining("credentials.json") },
    ],
  });
});

test("a damaged organization does not stop commands for the others, and sets the exit status", async () => {
  await register();
  mkdirSync(join(world.root, "beta/node-config.json"), { recursive: true });
  mkdirSync(join(world.root, "gamma"));
  writeFileSync(join(world.root, "gamma/node-config.json"), "{");
  world.requests.length = 0;
  const checked = await world.agent(["check-auth", "--all", "--json"]);
  expect(checked).toMatchObject({
    status: 78,
    json: {
      organizations: [
        { org_slug: "acme", result: "ok" },
        { org_slug: "beta", result: "unsure" },
        { org_slug: "gamma", result: "unsure", reason: expect.stringContaining("is damaged") },
      ],
    },
  });
  expect(await world.agent(["sync-config", "--json"])).toMatchObject({
    status: 78,
    json: {
      organizations: [
        { org_slug: "acme", result: "same" },
        { org_slug: "beta", result: "failed" },
        { org_slug: "gamma", result: "failed", reason: expect.stringContaining("is damaged") },
      ],
    },
  });
  const beaten = await world.agent(["checkin", "--json"]);
  const damaged = (slug: string) => ({
    org_slug: slug,
    error: { code: "bad_configuration", message: expect.any(String), hint: expect.any(String) },
  });
  expect(beaten).toMatchObject({
    status: 78,
    json: {
      organizations: [
        { org_slug: "acme", last_checkin_at: expect.any(String) },
        damaged("beta"),
        damaged("gamma"),
      ],
    },
  });
  expect(beaten.stderr).toContain("gamma: ");
  // With --org-slug, the damaged organization is refused.
  expect(await world.agent(["check-auth", "--org-slug", "gamma"])).toMatchObject({
    status: 78,
    stderr: expect.stringContaining("is damaged"),
  });
});

test("a slug cannot name another directory: exit 2", async () => {
  await register();
  for (const command of ["checkin", "sync-config", "check-auth", "unregister"]) {
    const { status, stderr } = await world.agent([command, "--org-slug", "../root/acme"]);
    expect(`${command} ${status}`).toBe(`${command} 2`);
    expect(stderr).toContain("--org-slug");
  }
  expect(readdirSync(world.root)).toEqual(["acme"]);
});

test("unregister --dry-run lists links, but not their targets", async () => {
  await register();
  const elsewhere = join(world.root, "../elsewhere");
  mkdirSync(elsewhere);
  writeFileSync(join(elsewhere, "kept"), "");
  symlinkSync(elsewhere, join(world.root, "acme/link"));
  symlinkSync("nowhere", join(world.root, "acme/broken"));
  const words = ["unregister", "--org-slug", "acme"];
  const { stdout } = await world.agent([...words, "--dry-run"]);
  expect(stdout).toContain(join(world.root, "acme/link"));
  expect(stdout).toContain(join(world.root, "acme/broken"));
  expect(stdout).not.toContain("kept");
  expect(await world.agent(words)).toMatchObject({ status: 0 });
  expect(readdirSync(elsewhere)).toEqual(["kept"]);
});

test("overlay install refuses flags that its source would ignore: exit 2", async () => {
  for (const [source, flag] of [
    ["package", "sha256"],
    ["package", "file"],
    ["release", "file"],
  ]) {
    const words = ["overlay", "install", "--source", `${source}`, `--${flag}`, "1.2.3", "--dry-run"];
    const { status, stderr } = await world.agent(words);
    expect(`${flag} ${status} ${stderr}`).toContain(`${flag} 2 `);
    expect(stderr).toContain(`--source ${source} and --${flag} exclude each other`);
  }
});

test("not registered: exit 4, with the command that registers", async () => {
  for (const words of [["checkin"], ["sync-config"], ["check-auth"], ["unregister", "--org-slug", "acme"]]) {
    const { status, stderr } = await world.agent(words);
    expect(`${words[0]} ${status}`).toBe(`${words[0]} 4`);
    expect(stderr).toContain("register");
  }
});

test("a dry run of each command prints a plan, sends no change and leaves every file as it is", async () => {
  const canary = await world.token();
  const before = world.requests.length;
  const fresh = await world.agent(
    [...registerWords, "--registration-token-file", "-", "--dry-run", "--json"],
    {
      stdin: canary,
    },
  );
  expect(fresh.status).toBe(0);
  const steps = v.parse(Plan, fresh.json).plan;
  expect(steps).toContainEqual({
    step: "request",
    method: "POST",
    url: `${apiBase}/api/org/acme/nodes/register/`,
  });
  expect(steps).toContainEqual({
    step: "file",
    path: join(world.root, "acme/host.key"),
    mode: "0600",
    change: "created",
  });
  expect(fresh.stdout).not.toContain(canary);
  expect(readdirSync(world.root)).toEqual([]);
  expect(world.requests).toHaveLength(before);

  await register();
  const files = snapshot();
  world.requests.length = 0;
  for (const words of [["checkin"], ["check-auth"], ["sync-config"], ["unregister", "--org-slug", "acme"]]) {
    const { status, json, stdout } = await world.agent([...words, "--dry-run", "--json"]);
    expect(`${words[0]} ${status}`).toBe(`${words[0]} 0`);
    expect(v.parse(Plan, json).plan.length).toBeGreaterThan(0);
    expect(stdout).not.toContain(readCredentials(join(world.root, "acme")).api_token);
    expect(stdout).not.toContain("PRIVATE KEY");
  }
  expect(snapshot()).toEqual(files);
  // The plan of a synchronization fetches the configuration, and sends nothing else.
  expect(world.requests).toEqual(["GET /api/org/acme/nodes/1/download_config/"]);
});

test("no output holds a secret, even with --verbose and after failures", async () => {
  const token = await world.token();
  const said: string[] = [];
  const run = async (words: readonly string[], stdin = "") => {
    const { stdout, stderr } = await world.agent([...words, "--verbose"], { stdin });
    said.push(stdout, stderr);
  };
  await run([...registerWords, "--registration-token-file", "-", "--no-start"], token);
  for (const words of [["checkin"], ["sync-config"], ["check-auth"], ["doctor"], ["doctor", "--json"]])
    await run(words);
  await run(["unregister", "--org-slug", "acme", "--access-token-file", "-", "--dry-run"], world.owner);
  const through = world.system.fetch;
  world.system.fetch = () => Promise.reject(new Error("away"));
  await run(["checkin"]);
  world.system.fetch = through;
  const { api_token } = readCredentials(join(world.root, "acme"));
  const key = readFileSync(join(world.root, "acme/host.key"), "utf8").split("\n")[1] ?? "";
  for (const secret of [token, api_token, world.owner, key]) {
    expect(secret.length).toBeGreaterThan(20);
    expect(said.join("\n")).not.toContain(secret);
  }
  expect(said.join("\n")).toContain("POST https://control.example/api/org/acme/nodes/register/");
});

test("doctor: each check has a verdict and evidence, and a remedy if it fails", async () => {
  await register();
  const Doctor = v.object({
    ok: v.boolean(),
    checks: v.array(
      v.object({
        id: v.string(),
        org_slug: v.optional(v.string()),
        verdict: v.picklist(["ok", "warn", "fail", "skipped"]),
        evidence: v.string(),
        remedy: v.optional(v.string()),
      }),
    ),
  });
  const examine = async () => v.parse(Doctor, (await world.agent(["doctor", "--json"])).json).checks;
  const of = (checks: Awaited<ReturnType<typeof examine>>, id: string) =>
    checks.find((check) => check.id === id);
  // The listener writes the date; the application in process has none.
  const through = world.system.fetch;
  world.system.fetch = async (url, init) => {
    const answer = await through(url, init);
    answer.headers.set("Date", new Date(world.server.clock.ms - 90_000).toUTCString());
    return answer;
  };
  const fine = await examine();
  for (const id of ["files", "access", "keys", "certificate", "node-certificate"]) {
    expect(`${id} ${of(fine, id)?.verdict} ${of(fine, id)?.evidence}`).toStartWith(`${id} ok`);
  }
  expect(of(fine, "control-plane")).toMatchObject({
    verdict: "warn",
    evidence: expect.stringContaining("90 s off"),
  });
  for (const { verdict, remedy } of fine)
    expect(verdict === "fail" || verdict === "warn").toBe(remedy !== undefined);

  chmodSync(join(world.root, "acme/host.key"), 0o644);
  world.server.clock.ms += 85 * 86_400_000;
  const worse = await examine();
  expect(of(worse, "files")).toMatchObject({
    verdict: "fail",
    remedy: `chmod 600 ${join(world.root, "acme/host.key")}`,
  });
  expect(of(worse, "certificate")).toMatchObject({ verdict: "warn" });
  world.system.fetch = () => Promise.reject(new Error("away"));
  expect(of(await examine(), "control-plane")).toMatchObject({ verdict: "fail" });
});

test("doctor --bundle writes a report without keys and tokens", async () => {
  await register();
  const bundle = join(world.root, "report.tar.gz");
  await world.agent(["doctor", "--bundle", bundle]);
  expect(statSync(bundle).mode & 0o777).toBe(0o600);
  const files = await new Bun.Archive(await Bun.file(bundle).bytes()).files();
  const names = [...files.keys()];
  expect(names).toEqual(expect.arrayContaining(["doctor.json", "acme/config.yml", "acme/host.crt"]));
  expect(names.filter((name) => /key|credentials/.test(name))).toEqual([]);
  const all = (await Promise.all([...files.values()].map((file) => file.text()))).join("\n");
  expect(all).not.toContain(readCredentials(join(world.root, "acme")).api_token);
  expect(all).not.toContain("PRIVATE KEY-----\n");
});

test("an invalid number is a usage error before anything is read", async () => {
  for (const words of ["check-auth --wait soon", "logs -n many"]) {
    expect((await world.agent(words.split(" "))).status).toBe(2);
  }
});

test("server mode without systemd: the error says what to do by hand", async () => {
  await world.register();
  world.system.platform = "freebsd";
  const config = join(world.root, "acme", "config.yml");
  for (const verb of ["start", "stop", "restart"]) {
    const { status, stderr } = await world.agent([verb, "acme"]);
    expect(`${status} ${stderr}`).toContain(`-config ${config}`);
    expect(status).toBe(1);
  }
  const { json, stderr } = await world.agent(["logs", "--json"]);
  expect(json).toEqual({ logs: [{ team: "acme", lines: [] }] });
  expect(stderr).toContain("acme: its log is in the journal of systemd");
});

test("the command line for a daemon by hand holds the given paths", () => {
  const places = { stateDb: "/srv/a b/state.db", socketPath: "/srv/cmd.sock", pipeName: "", autostart: true };
  const line = byHand("desktop", "acme", { ...world.settings, ...places }, world.system);
  expect(line).toContain(`--ipc-mode socket --config-root ${world.root} `);
  expect(line).toContain("--state-db-path '/srv/a b/state.db' --socket-path /srv/cmd.sock");
});

test("completion --json prints the script in an object", async () => {
  const { json } = await world.agent(["completion", "bash", "--json"]);
  expect(json).toEqual({ shell: "bash", script: expect.stringContaining("complete") });
});

test.if(hasEngine)("server mode without systemd: register says to run check-auth by hand", async () => {
  world.system.platform = "freebsd";
  const places = { stateDb: "/srv/state.db", socketPath: "/srv/cmd.sock", pipeName: "", autostart: true };
  const settings = { ...world.settings, ...places, overlayBinary: engine };
  const { started, left } = await startOverlay("server", "acme", settings, {
    system: world.system,
    log: world.log,
  });
  expect(started).toBe(false);
  expect(left.join("\n")).toContain(`  ${engine} -config ${join(world.root, "acme", "config.yml")}\n`);
  expect(left.at(-1)).toBe(`  agent check-auth --all --wait 58 --config-root ${world.root}`);
});

test("every command that needs an organization names the root where none is registered", async () => {
  for (const command of [
    "sync-config",
    "check-auth",
    "checkin",
    "peers",
    "netcheck",
    "start",
    "logs",
    "exit list",
  ]) {
    const { status, stderr } = await world.agent(command.split(" "));
    expect([command, status, stderr]).toEqual([
      command,
      4,
      `agent: No organization is registered below ${world.root}\nRegister this machine with \`agent register --config-root ${world.root}\`.\n`,
    ]);
  }
});

test("every command names the root where the given organization is not registered", async () => {
  await register();
  for (const line of [
    "start gamma",
    "status gamma",
    "names disallow corp.example --org-slug gamma",
    "install-launchd --org-slug gamma --dry-run",
  ]) {
    const { status, stderr } = await world.agent(line.split(" "));
    expect([line, status, stderr]).toEqual([
      line,
      4,
      expect.stringContaining(`No organization "gamma" is registered below ${world.root}\n`),
    ]);
  }
});
