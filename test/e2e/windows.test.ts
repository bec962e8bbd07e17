// The Windows executable under Wine: the command line, a registration with a running control plane, the daemon on a named
// pipe, engines that outlive it. The engine is a fake, because Wine has no tunnel driver.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { writeHosts } from "../../src/node/files/hosts.ts";
import { paths } from "../support/paths.ts";
import { inCi } from "../support/debian.ts";
import { makeLan } from "../support/namespaces.ts";
import { inFull } from "../support/soak.ts";
import { until } from "../support/until.ts";
import { startWindows, type Windows } from "../support/windows/machines.ts";
import { missing, windowsPath } from "../support/windows/wine.ts";

if (missing !== undefined && inCi) throw new Error(missing);
const wineTest = missing === undefined ? test : test.skip;

const rounds = inFull ? 20 : 2;
const lines = inFull ? 100_000 : 10_000;

let windows: Windows;
beforeAll(async () => {
  if (missing === undefined) windows = await startWindows();
}, 300_000);
afterAll(() => windows?.[Symbol.asyncDispose]());

wineTest(
  "version and help; a command of another system names the right one",
  async () => {
    const version = await windows.agent(["version", "--no-check"]);
    expect([version.status, version.stdout]).toEqual([
      0,
      expect.stringMatching(/^agent .* \(bun-windows-x64/),
    ]);
    const help = await windows.agent(["help", "commands"]);
    expect(help.status).toBe(0);
    expect(help.stdout).toContain("install-tap");
    const wrong = await windows.agent(["install-systemd", "--json"]);
    expect(wrong.status).toBe(1);
    expect(wrong.stdout).toContain("agent install-tap");
    expect((await windows.agent(["status", "--json"])).stdout).toContain('"running":false');
    expect((await windows.agent(["no-such-command"])).status).toBe(2);
  },
  240_000,
);

wineTest(
  `${rounds} times: register, daemon, status, start, stop, SIGKILL of the daemon, adoption by the next`,
  async () => {
    for (let round = 1; round <= rounds; round++) {
      const machine = windows.machine(`desk${round}`);
      const registered = await machine.register(`desk${round}`);
      expect(registered).toMatchObject({ name: `desk${round}`, mode: "desktop", started: false });
      let daemon = await machine.startDaemon();
      const { pid } = await machine.untilState("running");
      expect(pid).toBeGreaterThan(0);
      expect(machine.engines()).toBe(1);
      await machine.must(["stop", "acme"]);
      expect(await machine.status()).toMatchObject({ state: "stopped", wanted: "down" });
      expect(machine.engines()).toBe(0);
      await machine.must(["start", "acme"]);
      const before = await machine.untilState("running");

      daemon.kill("SIGKILL");
      await daemon.exited;
      await machine.must(["status"], 3);
      expect(machine.engines()).toBe(1);
      daemon = await machine.startDaemon();
      const after = await machine.untilState("running");
      expect([after.pid, after.wanted]).toEqual([before.pid ?? 0, "up"]);
      expect(machine.engines()).toBe(1);

      expect((await machine.ask({ action: "shutdown" })).ok).toBe(true);
      expect(await daemon.exited).toBe(0);
      expect(machine.engines()).toBe(0);
    }
  },
  rounds * 60_000,
);

wineTest(
  `${lines} malformed lines from 100 clients over the pipe are refused, and the daemon keeps answering`,
  async () => {
    const machine = windows.machine("flood");
    await machine.register("flood");
    const daemon = await machine.startDaemon();
    const words = [machine.pipe, "1", String(lines), "100"];
    const { status, stdout, stderr } = await windows.wine.run([windows.programs.flood, ...words], {
      timeoutMs: 600_000,
    });
    if (status !== 0) throw new Error(stderr);
    const { sent, answers, accepted } = JSON.parse(stdout);
    expect({ answers, accepted }).toEqual({ answers: sent, accepted: 0 });
    expect((await machine.untilState("running")).state).toBe("running");
    await machine.ask({ action: "shutdown" });
    expect(await daemon.exited).toBe(0);
    expect(readFileSync(join(machine.home, "daemon.log"), "utf8")).not.toContain("defect");
  },
  700_000,
);

wineTest(
  "changes of the control plane replace the files and restart the engine; a revocation stops it",
  async () => {
    const machine = windows.machine("changed");
    const { node_id: id } = await machine.register("changed");
    const daemon = await machine.startDaemon();
    const before = await machine.untilState("running");
    const file = (name: string) => readFileSync(join(machine.home, "etc/acme", name), "utf8");
    const former = file("host.crt");

    expect((await windows.acme.api("PATCH", paths.node("acme", id), { groups: ["laptops"] })).status).toBe(
      200,
    );
    for (let tries = 0; file("host.crt") === former && tries < 200; tries++) await Bun.sleep(100);
    expect(file("host.crt")).not.toBe(former);
    let after = await machine.untilState("running");
    for (let tries = 0; after.pid === before.pid && tries < 40; tries++)
      after = await machine.untilState("running");
    expect(after.pid).not.toBe(before.pid);
    const present = join("generations", file("current").trim());
    for (const name of ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"])
      expect(file(name)).toBe(file(join(present, name)));

    expect((await windows.acme.api("DELETE", paths.node("acme", id))).status).toBe(204);
    await machine.untilState("revoked");
    expect(machine.engines()).toBe(0);
    await machine.ask({ action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  },
  240_000,
);

wineTest(
  "an engine is installed from a file, replaced while it runs, and rolled back",
  async () => {
    const machine = windows.machine("replaced");
    const target = join(machine.home, "programs/overlay.exe");
    const flags = [...machine.flags];
    flags[flags.indexOf("--overlay-binary") + 1] = windowsPath(target);
    const install = (file: string) =>
      windows.agent(["overlay", "install", "--json", "--file", windowsPath(file), ...flags]);
    expect(await install(windows.programs.engine)).toMatchObject({ status: 0 });
    const running = windows.wine.spawn([target, "-config", "none", "--idle"], "ignore");
    const other = join(machine.home, "other.exe");
    writeFileSync(other, Buffer.concat([readFileSync(windows.programs.engine), Buffer.from("other")]));
    const replaced = await install(other);
    expect(JSON.parse(replaced.stdout)).toMatchObject({ changed: true, from: "1.10.3", to: "1.10.3" });
    expect(statSync(target).size).toBe(statSync(other).size);
    const back = await windows.agent(["overlay", "install", "--rollback", "--json", ...flags]);
    expect([back.status, back.stdout]).toEqual([0, expect.stringContaining('"changed":true')]);
    expect(statSync(target).size).toBe(statSync(windows.programs.engine).size);
    running.kill("SIGKILL");
    await running.exited;
  },
  240_000,
);

wineTest(
  "a second daemon on the same state is refused",
  async () => {
    const machine = windows.machine("twice");
    await machine.register("twice");
    const daemon = await machine.startDaemon();
    const second = await windows.agent(["--ipc-mode", "pipe", ...machine.flags]);
    expect(second.status).toBe(1);
    expect(second.stderr).toContain("already");
    await machine.ask({ action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  },
  240_000,
);

wineTest(
  "only administrators can access the pipe and the product's directory",
  async () => {
    const machine = windows.machine("rights");
    const to = ["--api-base", windows.plane.url, "--org-slug", "acme", "--node-name", "rights", "--no-start"];
    const own = "C:\\ProgramData\\overlay-agent";
    const { stdout } = await windows.agent(["register", ...to, "--registration-token-file", "-"], {
      input: await windows.acme.makeToken(),
    });
    expect(stdout).toContain(`${own}\\acme`);
    // Wine stores an access list as a Unix mode: no rights for others, and no entry for Everyone or Users.
    expect(statSync(join(windows.wine.driveC, "ProgramData/overlay-agent")).mode & 0o007).toBe(0);
    const list = (await windows.wine.run([windows.programs.tool, "access", own])).stdout;
    expect(list).toContain("(A;OICI;FA;;;SY)");
    expect(list).not.toMatch(/;;;(WD|BU|AU)\)/);
    await machine.register("private");
    expect(statSync(join(machine.home, "etc/acme")).mode & 0o007).toBe(0);

    const daemon = await machine.startDaemon();
    const pipe = await windows.wine.run([windows.programs.tool, "access", machine.pipe]);
    expect(pipe.stdout.trim()).toBe("D:P(D;;FA;;;NU)(A;;FA;;;SY)(A;;FA;;;BA)");
    // Wine cannot create local groups; an existing group replaces the product's.
    expect((await windows.wine.run([windows.programs.tool, "restrict", machine.pipe, "Users"])).stdout).toBe(
      "true\n",
    );
    const shared = await windows.wine.run([windows.programs.tool, "access", machine.pipe]);
    expect(shared.stdout.trim()).toBe("D:P(D;;FA;;;NU)(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x12019b;;;BU)");
    await machine.ask({ action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  },
  240_000,
);

wineTest(
  "install-tap refuses a library without the pinned hash, and installs nothing",
  async () => {
    const wintun = join(windows.directory, "wintun.dll");
    writeFileSync(wintun, "somebody's own");
    const file = ["install-tap", "--file", windowsPath(wintun)];
    const elsewhere = await windows.agent(file);
    expect([elsewhere.status, elsewhere.stderr]).toEqual([
      1,
      expect.stringContaining("other users may be able to replace programs outside C:\\Program Files"),
    ]);
    const installed = join(windows.wine.driveC, "Program Files/installed/agent.exe");
    mkdirSync(dirname(installed));
    copyFileSync(windows.programs.agent, installed);
    const refused = await windows.wine.run([installed, ...file]);
    expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining("has the SHA-256")]);
    expect(existsSync(join(windows.wine.driveC, "Program Files/overlay-agent"))).toBe(false);
    const dryRun = await windows.wine.run([installed, "install-tap", "--dry-run", "--json"]);
    const { plan } = JSON.parse(dryRun.stdout);
    const paths = plan.flatMap((step: { path?: string }) => step.path ?? []);
    expect(paths).toEqual([
      "C:\\Program Files\\overlay-agent\\dist\\windows\\wintun\\bin\\amd64\\wintun.dll",
      "C:\\ProgramData\\overlay-agent\\task.xml",
      "C:\\ProgramData\\overlay-agent\\task.xml",
    ]);
  },
  240_000,
);

const localRules = String.raw`HKLM\SYSTEM\CurrentControlSet\Services\Dnscache\Parameters\DnsPolicyConfig`;
const policyRules = String.raw`HKLM\SOFTWARE\Policies\Microsoft\Windows NT\DNSClient\DnsPolicyConfig`;

/** What the registry has below a key, in the words of reg.exe. */
const registryOf = async (key: string) =>
  (await windows.wine.run(["reg", "query", key, "/s"])).stdout.replaceAll("\r", "");

/** As soon as our rule is whole. */
const rulesIn = (key: string) =>
  until(async () => {
    const text = await registryOf(key);
    return /overlay-agent[^]*Version/.test(text) && text;
  });

wineTest(
  "names: a resolver at port 53, and rules in the registry that end with the daemon",
  async () => {
    const machine = windows.machine("names");
    const { ip_address: ip } = await machine.register("names");
    const nodes = [{ id: 7, name: "beta", ip }];
    writeHosts(join(machine.home, "etc/acme"), { schema: 1, version: 1, view: "all", nodes, aliases: [] });
    expect((await windows.agent(["names", ...machine.flags])).stderr).toContain("names --on");
    await machine.must(["names", "--on"]);

    using lan = makeLan(["win"]);
    const host = lan.host("win");
    windows.reopen(host.inside);
    const foreign = [policyRules + "\\{0}", "/v", "GenericDNSServers", "/d", "10.0.0.1", "/f"];
    expect((await windows.wine.run(["reg", "add", ...foreign])).status).toBe(0);
    let daemon = await machine.startDaemon();
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
      const { stdout, stderr } = await windows.agent([command, ...machine.flags]);
      expect(stdout + stderr).toContain("rules for name resolution (NRPT), in the group policy too");
    }

    const areGone = async () =>
      !/overlay-agent/.test((await registryOf(localRules)) + (await registryOf(policyRules)));
    daemon.kill("SIGKILL");
    await daemon.exited;
    expect(await areGone()).toBe(false);
    await machine.must(["names", "--off"]);
    expect(await areGone()).toBe(true);

    await machine.must(["names", "--on"]);
    daemon = await machine.startDaemon();
    await rulesIn(policyRules);
    expect((await machine.ask({ action: "shutdown" })).ok).toBe(true);
    expect(await daemon.exited).toBe(0);
    expect(await areGone()).toBe(true);
    expect(await registryOf(policyRules)).toContain("10.0.0.1");

    daemon = await machine.startDaemon();
    await rulesIn(policyRules);
    daemon.kill("SIGKILL");
    await daemon.exited;
    await machine.must(["install-tap", "--uninstall"]);
    expect(await areGone()).toBe(true);
    expect(existsSync(join(machine.home, "lib/names-on.json"))).toBe(false);
  },
  240_000,
);
