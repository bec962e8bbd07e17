// `agent doctor` on a machine with one fault at a time: it finds each fault with evidence and remedy, and all other checks
// keep their verdicts.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { chmodSync, cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { fromSystemError } from "../../../src/base/errors.ts";
import { writeHosts } from "../../../src/node/files/hosts.ts";
import { applyChanges } from "../../../src/node/health/apply-changes.ts";
import { runCheck } from "../../../src/node/doctor/check.ts";
import { makeHostKey, makeNodeKey } from "../../../src/pki/keys.ts";
import { engine, hasEngine, makeControl, makeNodeWorld, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
/** How far the server's clock is ahead of ours, in ms. */
let aheadMs = 0;

beforeEach(async () => {
  world = await makeNodeWorld();
  await world.register();
  aheadMs = 0;
  const through = world.system.fetch;
  world.system.fetch = async (url, init) => {
    const answer = await through(url, init);
    // Only a real listener adds the date; the application in this process has none.
    answer.headers.set("Date", new Date(world.server.clock.ms + aheadMs).toUTCString());
    return answer;
  };
});
afterEach(() => world[Symbol.asyncDispose]());

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

async function examine() {
  const { status, json } = await world.agent(["doctor", "--json"]);
  const { ok, checks } = v.parse(Doctor, json);
  expect(ok).toBe(checks.every(({ verdict }) => verdict !== "fail"));
  expect(status).toBe(ok ? 0 : 1);
  return checks;
}

const of = (name: string) => join(world.root, "acme", name);
const put = (name: string, text: string) => {
  rmSync(of(name), { force: true });
  writeFileSync(of(name), text, { mode: name.endsWith("key") ? 0o600 : 0o644 });
};
const fakeEngine = (version: string, testStatus = 0) => {
  const script = `#!/bin/sh\n[ "$1" = -version ] && echo Version: ${version} && exit 0\nexit ${testStatus}\n`;
  writeFileSync(world.settings.overlayBinary, script);
  chmodSync(world.settings.overlayBinary, 0o755);
};

test("the remedy for a missing file restores it", async () => {
  const before = readFileSync(of("ca.crt"), "utf8");
  for (const name of ["ca.crt", "current/host.crt", "node.crt", "config.yml"]) {
    rmSync(of(name));
    expect((await examine()).find(({ id }) => id === "files")).toMatchObject({ verdict: "fail" });
    const { status, stdout } = await world.agent(["sync-config"]);
    expect(status).toBe(0);
    // It says what it has done.
    if (name === "current/host.crt") expect(stdout).toContain("the new configuration is in use");
    else
      expect(stdout).toStartWith(`acme: was missing, and is there again: ${name}\nacme: no other change (`);
    expect((await examine()).find(({ id }) => id === "files")).toMatchObject({ verdict: "ok" });
  }
  expect(readFileSync(of("ca.crt"), "utf8")).toBe(before);
});

// The noted reason is cut, and may lose the name of the file.
test.each(["level", "long".repeat(120)])(
  "a refusal of overrides.yml is named by its file, with what to correct: %p",
  async (key) => {
    const script =
      '#!/bin/sh\n[ "$1" = -version ] && echo Version: 1.11.0 && exit 0\nfor file; do grep -q shouting "$file" 2>/dev/null && echo shouting >&2 && exit 1; done\nexit 0\n';
    writeFileSync(world.settings.overlayBinary, script, { mode: 0o755 });
    writeFileSync(of("overrides.yml"), `logging:\n  ${key}: shouting\n`);
    const { status, stdout } = await world.agent(["sync-config"]);
    expect([status, stdout]).toEqual([
      1,
      expect.stringContaining(`logging.${key} in ${of("overrides.yml")}`),
    ]);
    const found = (await examine()).find(({ id }) => id === "configuration");
    expect(found).toMatchObject({
      verdict: "warn",
      evidence: expect.stringContaining("the newest configuration is not in use: "),
      remedy: `Correct ${of("overrides.yml")}, then run: agent sync-config`,
    });
  },
);

test("a value that overrides.yml may not have is told by sync-config, status and doctor, until it is corrected", async () => {
  const told = `${of("overrides.yml")} sets listen.port to "abc". Allowed is a whole number from 0 to 65535`;
  const configuration = async () => (await examine()).find(({ id }) => id === "configuration");
  writeFileSync(of("overrides.yml"), "listen: {port: abc}\n");
  const { status, stdout } = await world.agent(["sync-config"]);
  expect([status, stdout]).toEqual([78, expect.stringContaining(told)]);
  expect((await world.agent(["status"])).stdout).toContain(`the newest configuration is not in use: ${told}`);
  expect(await configuration()).toMatchObject({
    verdict: "warn",
    evidence: expect.stringContaining(told),
    remedy: `Correct ${of("overrides.yml")}, then run: agent sync-config`,
  });
  writeFileSync(of("overrides.yml"), "listen: {port: 4300}\n");
  expect((await world.agent(["sync-config"])).status).toBe(0);
  expect((await world.agent(["status"])).stdout).not.toContain("not in use");
  expect((await configuration())?.verdict).not.toBe("warn");
});

test.each(["missing", "damaged"])("sync-config names host.key if it is %s", async (how) => {
  rmSync(of("host.key"));
  if (how === "damaged") writeFileSync(of("host.key"), "nonsense", { mode: 0o600 });
  const { status, stdout, stderr } = await world.agent(["sync-config"]);
  expect([status, stdout]).toEqual([78, expect.stringContaining(`: ${of("host.key")} is ${how}\n`)]);
  expect(stderr).toMatch(/only a new registration helps: `agent doctor .*` says how/);
});

test("a refusal that is not about overrides.yml does not blame it", async () => {
  writeFileSync(of("overrides.yml"), "logging:\n  level: warning\n");
  await world.agent(["sync-config"]);
  fakeEngine("1.11.0", 1);
  const rule = {
    direction: "inbound",
    protocol: "tcp",
    ports: "22",
    peer: { any: true },
    target: { any: true },
  };
  await world.api("POST", "/api/org/acme/firewall_rules/", rule);
  expect((await world.agent(["sync-config"])).status).toBe(1);
  const found = (await examine()).find(({ id }) => id === "configuration");
  expect(found).toMatchObject({ verdict: "warn", remedy: "agent sync-config" });
});

test("on a healthy machine all checks of the organization are ok", async () => {
  fakeEngine("1.11.0");
  const checks = await examine();
  for (const { org_slug, id, verdict, evidence } of checks) {
    if (org_slug !== undefined)
      expect(`${id} ${verdict}: ${evidence}`).toMatch(/^(\S+ ok|port-mapping skipped): /);
  }
  const ids = checks.filter(({ org_slug }) => org_slug === undefined).map(({ id }) => id);
  const machine = ["rights", "tun", "capability", "engine", "disk", "keyring", "units", "collisions"];
  expect(ids).toEqual(expect.arrayContaining(machine));
});

type Case = {
  what: string;
  id: string;
  verdict: "warn" | "fail";
  evidence: RegExp;
  remedy: RegExp;
  damage: () => void | Promise<void>;
};
const cases: Case[] = [
  {
    what: "a key that other users can read",
    id: "files",
    verdict: "fail",
    evidence: /host\.key has mode 0644, not 0600/,
    remedy: /^chmod 600 .*host\.key$/,
    damage: () => chmodSync(of("host.key"), 0o644),
  },
  {
    what: "a missing file",
    id: "files",
    verdict: "fail",
    evidence: /ca\.crt is missing/,
    remedy: /sync-config/,
    damage: () => rmSync(of("ca.crt")),
  },
  {
    what: "a key that does not belong to the certificate",
    id: "keys",
    verdict: "fail",
    evidence: /host\.key does not belong to host\.crt/,
    remedy: /register --force/,
    damage: () => put("host.key", makeHostKey().privatePem),
  },
  {
    what: "an empty host.key",
    id: "keys",
    verdict: "fail",
    evidence: /^host\.key is empty$/,
    remedy: /register --force/,
    damage: () => put("host.key", ""),
  },
  {
    what: "another node.key",
    id: "node-certificate",
    verdict: "fail",
    evidence: /node\.crt|key/,
    remedy: /./,
    damage: () => put("node.key", makeNodeKey().privatePem),
  },
  {
    what: "a certificate with few days left",
    id: "certificate",
    verdict: "warn",
    evidence: /^valid until .*Z, [45] days left$/,
    remedy: /sync-config/,
    damage: () => void (world.server.clock.ms += 85 * 86_400_000),
  },
  {
    what: "an expired certificate",
    id: "certificate",
    verdict: "fail",
    evidence: /./,
    remedy: /./,
    damage: () => void (world.server.clock.ms += 100 * 86_400_000),
  },
  {
    what: "a blocklist of half the maximum length",
    id: "blocklist",
    verdict: "warn",
    evidence: /^50000 of at most 100000 entries$/,
    remedy: /admin ca rotate acme/,
    damage() {
      const entry = `    - "${"0".repeat(64)}"\n`;
      const text = readFileSync(of("config.yml"), "utf8").replace(/^  blocklist: \[\]\n/m, "");
      put("config.yml", text.replace(/^pki:\n/m, `pki:\n  blocklist:\n${entry.repeat(50_000)}`));
    },
  },
  {
    what: "a changed overrides.yml that is not applied",
    id: "configuration",
    verdict: "warn",
    evidence: /overrides\.yml/,
    remedy: /sync-config/,
    damage: () => put("overrides.yml", "logging:\n  level: debug\n"),
  },
  {
    what: "a configuration that the engine rejects",
    id: "configuration",
    verdict: "fail",
    evidence: /refuses/,
    remedy: /./,
    damage: () => fakeEngine("1.11.0", 1),
  },
  {
    what: "an engine with a known vulnerability",
    id: "engine",
    verdict: "warn",
    evidence: /CVE-2026-25793/,
    remedy: /overlay update/,
    damage: () => fakeEngine("1.9.3"),
  },
  {
    what: "an engine version on the deny list",
    id: "engine",
    verdict: "fail",
    evidence: /CVE-2025-62820/,
    remedy: /overlay update/,
    damage: () => fakeEngine("1.9.5"),
  },
  {
    what: "no engine",
    id: "engine",
    verdict: "fail",
    evidence: /no overlay engine/,
    remedy: /overlay install/,
    damage: () => rmSync(world.settings.overlayBinary),
  },
  {
    what: "a clock that is slightly wrong",
    id: "control-plane",
    verdict: "warn",
    evidence: /-(9|10|11) s off/,
    remedy: /timedatectl/,
    damage: () => void (aheadMs = 10_000),
  },
  {
    what: "a clock that is more wrong than certificates tolerate",
    id: "control-plane",
    verdict: "fail",
    evidence: /2(49|50|51) s off/,
    remedy: /timedatectl/,
    damage: () => void (aheadMs = -250_000),
  },
  {
    what: "an unreachable control plane",
    id: "control-plane",
    verdict: "fail",
    evidence: /Cannot reach the control plane/,
    remedy: /./,
    damage: () => void (world.system.fetch = () => Promise.reject(new Error("away"))),
  },
  {
    what: "a revoked access",
    id: "access",
    verdict: "fail",
    evidence: /revoked at .*Z/,
    remedy: /administrator/,
    async damage() {
      await world.api("DELETE", "/api/org/acme/nodes/1/");
      await world.agent(["check-auth"]);
    },
  },
  {
    what: "missing credentials",
    id: "control-plane",
    verdict: "fail",
    evidence: /credentials\.json/,
    remedy: /register/,
    damage: () => rmSync(of("credentials.json")),
  },
];
for (const { what, id, verdict, evidence, remedy, damage } of cases) {
  test(what, async () => {
    fakeEngine("1.11.0");
    await damage();
    const found = (await examine()).find((check) => check.id === id);
    expect(`${found?.verdict} ${found?.evidence}`).toStartWith(verdict);
    expect(found?.evidence).toMatch(evidence);
    expect(found?.remedy).toMatch(remedy);
  });
}

test("a port that another program holds fails, with the name of the program", async () => {
  const socket = createSocket("udp4");
  await new Promise<void>((resolve) => socket.bind(0, resolve));
  const { port } = socket.address();
  put("overrides.yml", `listen:\n  port: ${port}\n`);
  await world.agent(["sync-config"]);
  const found = (await examine()).find(({ id }) => id === "port");
  expect(found).toMatchObject({ verdict: "fail", remedy: expect.stringContaining("listen.port") });
  expect(found?.evidence).toContain(`UDP ${port} (ipv4): `);
  expect(found?.evidence).toContain(`process ${process.pid}`);
  socket.close();
});

test("overrides.yml is blamed only where it exists, and never for a damaged key", async () => {
  const found = async () => (await examine()).find(({ id }) => id === "configuration");
  fakeEngine("1.11.0", 1);
  expect(await found()).toMatchObject({ verdict: "fail", remedy: "agent sync-config" });
  put("host.key", "");
  expect(await found()).toMatchObject({ verdict: "skipped", evidence: "not tested: host.key is damaged" });
});

test("an address of a kept peer that becomes known later is no change that is not applied", async () => {
  await world.agent(["sync-config"]);
  const directory = join(world.root, "acme");
  const [place, command] = [{ directory, slug: "acme" }, "test"];
  const peers = { "fd00::9": ["192.0.2.9:4242"] };
  await applyChanges(place, { peers }, { command, control: makeControl(), system: world.system });
  expect(readFileSync(of("config.yml"), "utf8")).toContain("192.0.2.9:4242");
  const node = { id: 9, name: "nine", ip: "10.77.0.9", ip6: "fd00::9" };
  writeHosts(directory, { schema: 1, version: 5, view: "later", nodes: [node], aliases: [], suffix: "" });
  const found = (await examine()).find(({ id }) => id === "configuration");
  expect(found?.evidence).not.toContain("not applied yet");
});

test("two organizations that cannot run at the same time fail", async () => {
  cpSync(join(world.root, "acme"), join(world.root, "beta"), { recursive: true, verbatimSymlinks: true });
  const config = readFileSync(of("node-config.json"), "utf8").replace('"acme"', '"beta"');
  writeFileSync(join(world.root, "beta/current/node-config.json"), config);
  const found = (await examine()).find(({ id }) => id === "collisions");
  expect(found).toMatchObject({
    verdict: "fail",
    evidence: expect.stringContaining("beta cannot run beside acme"),
  });
});

test("a damaged organization directory does not stop the other checks", async () => {
  put("node-config.json", "{");
  const checks = await examine();
  expect(checks.find(({ org_slug }) => org_slug === "acme")).toMatchObject({ id: "files", verdict: "fail" });
  expect(checks.find(({ id }) => id === "disk")?.verdict).toBe("ok");
});

test.skipIf(!hasEngine)("the evidence for a bad configuration is the error of the real engine", async () => {
  cpSync(engine, world.settings.overlayBinary);
  put("config.yml", readFileSync(of("config.yml"), "utf8").replace(/level: .*/, "level: shouting"));
  rmSync(of("current/server.yml"));
  const found = (await examine()).find(({ id }) => id === "configuration");
  expect(`${found?.verdict} ${found?.evidence}`).toMatch(/^fail The overlay engine refuses .*shouting/);
});

test("without read permission, no remedy changes keys or files", async () => {
  const denied = Object.assign(new Error("EACCES: permission denied, open 'host.key'"), { code: "EACCES" });
  for (const error of [denied, fromSystemError("read host.key", denied)]) {
    const check = (isRoot: boolean) =>
      runCheck({ id: "keys", slug: "acme" }, () => Promise.reject(error), {
        cure: "agent register --force",
        isRoot,
      });
    // Root has this permission already: to run the doctor as root would change nothing.
    expect(await check(true)).toMatchObject({
      verdict: "fail",
      remedy: expect.stringMatching(/^File modes do not stop root/),
    });
    // An ordinary user sees nothing there: not a fault of the machine.
    expect(await check(false)).toMatchObject({
      verdict: "skipped",
      evidence: expect.stringContaining("not seen: "),
      remedy: "sudo agent doctor",
    });
  }
});
