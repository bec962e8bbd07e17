// Server mode on a Debian booted by its own systemd: units, reboot, revocation by the timer's service, outage, stop.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { inCi } from "../support/debian.ts";
import { makeMachineNode, type MachineNode } from "../support/machine-node.ts";
import { cannotBoot, type Machine } from "../support/nspawn.ts";

const reason = cannotBoot();
if (reason !== undefined && inCi) throw new Error(`No machine can be booted: ${reason}`);
const pingPeer = "ping -c 1 -W 1 10.77.0.1";
const nodeId = (machine: Machine) =>
  machine.must("grep -o 'node_id[^,]*' /etc/overlay-agent/acme/node-config.json | grep -o '[0-9]*'");
const units = (root: string) =>
  readdirSync(join(root, "etc/systemd/system")).filter((name) => name.startsWith("overlay-agent"));

describe.skipIf(reason !== undefined)("server mode under systemd", () => {
  let node: MachineNode;
  beforeAll(async () => {
    node = await makeMachineNode();
  }, 300_000);
  afterAll(() => node[Symbol.asyncDispose]());

  test("register installs and starts the units, and the overlay carries packets", async () => {
    const { machine } = node;
    await node.register("server");
    expect(units(machine.root).sort()).toEqual([
      "overlay-agent-auth.service",
      "overlay-agent-auth.timer",
      "overlay-agent@.service",
    ]);
    await machine.until(pingPeer, 10_000);
    expect(await machine.must("systemctl is-active overlay-agent@acme overlay-agent-auth.timer")).toBe(
      "active\nactive",
    );
    expect(await machine.must("getent group overlay-agent | cut -d : -f 1")).toBe("overlay-agent");
  }, 60_000);

  test("systemd finds nothing wrong with them, and an exposure of 2.5 or better", async () => {
    const { machine } = node;
    const all = "overlay-agent@acme.service overlay-agent-auth.service overlay-agent-auth.timer";
    expect(await machine.must(`systemd-analyze verify ${all} 2>&1`)).toBe("");
    await machine.must("systemd-analyze security --threshold=25 overlay-agent@acme.service");
    await machine.must("systemd-analyze security --threshold=25 overlay-agent-auth.service");
  }, 60_000);

  test("installed again, nothing changes and nothing is restarted", async () => {
    const { machine } = node;
    const pid = "systemctl show --property=MainPID --value overlay-agent@acme";
    const before = await machine.must(pid);
    expect(await machine.must("agent install-systemd")).toBe("The units are as they should be");
    expect(await machine.must(pid)).toBe(before);
  }, 60_000);

  test("the check runs inside its sandbox, and news is applied while it waits", async () => {
    const { machine, plane } = node;
    await machine.must("systemctl start --no-block overlay-agent-auth.service");
    await machine.until("systemctl is-active overlay-agent-auth.service | grep -q activating", 5000);
    await Bun.sleep(2000);
    const id = await nodeId(machine);
    const certificate = await machine.must("sha256sum /etc/overlay-agent/acme/host.crt");
    await plane.api("POST", "/api/org/acme/groups/", { name: "web" });
    await plane.api("PATCH", `/api/org/acme/nodes/${id}/`, { groups: ["web"] });
    await machine.until("journalctl -u overlay-agent@acme | grep -q 'Client cert refreshed'", 3000);
    expect(await machine.must("sha256sum /etc/overlay-agent/acme/host.crt")).not.toBe(certificate);
    await machine.must(pingPeer);
  }, 60_000);

  test("after a power cut the overlay is up again by itself, soon after the network is", async () => {
    const { machine } = node;
    await machine.cutPower();
    const begin = performance.now();
    await machine.boot();
    await machine.until(pingPeer, 20_000);
    const upMs = performance.now() - begin;
    expect(await machine.must("systemctl is-active overlay-agent@acme")).toBe("active");
    process.stderr.write(`power-on to first ping: ${Math.round(upMs)} ms\n`);
  }, 60_000);

  test("a control plane that is away leaves the system and the tunnel as they are", async () => {
    const { machine, plane } = node;
    await plane.stop();
    await machine.run("systemctl stop overlay-agent-auth.service");
    await machine.must("systemctl start overlay-agent-auth.service", 120_000);
    expect(await machine.must("systemctl is-system-running")).toBe("running");
    await machine.must(pingPeer);
    await plane.start();
  }, 180_000);

  test("a revoked node stops, stays stopped over a reboot, and comes back when it is restored", async () => {
    const { machine, plane } = node;
    const id = await nodeId(machine);
    await plane.api("DELETE", `/api/org/acme/nodes/${id}/`);
    await machine.must("systemctl start --no-block overlay-agent-auth.service");
    await machine.until("! ip link | grep -q ov-", 20_000);
    expect(existsSync(join(machine.root, "etc/overlay-agent/acme/auth-revoked.json"))).toBe(true);
    await machine.powerOff();
    await machine.boot();
    expect((await machine.run("systemctl is-active overlay-agent@acme")).stdout.trim()).toBe("inactive");
    expect(await machine.must("systemctl is-system-running")).toBe("running");
    await plane.api("POST", `/api/org/acme/nodes/${id}/restore/`, {});
    await machine.must("systemctl start --no-block overlay-agent-auth.service");
    await machine.until(pingPeer, 30_000);
  }, 120_000);

  test("stopped, no interface is left; uninstalled, no unit is", async () => {
    const { machine } = node;
    await machine.must("systemctl stop overlay-agent@acme");
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
    await machine.must("systemctl start overlay-agent@acme");
    await machine.must("agent install-systemd --uninstall");
    expect(units(machine.root)).toEqual([]);
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
    expect(await machine.must("systemctl list-units --all --no-legend 'overlay-agent*' | wc -l")).toBe("0");
    expect(await machine.must("systemctl is-system-running")).toBe("running");
  }, 60_000);
});
