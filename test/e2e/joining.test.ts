// `agent up`, `agent down` and `agent unregister` on Debian machines that systemd has booted. The tests share the machines
// and depend on their order.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { agent } from "../support/agent.ts";
import { describeMachine } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const Joined = v.object({
  name: v.string(),
  ip_address: v.string(),
  mode: v.string(),
  is_lighthouse: v.boolean(),
  lighthouse: v.nullable(v.string()),
  port: v.optional(v.object({ port: v.number(), reachable: v.nullable(v.boolean()) })),
});
const parse = (text: string) => v.parse(v.pipe(v.string(), v.parseJson(), Joined), text);
const registered = (root: string) =>
  readFileSync(join(root, "etc/overlay-agent/acme/credentials.json"), "utf8");

describeMachine("agent up", () => {
  let site: Site;
  let node: MachineNode;
  let hub: MachineNode;
  beforeAll(async () => {
    site = await makeSite(["vm", "hub", "box"]);
    [node, hub] = await Promise.all([site.boot("vm"), site.boot("hub")]);
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await hub[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
  });

  test("a machine without organization and key is told where a key comes from", async () => {
    const { status, stderr } = await node.machine.run("agent up");
    expect([status, stderr]).toEqual([2, expect.stringContaining("agent admin token create ORG")]);
  });

  test("a key that is no word of a command line is refused there, and not repeated", async () => {
    const key = await site.plane.makeKey();
    const { status, stderr } = await node.machine.run(`agent up ${key}`);
    expect([status, stderr]).toEqual([2, expect.stringContaining("--key-file")]);
    expect(stderr).not.toContain(key.slice(4, 20));
  });

  test("a plan changes nothing and shows no key", async () => {
    const key = await site.plane.makeKey(["--expires", "1h"]);
    const plan = await node.machine.must(`agent up ${key} --dry-run`);
    expect(plan).toContain(`POST ${site.plane.url}/api/org/acme/nodes/register/`);
    expect(plan).not.toContain(key.slice(4, 20));
    expect((await node.machine.run("ls /etc/overlay-agent")).status).not.toBe(0);
  });

  test("up ends when the lighthouse answers; the machine is a server without a graphical login", async () => {
    writeFileSync(join(node.machine.root, "root/key"), `${await site.plane.makeKey()}\n`);
    const joined = parse(await node.machine.must("agent up --key-file /root/key --node-name vm --json"));
    expect(joined).toMatchObject({
      name: "vm",
      mode: "server",
      is_lighthouse: false,
      lighthouse: "10.77.0.1",
    });
    await node.machine.must(pingPeer);
  }, 60_000);

  test("up again changes nothing, with the used key and without one", async () => {
    const before = registered(node.machine.root);
    expect(parse(await node.machine.must("agent up --key-file /root/key --json")).name).toBe("vm");
    expect(await node.machine.must("agent up")).toMatch(/The lighthouse \S+ answers/);
    expect(registered(node.machine.root)).toBe(before);
  }, 60_000);

  test("down stops it, up starts it", async () => {
    expect(await node.machine.must("agent down")).toBe("acme is stopped");
    expect((await node.machine.run(pingPeer)).status).not.toBe(0);
    await node.machine.must("agent up");
    await node.machine.must(pingPeer);
  }, 60_000);

  test("up --new-keys makes another node of it, and the former one stays", async () => {
    const key = () => readFileSync(join(node.machine.root, "etc/overlay-agent/acme/host.key"), "utf8");
    const before = key();
    writeFileSync(join(node.machine.root, "root/key"), `${await site.plane.makeKey()}\n`);
    const up = "agent up --new-keys --key-file /root/key";
    const same = await node.machine.run(`${up} --node-name vm`);
    expect([same.status, same.stderr]).toEqual([
      1,
      expect.stringContaining("another machine keeps that name"),
    ]);
    expect(key()).toBe(before);
    expect(parse(await node.machine.must(`${up} --node-name copy --json`))).toMatchObject({
      name: "copy",
      mode: "server",
      lighthouse: "10.77.0.1",
    });
    expect(key()).not.toBe(before);
    await node.machine.must(pingPeer);
    expect(await node.machine.must("agent status")).toContain("acme is running");
    const nodes = JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/"));
    for (const name of ["vm", "copy"]) expect(nodes).toContain(`"name":"${name}"`);
  }, 60_000);

  test("a lighthouse's key makes a lighthouse and relay, reachable where the control plane sees it", async () => {
    const key = await site.plane.makeKey(["--lighthouse", "--expires", "1h"]);
    const { status, stdout, stderr } = await hub.machine.run(`agent up ${key} --node-name hub --json`);
    expect({ status, stderr }).toEqual({
      status: 0,
      stderr: expect.stringContaining("as the control plane sees it"),
    });
    expect(parse(stdout)).toMatchObject({ is_lighthouse: true, port: { port: 4242, reachable: true } });
    const nodes = JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/"));
    expect(nodes).toMatch(
      /"name":"hub".*"is_lighthouse":true,"is_relay":true,.*"public_ip":"192\.0\.2\.\d+"/,
    );
  }, 60_000);

  test("a silent lighthouse is named with its place, and the exit status is 1", async () => {
    await node.machine.must("agent down");
    site.peer.link("down");
    await hub.machine.must("agent down");
    const { status, stdout } = await node.machine.run("agent up --wait 2s");
    site.peer.link("up");
    expect([status, stdout]).toEqual([1, expect.stringMatching(/No lighthouse answers: \S+ \(192\.0\.2/)]);
  }, 60_000);

  test.each([
    ["box", []],
    ["job", ["--ephemeral"]],
  ])(
    "up --foreground joins %s without systemd, runs the daemon, joins again by its files, and ends at SIGTERM",
    async (name, tokenFlags) => {
      using directory = temporaryDirectory();
      const box = site.host("box");
      const places = [
        "--config-root",
        join(directory.path, "etc"),
        "--state-db-path",
        join(directory.path, "state.db"),
      ];
      const flags = [
        ...places,
        "--socket-path",
        join(directory.path, "sock"),
        "--overlay-binary",
        "/usr/bin/nebula",
      ];
      const argv = [agent, "up", "--foreground", "--node-name", name, ...flags];
      const key = await site.plane.makeKey(["--expires", "1h", ...tokenFlags]);
      for (const env of [{ AGENT_JOIN_KEY: key }, {}]) {
        const log = join(directory.path, "log");
        const fd = openSync(log, "w");
        const child = box.spawn(argv, { stdout: fd, env: { PATH: process.env["PATH"] ?? "", ...env } });
        const ping = box.inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"]);
        for (let tries = 0; Bun.spawnSync(ping).exitCode !== 0; tries++) {
          expect([child.exitCode, tries < 40]).toEqual([null, true]);
          await Bun.sleep(200);
        }
        if ("AGENT_JOIN_KEY" in env)
          expect(readFileSync(log, "utf8")).toMatch(
            new RegExp(`${name} is in acme as 10\\.77\\.0\\.\\d+\\. `),
          );
        child.kill("SIGTERM");
        expect(await child.exited).toBe(0);
        closeSync(fd);
        expect(Bun.spawnSync(ping).exitCode).not.toBe(0);
        // An ephemeral node is removed before the container has ended, and comes back with its files.
        const nodes = JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/"));
        expect(nodes.includes(`"name":"${name}"`)).toBe(tokenFlags.length === 0);
      }
    },
    60_000,
  );

  test("unregister tells the control plane, and the machine can join again under another name", async () => {
    await node.machine.must("agent unregister --org-slug acme");
    const nodes = JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/"));
    expect(nodes).not.toContain('"name":"copy"');
    const key = await site.plane.makeKey(["--ephemeral", "--expires", "1h"]);
    const joined = parse(await node.machine.must(`agent up ${key} --node-name vm2 --mode desktop --json`));
    expect(joined).toMatchObject({ name: "vm2", mode: "desktop", lighthouse: "10.77.0.1" });
    await node.machine.must(pingPeer);
    // The daemon checks in all the time. An ephemeral node that was stopped must stay away nevertheless.
    const listed = async () => JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/"));
    await node.machine.must("agent down");
    expect(await listed()).not.toContain('"name":"vm2"');
    await Bun.sleep(2000);
    expect(await listed()).not.toContain('"name":"vm2"');
    await node.machine.must("agent up");
    await node.machine.must(pingPeer);
    expect(await listed()).toContain('"name":"vm2"');
  }, 90_000);
});
