// Server mode on booted machines, as the documents set them up: the lighthouse is on the control plane's machine, whose own
// listener passes datagrams on, and the edge unit of the other machine runs only while UDP is blocked.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { blockUdp, permitUdp } from "../support/block-udp.ts";
import { pingPeer } from "../support/machine-node.ts";
import { makeMachinePair, type MachinePair } from "../support/machine-pair.ts";
import { lostAt, startPing } from "../support/namespaces.ts";
import { describeMachine } from "../support/nspawn.ts";

const edge = "overlay-agent-edge@acme.service";

describeMachine("TCP fallback in server mode", () => {
  let pair: MachinePair;
  beforeAll(async () => void (pair = await makeMachinePair()), 300_000);
  afterAll(() => pair[Symbol.asyncDispose]());

  test("the unit runs while UDP is blocked, is rated 2.5 or better, and ends by itself without a lost ping", async () => {
    const [web, host] = [pair.web, pair.lan.host("web")];
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
    const [web, host] = [pair.web, pair.lan.host("web")];
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
