// An organization in server mode on a machine that systemd has booted: every order of start, stop, revocation, restore and
// reboot leads to the state that the model says, and the commands say the truth. Also the change to desktop mode and back.

import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { history, registered, shouldRun, shownState, type Model } from "../support/desired-state.ts";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine } from "../support/nspawn.ts";
import { inFull } from "../support/soak.ts";

const steps = [
  ...(["start", "stop", "restart", "check", "check"] as const),
  ...(["revoke", "restore", "revoke", "restore", "reboot"] as const),
];
type Step = (typeof steps)[number];

/** Each order of the findings: stops and starts before, during and after a revocation, across reboots. */
const fixed: readonly (readonly Step[])[] = [
  ["stop", "reboot", "start"],
  ["revoke", "check", "start", "restart", "stop", "restore", "check", "reboot", "start"],
  ["stop", "revoke", "check", "start", "reboot", "restore", "check"],
  ["revoke", "check", "reboot", "stop", "start", "restore", "check", "revoke", "restore", "check"],
];
const histories = inFull ? 20 : 1;

const Status = v.object({
  teams: v.tuple([v.object({ state: v.string(), wanted: v.string(), mode: v.string() })]),
});
const unit = "overlay-agent@acme.service";

describeMachine("the desired state in server mode", () => {
  let site: Site;
  let node: MachineNode;
  let model: Model = registered;
  let id: string;
  beforeAll(async () => {
    site = await makeSite(["vm"]);
    node = await site.boot("vm");
    await node.register("server");
    id = await node.machine.must(
      "grep -o 'node_id[^,]*' /etc/overlay-agent/acme/node-config.json | grep -o '[0-9]*'",
    );
    // Orders arrive when a step asks for them.
    await node.machine.must("systemctl disable --now overlay-agent-auth.timer");
    await node.machine.must("systemctl stop overlay-agent-auth.service");
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
  });

  async function command(verb: "start" | "stop" | "restart"): Promise<void> {
    model = { ...model, wanted: verb === "stop" ? "down" : "up" };
    const { status, stdout, stderr } = await node.machine.run(`agent ${verb} acme`);
    if (verb !== "stop" && model.knowsRevoked) {
      expect(`${status} ${stderr}`).toStartWith("7 agent: The access of acme was revoked: ");
      expect(stderr).toContain("The start is remembered");
    } else {
      expect(`${status} ${stdout}${stderr}`).toBe(`0 acme is ${verb === "stop" ? "stopped" : "running"}\n`);
    }
  }

  async function take(step: Step): Promise<void> {
    const { machine } = node;
    switch (step) {
      case "start":
      case "stop":
      case "restart":
        return command(step);
      case "revoke":
      case "restore": {
        const isRevoked = step === "revoke";
        if (model.isRevoked === isRevoked) return;
        model = { ...model, isRevoked };
        await (isRevoked
          ? site.plane.api("DELETE", `/api/org/acme/nodes/${id}/`)
          : site.plane.api("POST", `/api/org/acme/nodes/${id}/restore/`, {}));
        return;
      }
      case "check": {
        const { status } = await machine.run("agent check-auth");
        // 7 if this check carried the order out.
        expect(model.isRevoked ? [0, 7] : [0]).toContain(status);
        model = { ...model, knowsRevoked: model.isRevoked };
        return;
      }
      case "reboot":
        await machine.cutPower();
        await machine.boot();
    }
  }

  async function expectModel(): Promise<void> {
    const { machine } = node;
    const active = shouldRun(model) ? "active" : "inactive";
    await machine.until(`test "$(systemctl is-active ${unit})" = ${active}`, 15_000);
    await Bun.sleep(200);
    expect((await machine.run(`systemctl is-active ${unit}`)).stdout.trim()).toBe(active);
    const { teams } = v.parse(Status, JSON.parse((await machine.run("agent status --json")).stdout));
    expect(teams[0]).toEqual({ state: shownState(model), wanted: model.wanted, mode: "server" });
  }

  async function run(chosen: readonly Step[]): Promise<void> {
    const taken: string[] = [];
    for (const step of chosen) {
      taken.push(step);
      try {
        await take(step);
        await expectModel();
      } catch (error) {
        throw new Error(`After ${taken.join(", ")}`, { cause: error });
      }
    }
  }

  for (const each of fixed) {
    test(
      each.join(", "),
      async () => {
        await expectModel();
        await run(each);
      },
      180_000,
    );
  }

  test(`${histories} random histories`, async () => {
    for (let seed = 1; seed <= histories; seed++) await run(history(steps, 14, seed));
  }, 3_600_000);

  test("a unit of version 0.1.0, which does not look at the stop, stays stopped after a reboot too", async () => {
    const { machine } = node;
    await run(["restore", "check", "start"]);
    const template = "/etc/systemd/system/overlay-agent@.service";
    await machine.must(`sed -i '/stopped$/d' ${template} && systemctl daemon-reload`);
    await run(["stop", "reboot"]);
    // Installing the units again starts no organization that a user has stopped.
    await machine.must("agent install-systemd && systemctl disable --now overlay-agent-auth.timer");
    await expectModel();
    await run(["start"]);
  }, 240_000);

  test("a stop that is killed once it is stored holds after a reboot, and a restore that is killed goes on", async () => {
    const { machine } = node;
    await machine.must("touch /etc/overlay-agent/acme/stopped");
    model = { ...model, wanted: "down" };
    await run(["reboot", "start", "revoke", "check", "restore"]);
    const of = "/etc/overlay-agent/acme";
    await machine.must(`mv ${of}/auth-revoked.json ${of}/auth-restored.json`);
    model = { ...model, knowsRevoked: false };
    await machine.must("agent check-auth");
    await expectModel();
    expect((await machine.run(`test -e ${of}/auth-restored.json`)).status).toBe(1);
  }, 240_000);

  test("two commands at once: the unit is as the last one left the desired state", async () => {
    const { machine } = node;
    for (let round = 0; round < (inFull ? 30 : 3); round++) {
      await machine.run("agent start acme & agent stop acme & agent start acme & agent stop acme & wait");
      const isStopped = (await machine.run("test -e /etc/overlay-agent/acme/stopped")).status === 0;
      model = { ...model, wanted: isStopped ? "down" : "up" };
      await expectModel();
    }
    await run(["start"]);
  }, 240_000);

  test("a command with another config root leaves the units of this one alone, and says whose they are", async () => {
    const { machine } = node;
    await machine.must("cp -a /etc/overlay-agent /srv/copy && rm -rf /srv/copy/acme/lock");
    const before = await machine.must("cat /etc/systemd/system/overlay-agent*.service | sha256sum");
    for (const line of ["stop acme", "restart acme", "install-systemd", "install-systemd --uninstall"]) {
      const { status, stderr } = await machine.run(`agent ${line} --config-root /srv/copy`);
      expect([line, status, stderr]).toEqual([line, 1, expect.stringContaining("run the organizations of")]);
    }
    expect(await machine.must("cat /etc/systemd/system/overlay-agent*.service | sha256sum")).toBe(before);
    const hidden = await machine.run("agent install-systemd --config-root /root/copy");
    expect([hidden.status, hidden.stderr]).toMatchObject([1, expect.stringContaining("cannot see")]);
  });

  test("registering again keeps the stop, and says so", async () => {
    const { machine } = node;
    await run(["stop"]);
    const token = await site.plane.makeToken();
    const where = `--api-base ${site.plane.url} --allow-plain-http --org-slug acme --node-name vm`;
    const again = (flags: string) =>
      machine.run(`echo ${token} | agent register ${where} --force ${flags} --registration-token-file -`);
    const { status, stderr } = await again("");
    expect(stderr).toContain("acme was stopped, and stays so. Start it: agent start acme");
    expect(status).toBe(0);
    await expectModel();
    await machine.must("systemctl disable --now overlay-agent-auth.timer");
    await run(["start"]);
  }, 240_000);

  test("register --force with another mode: the former services end, and those of the new mode run the overlay", async () => {
    const { machine } = node;
    const where = `--api-base ${site.plane.url} --allow-plain-http --org-slug acme --node-name vm`;
    const move = async (mode: string) =>
      machine.must(
        `echo ${await site.plane.makeToken()} | agent register ${where} --force --mode ${mode} --registration-token-file -`,
      );
    const engines = "grep -lszx '[-]config' /proc/[0-9]*/cmdline | wc -l";
    const shown = async () => v.parse(Status, JSON.parse(await machine.must("agent status --json"))).teams[0];
    await move("desktop");
    await machine.until("agent status | grep -q 'running as'", 20_000);
    expect(await shown()).toEqual({ state: "running", wanted: "up", mode: "desktop" });
    expect((await machine.run(`systemctl is-active ${unit}; systemctl is-enabled ${unit}`)).stdout).toBe(
      "inactive\ndisabled\n",
    );
    expect(await machine.must(engines)).toBe("1");
    await machine.must("agent stop acme && agent start acme");
    await machine.until(pingPeer, 20_000);

    await machine.must("agent stop acme");
    await move("server");
    await machine.until(pingPeer, 20_000);
    expect(await shown()).toEqual({ state: "running", wanted: "up", mode: "server" });
    expect(await machine.must(`systemctl is-active ${unit}`)).toBe("active");
    expect(await machine.must(engines)).toBe("1");
    await move("desktop");
    await machine.until("agent status | grep -q 'running as'", 20_000);
    expect(await machine.must(engines)).toBe("1");
  }, 180_000);

  test("an organization that is unregistered while no daemon runs leaves nothing for the next registration", async () => {
    const { machine } = node;
    await machine.must("agent stop acme && systemctl stop overlay-agent");
    await machine.must("agent unregister --org-slug acme");
    await machine.must("systemctl start overlay-agent");
    expect((await machine.run("agent status")).stdout).toBe(
      "No organization is registered on this machine\n",
    );
    const token = await site.plane.makeToken();
    const where = `--api-base ${site.plane.url} --allow-plain-http --org-slug acme --node-name vm-2`;
    await machine.must(`echo ${token} | agent register ${where} --registration-token-file -`);
    await machine.until("agent status | grep -q 'running as'", 20_000);
  }, 240_000);
});
