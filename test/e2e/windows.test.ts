// The Windows executable under Wine: the command line, a registration with a running control plane, the daemon on a named
// pipe, engines that outlive it. The engine is a fake, because Wine has no tunnel driver.

import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import type { Answer, Request, TeamStatus } from "../../src/daemon/ipc/messages.ts";
import { writeHosts } from "../../src/node/files/hosts.ts";
import { paths } from "../../src/protocol/paths.ts";
import { buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { inCi } from "../support/debian.ts";
import { makeOrganization, Registered, type Organization } from "../support/overlay.ts";
import { makeLan } from "../support/namespaces.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import { buildForWindows, missing, openWine, windowsPath, type Wine } from "../support/windows/wine.ts";

if (missing !== undefined && inCi) throw new Error(missing);
const wineTest = missing === undefined ? test : test.skip;

const rounds = inFull ? 20 : 2;
const lines = inFull ? 100_000 : 10_000;

const directory = temporaryDirectory();
let programs: Awaited<ReturnType<typeof buildForWindows>>;
let wine: Wine;
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  if (missing !== undefined) return;
  buildAgent();
  programs = await buildForWindows();
  wine = openWine();
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
}, 300_000);

afterAll(async () => {
  wine?.[Symbol.dispose]();
  await plane?.[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

const agent = (words: readonly string[], options?: Parameters<Wine["run"]>[1]) =>
  wine.run([programs.agent, ...words], options);

/** A separate machine: paths below one directory, and a pipe with its name. */
function makePlaces(name: string) {
  const home = join(directory.path, name);
  mkdirSync(home);
  const pairs = {
    "config-root": windowsPath(join(home, "etc")),
    "state-db-path": windowsPath(join(home, "lib/state.db")),
    "overlay-binary": windowsPath(programs.engine),
    "pipe-name": `\\\\.\\pipe\\${name}-${process.pid}`,
  };
  return {
    home,
    pipe: pairs["pipe-name"],
    flags: Object.entries(pairs).flatMap(([flag, value]) => [`--${flag}`, value]),
  };
}

type Places = ReturnType<typeof makePlaces>;

/** Runs a command that must end with this status. What it said is part of the failure. */
async function must(places: Places, words: readonly string[], status = 0): Promise<string> {
  const result = await agent([...words, ...places.flags]);
  const { stdout, stderr } = result;
  expect(result).toEqual({ status, stdout, stderr });
  return stdout;
}

async function register(places: Places, name: string): Promise<Registered> {
  const to = ["--api-base", plane.url, "--org-slug", "acme", "--node-name", name, "--mode", "desktop"];
  const words = ["register", ...to, "--registration-token-file", "-", "--no-start", "--json"];
  const input = `${await acme.makeToken()}\n`;
  const { status, stdout, stderr } = await agent([...words, ...places.flags], { input });
  if (status !== 0) throw new Error(`register: exit ${status}\n${stdout}${stderr}`);
  return v.parse(Registered, JSON.parse(stdout));
}

/** Starts the daemon and waits until it answers over its pipe. */
async function startDaemon(places: Places) {
  const path = join(places.home, "daemon.log");
  const output = openSync(path, "a");
  const words = ["--ipc-mode", "pipe", "--verbose", "--autostart", ...places.flags];
  const child = wine.spawn([programs.agent, ...words], output);
  closeSync(output);
  for (let tries = 1; ; tries++) {
    const { status } = await agent(["status", "--json", ...places.flags]);
    if (status === 0) return child;
    if (tries === 30 || child.exitCode !== null)
      throw new Error(`The daemon does not answer:\n${readFileSync(path, "utf8")}`);
    await Bun.sleep(200);
  }
}

async function ask({ pipe }: Places, request: Request): Promise<Answer> {
  const { status, stdout, stderr } = await wine.run([programs.tool, "ask", pipe, JSON.stringify(request)]);
  if (status !== 0) throw new Error(`ask: exit ${status}\n${stdout}${stderr}`);
  return JSON.parse(stdout);
}

async function statusOf(places: Places): Promise<TeamStatus> {
  const stdout = await must(places, ["status", "acme", "--json"]);
  const [team] = v.parse(v.object({ teams: v.array(v.looseObject({})) }), JSON.parse(stdout)).teams;
  return team as TeamStatus;
}

async function untilState(places: Places, state: string): Promise<TeamStatus> {
  for (let tries = 1; ; tries++) {
    const status = await statusOf(places);
    if (status.state === state) return status;
    if (tries === 60)
      throw new Error(`${JSON.stringify(status)}\n${readFileSync(join(places.home, "daemon.log"), "utf8")}`);
    await Bun.sleep(250);
  }
}

/** The engines of these paths, as Linux below Wine sees them. */
function enginesOf({ home }: Places): number {
  const pattern = `-config .*${home.split("/").slice(-2).join(".")}.etc.acme.config.yml`;
  const { stdout } = Bun.spawnSync(["pgrep", "-c", "-f", "--", pattern]);
  return Number(stdout.toString());
}

wineTest(
  "version and help; a command of another system names the right one",
  async () => {
    const version = await agent(["version", "--no-check"]);
    expect([version.status, version.stdout]).toEqual([
      0,
      expect.stringMatching(/^agent .* \(bun-windows-x64/),
    ]);
    const help = await agent(["--help"]);
    expect(help.status).toBe(0);
    expect(help.stdout).toContain("install-tap");
    const wrong = await agent(["install-systemd", "--json"]);
    expect(wrong.status).toBe(1);
    expect(wrong.stdout).toContain("agent install-tap");
    expect((await agent(["status", "--json"])).stdout).toContain('"running":false');
    expect((await agent(["no-such-command"])).status).toBe(2);
  },
  240_000,
);

wineTest(
  `${rounds} times: register, daemon, status, start, stop, SIGKILL of the daemon, adoption by the next`,
  async () => {
    for (let round = 1; round <= rounds; round++) {
      const places = makePlaces(`desk${round}`);
      const registered = await register(places, `desk${round}`);
      expect(registered).toMatchObject({ name: `desk${round}`, mode: "desktop", started: false });
      let daemon = await startDaemon(places);
      const { pid } = await untilState(places, "running");
      expect(pid).toBeGreaterThan(0);
      expect(enginesOf(places)).toBe(1);
      await must(places, ["stop", "acme"]);
      expect(await statusOf(places)).toMatchObject({ state: "stopped", wanted: "down" });
      expect(enginesOf(places)).toBe(0);
      await must(places, ["start", "acme"]);
      const before = await untilState(places, "running");

      daemon.kill("SIGKILL");
      await daemon.exited;
      await must(places, ["status"], 3);
      expect(enginesOf(places)).toBe(1);
      daemon = await startDaemon(places);
      const after = await untilState(places, "running");
      expect([after.pid, after.wanted]).toEqual([before.pid ?? 0, "up"]);
      expect(enginesOf(places)).toBe(1);

      expect((await ask(places, { action: "shutdown" })).ok).toBe(true);
      expect(await daemon.exited).toBe(0);
      expect(enginesOf(places)).toBe(0);
    }
  },
  rounds * 60_000,
);

wineTest(
  `${lines} malformed lines from 100 clients over the pipe are refused, and the daemon keeps answering`,
  async () => {
    const places = makePlaces("flood");
    await register(places, "flood");
    const daemon = await startDaemon(places);
    const words = [places.pipe, "1", String(lines), "100"];
    const { status, stdout, stderr } = await wine.run([programs.flood, ...words], { timeoutMs: 600_000 });
    if (status !== 0) throw new Error(stderr);
    const { sent, answers, accepted } = JSON.parse(stdout);
    expect({ answers, accepted }).toEqual({ answers: sent, accepted: 0 });
    expect((await untilState(places, "running")).state).toBe("running");
    await ask(places, { action: "shutdown" });
    expect(await daemon.exited).toBe(0);
    expect(readFileSync(join(places.home, "daemon.log"), "utf8")).not.toContain("defect");
  },
  700_000,
);

wineTest(
  "changes of the control plane replace the files and restart the engine; a revocation stops it",
  async () => {
    const places = makePlaces("changed");
    const { node_id: id } = await register(places, "changed");
    const daemon = await startDaemon(places);
    const before = await untilState(places, "running");
    const file = (name: string) => readFileSync(join(places.home, "etc/acme", name), "utf8");
    const former = file("host.crt");

    expect((await acme.api("PATCH", paths.node("acme", id), { groups: ["laptops"] })).status).toBe(200);
    for (let tries = 0; file("host.crt") === former && tries < 200; tries++) await Bun.sleep(100);
    expect(file("host.crt")).not.toBe(former);
    let after = await untilState(places, "running");
    for (let tries = 0; after.pid === before.pid && tries < 40; tries++)
      after = await untilState(places, "running");
    expect(after.pid).not.toBe(before.pid);
    const present = join("generations", file("current").trim());
    for (const name of ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"])
      expect(file(name)).toBe(file(join(present, name)));

    expect((await acme.api("DELETE", paths.node("acme", id))).status).toBe(204);
    await untilState(places, "revoked");
    expect(enginesOf(places)).toBe(0);
    await ask(places, { action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  },
  240_000,
);

wineTest(
  "an engine is installed from a file, replaced while it runs, and rolled back",
  async () => {
    const places = makePlaces("replaced");
    const target = join(places.home, "programs/overlay.exe");
    const flags = [...places.flags];
    flags[flags.indexOf("--overlay-binary") + 1] = windowsPath(target);
    const install = (file: string) =>
      agent(["overlay", "install", "--json", "--file", windowsPath(file), ...flags]);
    expect(await install(programs.engine)).toMatchObject({ status: 0 });
    const running = wine.spawn([target, "-config", "none", "--idle"], "ignore");
    const other = join(places.home, "other.exe");
    writeFileSync(other, Buffer.concat([readFileSync(programs.engine), Buffer.from("other")]));
    const replaced = await install(other);
    expect(JSON.parse(replaced.stdout)).toMatchObject({ changed: true, from: "1.10.3", to: "1.10.3" });
    expect(statSync(target).size).toBe(statSync(other).size);
    const back = await agent(["overlay", "install", "--rollback", "--json", ...flags]);
    expect([back.status, back.stdout]).toEqual([0, expect.stringContaining('"changed":true')]);
    expect(statSync(target).size).toBe(statSync(programs.engine).size);
    running.kill("SIGKILL");
    await running.exited;
  },
  240_000,
);

wineTest(
  "a second daemon on the same state is refused",
  async () => {
    const places = makePlaces("twice");
    await register(places, "twice");
    const daemon = await startDaemon(places);
    const second = await agent(["--ipc-mode", "pipe", ...places.flags]);
    expect(second.status).toBe(1);
    expect(second.stderr).toContain("already");
    await ask(places, { action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  },
  240_000,
);

wineTest(
  "only administrators can access the pipe and the product's directory",
  async () => {
    const places = makePlaces("rights");
    const to = ["--api-base", plane.url, "--org-slug", "acme", "--node-name", "rights", "--no-start"];
    const own = "C:\\ProgramData\\overlay-agent";
    const { stdout } = await agent(["register", ...to, "--registration-token-file", "-"], {
      input: await acme.makeToken(),
    });
    expect(stdout).toContain(`${own}\\acme`);
    // Wine stores an access list as a Unix mode: no rights for others, and no entry for Everyone or Users.
    expect(statSync(join(wine.driveC, "ProgramData/overlay-agent")).mode & 0o007).toBe(0);
    const list = (await wine.run([programs.tool, "access", own])).stdout;
    expect(list).toContain("(A;OICI;FA;;;SY)");
    expect(list).not.toMatch(/;;;(WD|BU|AU)\)/);
    await register(places, "private");
    expect(statSync(join(places.home, "etc/acme")).mode & 0o007).toBe(0);

    const daemon = await startDaemon(places);
    const pipe = await wine.run([programs.tool, "access", places.pipe]);
    expect(pipe.stdout.trim()).toBe("D:P(D;;FA;;;NU)(A;;FA;;;SY)(A;;FA;;;BA)");
    // Wine cannot create local groups; an existing group replaces the product's.
    expect((await wine.run([programs.tool, "restrict", places.pipe, "Users"])).stdout).toBe("true\n");
    const shared = await wine.run([programs.tool, "access", places.pipe]);
    expect(shared.stdout.trim()).toBe("D:P(D;;FA;;;NU)(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x12019b;;;BU)");
    await ask(places, { action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  },
  240_000,
);

wineTest(
  "install-tap refuses a library without the pinned hash, and installs nothing",
  async () => {
    const wintun = join(directory.path, "wintun.dll");
    writeFileSync(wintun, "somebody's own");
    const file = ["install-tap", "--file", windowsPath(wintun)];
    const elsewhere = await agent(file);
    expect([elsewhere.status, elsewhere.stderr]).toEqual([
      1,
      expect.stringContaining("other users may be able to replace programs outside C:\\Program Files"),
    ]);
    const installed = join(wine.driveC, "Program Files/installed/agent.exe");
    mkdirSync(dirname(installed));
    copyFileSync(programs.agent, installed);
    const refused = await wine.run([installed, ...file]);
    expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining("has the SHA-256")]);
    expect(existsSync(join(wine.driveC, "Program Files/overlay-agent"))).toBe(false);
    const dryRun = await wine.run([installed, "install-tap", "--dry-run", "--json"]);
    const { plan } = JSON.parse(dryRun.stdout);
    const paths = plan.flatMap((step: { path?: string }) => step.path ?? []);
    expect(paths).toEqual([
      "C:\\Program Files\\overlay-agent\\dist\\windows\\wintun\\bin\\amd64\\wintun.dll",
      "C:\\ProgramData\\overlay-agent\\task.xml",
    ]);
  },
  240_000,
);

const localRules = String.raw`HKLM\SYSTEM\CurrentControlSet\Services\Dnscache\Parameters\DnsPolicyConfig`;
const policyRules = String.raw`HKLM\SOFTWARE\Policies\Microsoft\Windows NT\DNSClient\DnsPolicyConfig`;

/** What the registry has below a key, in the words of reg.exe. */
const registryOf = async (key: string) =>
  (await wine.run(["reg", "query", key, "/s"])).stdout.replaceAll("\r", "");

/** As soon as our rule is whole. */
const rulesIn = (key: string) =>
  until(async () => {
    const text = await registryOf(key);
    return /overlay-agent[^]*Version/.test(text) && text;
  });

wineTest(
  "names: a resolver at port 53, and rules in the registry that end with the daemon",
  async () => {
    const places = makePlaces("names");
    const { ip_address: ip } = await register(places, "names");
    const nodes = [{ id: 7, name: "beta", ip }];
    writeHosts(join(places.home, "etc/acme"), { schema: 1, version: 1, view: "all", nodes, aliases: [] });
    expect((await agent(["names", ...places.flags])).stderr).toContain("names --on");
    await must(places, ["names", "--on"]);

    using lan = makeLan(["win"]);
    const host = lan.host("win");
    wine[Symbol.dispose]();
    wine = openWine(host.inside);
    const foreign = [policyRules + "\\{0}", "/v", "GenericDNSServers", "/d", "10.0.0.1", "/f"];
    expect((await wine.run(["reg", "add", ...foreign])).status).toBe(0);
    let daemon = await startDaemon(places);
    for (const key of [localRules, policyRules]) {
      const found = await rulesIn(key);
      expect(found).toContain("overlay-agent-1\n");
      expect(found).toMatch(/Name +REG_MULTI_SZ +\.acme\.internal\\0\.\S+\.in-addr\.arpa/);
      expect(found).toMatch(/GenericDNSServers +REG_SZ +127\.0\.0\.9\n/);
      expect(found).toMatch(/ConfigOptions +REG_DWORD +0x8\n/);
      expect(found).toMatch(/Version +REG_DWORD +0x2\n/);
    }
    // Wine answers from 127.0.0.1, whatever the address of the socket is.
    const asking = [join(import.meta.dir, "../support/ask-names.ts"), "127.0.0.1", "udp"];
    expect(host.run([process.execPath, ...asking, "beta.acme.internal"])).toContain(`NOERROR ${ip}`);
    for (const command of ["status", "names"]) {
      const { stdout, stderr } = await agent([command, ...places.flags]);
      expect(stdout + stderr).toContain("rules for name resolution (NRPT), in the group policy too");
    }

    const areGone = async () =>
      !/overlay-agent/.test((await registryOf(localRules)) + (await registryOf(policyRules)));
    daemon.kill("SIGKILL");
    await daemon.exited;
    expect(await areGone()).toBe(false);
    await must(places, ["names", "--off"]);
    expect(await areGone()).toBe(true);

    await must(places, ["names", "--on"]);
    daemon = await startDaemon(places);
    await rulesIn(policyRules);
    expect((await ask(places, { action: "shutdown" })).ok).toBe(true);
    expect(await daemon.exited).toBe(0);
    expect(await areGone()).toBe(true);
    expect(await registryOf(policyRules)).toContain("10.0.0.1");

    daemon = await startDaemon(places);
    await rulesIn(policyRules);
    daemon.kill("SIGKILL");
    await daemon.exited;
    await must(places, ["install-tap", "--uninstall"]);
    expect(await areGone()).toBe(true);
    expect(existsSync(join(places.home, "lib/names-on.json"))).toBe(false);
  },
  240_000,
);
