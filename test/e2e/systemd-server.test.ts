// Server mode on a Debian machine that systemd has booted: units, reboot, the check-auth timer with news, outage and
// revocation, stop. The tests share one machine and depend on their order.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";
import { inFull } from "../support/soak.ts";

const nodeId = (machine: Machine) =>
  machine.must("grep -o 'node_id[^,]*' /etc/overlay-agent/acme/node-config.json | grep -o '[0-9]*'");
const units = (root: string) =>
  readdirSync(join(root, "etc/systemd/system")).filter((name) => name.startsWith("overlay-agent"));
const auth = "overlay-agent-auth.service";
const checking = `systemctl show --property=ActiveState ${auth} | grep -q =activating`;
/** A time on the machine's monotonic clock, in seconds. */
const seconds = async (machine: Machine, property: string, unit = "") =>
  Number(await machine.must(`systemctl show --property=${property} --value ${unit}`)) / 1e6;
const checkedAt = (machine: Machine) => seconds(machine, "InactiveExitTimestampMonotonic", auth);

describeMachine("server mode under systemd", () => {
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

  test("a program that a service cannot see, or another user can replace, is refused before a token is used", async () => {
    const { machine } = node;
    await machine.must(
      "cp /usr/local/bin/agent /root && mkdir /opt/open && cp /usr/local/bin/agent /opt/open && chmod 777 /opt/open",
    );
    const token = await site.plane.makeToken();
    const refusals = [
      ["/root/agent", "services cannot see files below /root"],
      ["/opt/open/agent", "every user can write to /opt/open"],
      ["agent --overlay-binary /opt/open/agent", "every user can write to /opt/open"],
    ];
    for (const [program, why] of refusals) {
      const where = `--api-base ${site.plane.url} --allow-plain-http --org-slug acme`;
      for (const command of [`register ${where} --registration-token-file -`, "install-systemd"]) {
        const { status, stderr } = await machine.run(`echo ${token} | ${program} ${command}`);
        expect(stderr).toContain(`${why}`);
        expect(stderr).toContain("sudo install -m 0755 /");
        expect(status).toBe(1);
      }
    }
    expect(units(machine.root)).toEqual([]);
    expect(existsSync(join(machine.root, "etc/overlay-agent"))).toBe(false);
    await machine.must("rm -r /root/agent /opt/open");
  }, 240_000);

  test("register installs and starts the units, and the overlay carries packets", async () => {
    const { machine } = node;
    await node.register("server");
    expect(units(machine.root).sort()).toEqual([
      auth,
      "overlay-agent-auth.timer",
      "overlay-agent-edge@.service",
      "overlay-agent@.service",
    ]);
    await machine.until(pingPeer, 20_000);
    expect(await machine.must("systemctl is-active overlay-agent@acme overlay-agent-auth.timer")).toBe(
      "active\nactive",
    );
    expect(await machine.must("getent group overlay-agent | cut -d : -f 1")).toBe("overlay-agent");
  }, 240_000);

  test("systemd-analyze reports no fault in the units, and an exposure of 2.5 or better", async () => {
    const { machine } = node;
    const all = `overlay-agent@acme.service ${auth} overlay-agent-auth.timer`;
    expect(await machine.must(`systemd-analyze verify ${all} 2>&1`)).toBe("");
    await machine.must("systemd-analyze security --threshold=25 overlay-agent@acme.service");
    await machine.must(`systemd-analyze security --threshold=25 ${auth}`);
  }, 240_000);

  test("a second installation changes and restarts nothing", async () => {
    const { machine } = node;
    const pid = "systemctl show --property=MainPID --value overlay-agent@acme";
    const before = await machine.must(pid);
    expect(await machine.must("agent install-systemd")).toBe("Everything is up to date");
    expect(await machine.must(pid)).toBe(before);
  }, 240_000);

  test("an executable that services cannot see is not updated, and doctor names it", async () => {
    const { machine } = node;
    await machine.must("cp /usr/local/bin/agent /root");
    for (const flags of ["--release-url /nowhere", "--rollback"]) {
      const { status, stderr } = await machine.run(`/root/agent self-update ${flags}`);
      expect(stderr).toContain("must not run /root/agent: services cannot see files below /root");
      expect(status).toBe(1);
    }
    expect((await machine.run("/root/agent doctor")).stdout).toContain(
      "services cannot see files below /root",
    );
    expect((await machine.run("agent doctor")).stdout).toContain("the service files are current");
    await machine.must("rm /root/agent");
  }, 240_000);

  test("after a power cut the overlay starts by itself, soon after the network", async () => {
    const { machine } = node;
    await machine.cutPower();
    const begin = performance.now();
    const booting = machine.boot();
    const onlineMs = await machine.until("systemctl is-active --quiet network-online.target", 30_000);
    await machine.until(pingPeer, 30_000);
    const upMs = performance.now() - begin;
    process.stderr.write(
      `network-online after ${Math.round(onlineMs)} ms, first ping after ${Math.round(upMs)} ms\n`,
    );
    // Beside other tests the machine may be slower.
    expect(upMs - onlineMs).toBeLessThan(inFull ? 5000 : 20_000);
    await booting;
    expect(await machine.must("systemctl is-active overlay-agent@acme")).toBe("active");
  }, 240_000);

  test("the timer fires 30 s after boot, and news is applied while that run waits", async () => {
    const { machine } = node;
    const { plane } = site;
    await machine.until(checking, 60_000);
    const sinceBoot = (await checkedAt(machine)) - (await seconds(machine, "UserspaceTimestampMonotonic"));
    expect(sinceBoot).toBeGreaterThan(29);
    expect(sinceBoot).toBeLessThan(45);
    const certificate = await machine.must("sha256sum /etc/overlay-agent/acme/host.crt");
    await plane.api("POST", "/api/org/acme/groups/", { name: "web" });
    await plane.api("PATCH", `/api/org/acme/nodes/${await nodeId(machine)}/`, { groups: ["web"] });
    const tookMs = await machine.until(
      "journalctl -u overlay-agent@acme | grep -q 'Client cert refreshed'",
      10_000,
    );
    process.stderr.write(`news was in force after ${Math.round(tookMs)} ms\n`);
    expect(await machine.must("sha256sum /etc/overlay-agent/acme/host.crt")).not.toBe(certificate);
    await machine.must(checking);
    await machine.must(pingPeer);
  }, 240_000);

  test("an outage of the control plane does not affect the system or the tunnel", async () => {
    const { machine } = node;
    const ended = `systemctl show --property=InactiveEnterTimestampMonotonic --value ${auth}`;
    const before = await machine.must(ended);
    await site.plane.stop();
    // On a busy machine the next run may follow at once.
    await machine.until(`test "$(${ended})" -gt ${before}`, 90_000);
    expect(await machine.must(`systemctl show --property=Result --value ${auth}`)).toBe("success");
    expect((await machine.run("agent check-auth --all")).status).toBe(6);
    expect(await machine.must("systemctl is-system-running")).toBe("running");
    expect(
      await machine.must(`journalctl -u ${auth} | grep -c 'rolling back to the previous one' || true`),
    ).toBe("0");
    await machine.must(pingPeer);
    await site.plane.start();
  }, 240_000);

  test("the next run follows after a minute; a revoked node stops and stays stopped after a reboot", async () => {
    const { machine } = node;
    const { plane } = site;
    // The run during the outage may have taken a minute: the next one may have started already.
    const begun = `journalctl -b -u ${auth} -o short-monotonic | grep 'Starting '`;
    await machine.until(`test "$(${begun} | wc -l)" -ge 2`, 75_000);
    const [first, second] = (await machine.must(begun)).matchAll(/^\[ *([\d.]+)\]/gm);
    const apart = Number(second?.[1]) - Number(first?.[1]);
    expect(apart).toBeGreaterThan(59);
    expect(apart).toBeLessThan(75);
    await machine.until(checking, 75_000);
    await plane.api("DELETE", `/api/org/acme/nodes/${await nodeId(machine)}/`);
    await machine.until("! ip link | grep -q ov-", 20_000);
    expect(existsSync(join(machine.root, "etc/overlay-agent/acme/auth-revoked.json"))).toBe(true);
    await machine.powerOff();
    await machine.boot();
    expect((await machine.run("systemctl is-active overlay-agent@acme")).stdout.trim()).toBe("inactive");
    expect(await machine.must("systemctl is-system-running")).toBe("running");
  }, 240_000);

  test("a restored node starts again", async () => {
    const { machine } = node;
    await site.plane.api("POST", `/api/org/acme/nodes/${await nodeId(machine)}/restore/`, {});
    await machine.must(`systemctl start --no-block ${auth}`);
    await machine.until(pingPeer, 30_000);
  }, 240_000);

  test("a stop leaves no interface even during a check, and an uninstallation leaves no unit", async () => {
    const { machine } = node;
    await machine.must("systemctl stop overlay-agent@acme");
    await machine.must(`systemctl stop ${auth}`);
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
    await machine.must("systemctl start overlay-agent@acme");
    await machine.must("agent install-systemd --uninstall");
    expect(units(machine.root)).toEqual([]);
    expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
    expect(await machine.must("systemctl list-units --all --no-legend 'overlay-agent*' | wc -l")).toBe("0");
    expect(await machine.must("systemctl is-system-running")).toBe("running");
  }, 240_000);
});
