// Server mode on booted machines, as the documents set them up: the lighthouse is on the control plane's machine, whose own
// listener passes datagrams on, and the edge unit of the other machine runs only while UDP is blocked.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFileSync, copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { blockUdp, permitUdp } from "../support/block-udp.ts";
import { pingPeer } from "../support/machine-node.ts";
import { lostAt, makeLan, startPing, type Lan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const edge = "overlay-agent-edge@acme.service";

describeMachine("TCP fallback in server mode", () => {
  const directory = temporaryDirectory();
  const machines = new Map<string, Machine>();
  let lan: Lan;
  const on = (name: string) => machines.get(name) ?? expect.unreachable();

  beforeAll(async () => {
    const place = join(directory.path, "usr/local/bin/agent");
    mkdirSync(dirname(place), { recursive: true });
    copyFileSync(buildAgent(), place);
    lan = makeLan(["control", "web"]);
    for (const name of ["control", "web"]) {
      const machine = makeMachine(lan.host(name).namespace, directory.path);
      machines.set(name, machine);
      await machine.boot();
      appendFileSync(join(machine.root, "etc/hosts"), `${lan.host("control").address} control.example.org\n`);
    }
    const printed = await on("control").must(
      "cd /root && agent setup --yes --public-name control.example.org --email you@example.org --org-slug acme",
      120_000,
    );
    const [key = ""] = printed.match(/oaj1[\w-]+/g) ?? [];
    await on("web").must(`agent up ${key} --node-name web --mode server`, 60_000);
  }, 300_000);

  afterAll(async () => {
    for (const machine of machines.values()) await machine[Symbol.asyncDispose]();
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  test("the unit runs while UDP is blocked, is rated 2.5 or better, and ends by itself without a lost ping", async () => {
    const [web, host] = [on("web"), lan.host("web")];
    await web.until("agent netcheck acme | grep 'If UDP is blocked, control.example.org:443'", 60_000);
    expect((await web.run(`systemctl is-enabled ${edge}`)).status).not.toBe(0);
    const ping = startPing(host, "10.77.0.1");
    await ping.reply(20_000);
    blockUdp(host);
    await web.until(`systemctl is-active --quiet ${edge}`, 30_000);
    await ping.reply(40_000);
    await web.until("agent status | grep 'over TCP, control.example.org:443, since'", 10_000);
    await web.must(`systemd-analyze security --threshold=25 ${edge}`);
    await Bun.sleep(5000);
    permitUdp(host);
    const permittedAt = performance.now();
    await web.until("! agent status | grep 'over TCP'", 30_000);
    await web.until(`! systemctl is-active --quiet ${edge}`, 60_000);
    await web.until(`! systemctl is-enabled --quiet ${edge}`, 90_000);
    expect(lostAt(ping).filter((at) => at > permittedAt)).toEqual([]);
    await ping.stop();
  }, 300_000);

  test("it comes back after a power cut, with the unit killed, and goes with the registration", async () => {
    const [web, host] = [on("web"), lan.host("web")];
    blockUdp(host);
    await web.until(`systemctl is-active --quiet ${edge}`, 60_000);
    await web.until(pingPeer, 60_000);
    await web.must(`systemctl kill --signal=SIGKILL ${edge}`);
    await web.until(pingPeer, 20_000);
    await web.cutPower();
    await web.boot();
    await web.until(pingPeer, 60_000);
    await web.must("agent unregister --org-slug acme", 60_000);
    expect((await web.run(`systemctl is-active ${edge}`)).status).not.toBe(0);
    expect(await web.must("ls /etc/systemd/system/multi-user.target.wants | grep -c edge || true")).toBe("0");
  }, 300_000);
});
