// The daemon as a systemd unit on a booted Debian machine: killed repeatedly while packets go through the tunnel, and
// called by users inside and outside its group.

import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { makeSite, type MachineNode, type Site } from "../support/machine-node.ts";
import { lost, startPing } from "../support/namespaces.ts";
import { describeMachine } from "../support/nspawn.ts";
import { inFull } from "../support/soak.ts";

const kills = inFull ? 200 : 20;
/** Processes with the argument -config, which only running engines have. Some end during the search. */
const engines = "grep -lszx '[-]config' /proc/[0-9]*/cmdline; true";
const Status = v.object({
  daemon: v.object({ running: v.boolean(), pid: v.optional(v.number()) }),
  teams: v.array(v.object({ state: v.string(), ip_address: v.string(), pid: v.optional(v.number()) })),
});

describeMachine("the daemon's unit", () => {
  let site: Site;
  let node: MachineNode;
  beforeAll(async () => {
    site = await makeSite(["vm"]);
    node = await site.boot("vm");
    await node.register("desktop");
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
  });

  const status = async () =>
    v.parse(Status, JSON.parse((await node.machine.run("agent status --json")).stdout));
  async function untilStatus(what: (status: v.InferOutput<typeof Status>) => boolean) {
    for (let waited = 0; waited < 60_000; waited += 100) {
      const now = await status();
      if (what(now)) return now;
      await Bun.sleep(100);
    }
    throw new Error(`The status did not come about: ${JSON.stringify(await status())}`);
  }

  test(`${kills} times SIGKILL: no packet is lost, and the same single engine runs`, async () => {
    const { machine } = node;
    // The unit itself waits two seconds before each start; shorten that.
    const dropIn = "/run/systemd/system/overlay-agent.service.d";
    await machine.must(
      `mkdir -p ${dropIn} && printf '[Service]\\nRestartSec=200ms\\n' >${dropIn}/times.conf && systemctl daemon-reload`,
    );
    let { daemon, teams } = await untilStatus(({ teams: [team] }) => team?.state === "running");
    const [{ pid: engine, ip_address: address } = { ip_address: "" }] = teams;
    const ping = startPing(site.peer, address);
    await ping.reply(20_000);
    for (let round = 0; round < kills; round++) {
      const { pid: killed } = daemon;
      await machine.must("systemctl kill --kill-who=main --signal=SIGKILL overlay-agent");
      ({ daemon, teams } = await untilStatus((now) => now.daemon.running && now.daemon.pid !== killed));
      // An adopted young engine counts as starting: it cannot reload yet.
      expect([teams[0]?.pid, teams[0]?.state]).toEqual([
        engine,
        expect.stringMatching(/^(running|starting)$/),
      ]);
      expect(await machine.must(engines)).toBe(`/proc/${engine}/cmdline`);
    }
    await ping.reply(20_000);
    await ping.stop();
    process.stderr.write(`${kills} kills, ${ping.replies.length} replies, lost: ${lost(ping).length}\n`);
    expect(lost(ping)).toEqual([]);
    expect(await machine.must("systemctl show --property=NRestarts --value overlay-agent")).toBe(
      String(kills),
    );
  }, 1_800_000);

  test("members of the group use the daemon without root, except to stop it; others cannot connect", async () => {
    const { machine } = node;
    await untilStatus(({ teams: [team] }) => team?.state === "running");
    await machine.must("useradd member && usermod -aG overlay-agent member && useradd stranger");
    const as = (user: string, script: string) =>
      machine.run(`setpriv --reuid=${user} --regid=${user} --init-groups sh -c '${script}'`);
    expect((await as("member", "agent status")).stdout).toContain("acme is running as");
    const said = "systemctl show --property=StatusText --value overlay-agent";
    expect(await machine.must(said)).toBe("1 of 1 organizations running");
    expect((await as("member", "agent stop acme")).status).toBe(0);
    expect(await machine.must(said)).toBe("0 of 1 organizations running");
    expect((await status()).teams[0]?.state).toBe("stopped");
    expect((await as("member", "agent start acme")).status).toBe(0);
    expect((await as("member", "agent logs -n 1 acme")).stdout).not.toBe("");
    const { status: refused, stderr } = await as("stranger", "agent status");
    expect([refused, stderr]).toEqual([5, expect.stringContaining("Permission denied: cannot connect")]);
    expect((await as("stranger", "agent stop acme")).status).toBe(5);
    expect((await status()).teams[0]?.state).toBe("running");
    const uid = await machine.must("id -u member");
    expect(await machine.must("journalctl -u overlay-agent")).toMatch(
      new RegExp(`Change requested action=stop team=acme uid=${uid} pid=\\d+`),
    );
  }, 240_000);
});
