// Desktop mode on a Debian machine that systemd has booted: the daemon's unit, crash, hand-over, hang, watchdog, stop.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";

const daemonPid = (machine: Machine) =>
  machine.must("systemctl show --property=MainPID --value overlay-agent");
const enginePid = (machine: Machine) =>
  machine.must(`agent status --json | grep -o '"pid":[0-9]*,"uptime' | grep -o '[0-9]*'`);
/** The same unit with shorter times, for faster tests. */
const shorten = (machine: Machine, times: string) =>
  machine.must(
    `mkdir -p /run/systemd/system/overlay-agent.service.d && cd /run/systemd/system/overlay-agent.service.d &&
    printf '[Service]\n${times.replaceAll("\n", "\\n")}\n' >times.conf && systemctl daemon-reload`,
  );
const ready = (machine: Machine) =>
  machine.until("systemctl is-active overlay-agent && agent status", 30_000);

describeMachine("desktop mode under systemd", () => {
  let site: Site;
  let node: MachineNode;
  beforeAll(async () => {
    site = await makeSite(["vm"]);
    node = await site.boot("vm");
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
  });

  test("register installs the daemon's unit, and the overlay carries packets", async () => {
    const { machine } = node;
    await node.register("desktop");
    await machine.until(pingPeer, 20_000);
    expect(await machine.must("systemctl is-active overlay-agent")).toBe("active");
    expect(await machine.must("systemd-analyze verify overlay-agent.service 2>&1")).toBe("");
    await machine.must("systemd-analyze security --threshold=25 overlay-agent.service");
    expect(await machine.must("stat -c '%a %G' /run/overlay-agent /run/overlay-agent/cmd.sock")).toBe(
      "750 overlay-agent\n660 overlay-agent",
    );
  }, 60_000);

  test("a restart hands the engine over: the same process, no packet lost", async () => {
    const { machine } = node;
    const engine = await enginePid(machine);
    const before = await daemonPid(machine);
    const pinging = machine.must("ping -i 0.1 -c 40 -W 1 10.77.0.1 | grep -o '[0-9]*% packet loss'");
    await machine.must("systemctl restart overlay-agent");
    await ready(machine);
    expect(await pinging).toBe("0% packet loss");
    expect(await enginePid(machine)).toBe(engine);
    expect(await daemonPid(machine)).not.toBe(before);
  }, 60_000);

  test("a killed daemon restarts and adopts the engine", async () => {
    const { machine } = node;
    const engine = await enginePid(machine);
    await machine.must("systemctl kill --kill-who=main --signal=SIGKILL overlay-agent");
    await machine.until("systemctl show --property=NRestarts --value overlay-agent | grep -qv '^0'", 10_000);
    await ready(machine);
    expect(await enginePid(machine)).toBe(engine);
    await machine.must(pingPeer);
  }, 60_000);

  test("after a power cut the overlay starts by itself", async () => {
    const { machine } = node;
    await machine.cutPower();
    await machine.boot();
    await machine.until(pingPeer, 20_000);
    expect(await machine.must("systemctl is-system-running")).toBe("running");
  }, 60_000);

  test("a stop leaves no engine and no interface", async () => {
    const { machine } = node;
    await machine.must("systemctl stop overlay-agent");
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
    await machine.must("systemctl start overlay-agent");
    await machine.until(pingPeer, 20_000);
  }, 60_000);

  test("the watchdog ends a hanging daemon, and the next one adopts the engine", async () => {
    const { machine } = node;
    await shorten(machine, "WatchdogSec=3\nTimeoutAbortSec=1\nTimeoutStopSec=3");
    await machine.must("systemctl restart overlay-agent");
    await ready(machine);
    const engine = await enginePid(machine);
    const pid = await daemonPid(machine);
    await machine.must(`kill -STOP ${pid}`);
    await machine.until("journalctl -u overlay-agent | grep -q 'Watchdog timeout'", 30_000);
    await machine.until(
      `! systemctl show --property=MainPID --value overlay-agent | grep -qx '0\\|${pid}'`,
      30_000,
    );
    await ready(machine);
    expect(await enginePid(machine)).toBe(engine);
    await machine.must(pingPeer);
  }, 120_000);

  test("a stop of a hanging daemon leaves no engine and no interface", async () => {
    const { machine } = node;
    await shorten(machine, "TimeoutStopSec=3");
    const pid = await daemonPid(machine);
    // systemd sends SIGCONT with SIGTERM, so one SIGSTOP is not enough.
    await machine.must(
      `kill -STOP ${pid}; (while kill -STOP ${pid} 2>/dev/null; do :; done) & systemctl stop overlay-agent`,
    );
    expect(await machine.must("systemctl show --property=Result --value overlay-agent")).toBe("timeout");
    // The engine was killed just now; the kernel takes its interface first and the process a moment later.
    await machine.until("! pidof nebula", 5000);
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
    await shorten(machine, "");
    await machine.must("systemctl reset-failed");
  }, 120_000);

  test("an uninstallation removes all units", async () => {
    const { machine } = node;
    await machine.must("systemctl start overlay-agent && agent install-systemd --uninstall");
    expect(await machine.must("ls /etc/systemd/system | grep -c overlay-agent || true")).toBe("0");
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
  }, 60_000);
});
