// Cures that doctor prints, each tried on a booted machine with its fault: after it the finding is gone. The tests share
// one machine in server mode, and leave it well.

import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine } from "../support/nspawn.ts";

const Doctor = v.object({
  checks: v.array(
    v.object({
      id: v.string(),
      verdict: v.string(),
      evidence: v.string(),
      remedy: v.optional(v.string(), ""),
    }),
  ),
});
const timer = "overlay-agent-auth.timer";
const service = "overlay-agent-auth.service";
const saved = "/run/overlay-agent-health/acme.json";

type Fault = { name: string; make: string; what: string; cure: string; status: string };

const faults: readonly Fault[] = [
  {
    name: "the timer is stopped",
    make: `systemctl stop ${timer} ${service}`,
    what: "The timer of its checks is stopped",
    cure: "agent start acme",
    status: "acme is running, not checked",
  },
  {
    name: "the timer is disabled",
    make: `systemctl disable ${timer}`,
    what: "The timer of its checks does not start after a reboot",
    cure: "agent start acme",
    status: "acme is running, not probed",
  },
  {
    name: "the timer is masked",
    // As with a package: a unit of /etc cannot be masked.
    make: `mv /etc/systemd/system/${timer} /usr/lib/systemd/system && systemctl daemon-reload && systemctl stop ${timer} && systemctl mask ${timer}`,
    what: "The timer of its checks is masked",
    cure: "agent start acme",
    status: "acme is running, not checked",
  },
  {
    name: "the timer is missing",
    make: `systemctl disable --now ${timer} && rm /usr/lib/systemd/system/${timer} && systemctl daemon-reload`,
    what: "The timer of its checks is not installed",
    cure: "agent install-systemd",
    status: "acme is running, not checked",
  },
  {
    name: "the last check is older than three intervals",
    make:
      `systemctl stop ${service}; mkdir -p /run/systemd/system/${service}.d;` +
      ` printf '[Service]\\nExecStart=\\nExecStart=/bin/true\\n' > /run/systemd/system/${service}.d/off.conf; systemctl daemon-reload;` +
      ` sed -i -E 's/"run_at":"[^"]*"/"run_at":"2026-01-01T00:00:00Z"/' ${saved}`,
    what: "The last check was ",
    cure: "agent check-auth --org-slug acme",
    status: "acme is running, not checked",
  },
];

describeMachine("on a machine with its fault, a cure of doctor", () => {
  let site: Site;
  let node: MachineNode;
  const examine = async () =>
    v.parse(Doctor, JSON.parse((await node.machine.run("agent doctor --json")).stdout)).checks;
  const traffic = async () =>
    (await examine()).filter(({ id, verdict }) => id === "traffic" && verdict !== "ok");
  const failed = async () =>
    (await examine()).filter(({ verdict }) => verdict === "fail").map(({ id }) => id);
  const headline = async () => (await node.machine.run("agent status")).stdout.split("\n")[0];

  beforeAll(async () => {
    site = await makeSite(["vm", "desk"]);
    node = await site.boot("vm");
    await node.register("server");
    await node.machine.until(pingPeer, 20_000);
    await node.machine.until(`systemctl start --no-block ${service}; test -e ${saved}`, 30_000);
    await node.machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
  });

  for (const { name, make, what, cure, status } of faults) {
    test(`ends it: ${name}`, async () => {
      const { machine } = node;
      expect(await traffic()).toEqual([]);
      await machine.must(make);
      expect(await headline()).toBe(status);
      expect(await failed()).toEqual(["traffic"]);
      const [found] = await traffic();
      expect(found).toMatchObject({ verdict: "fail", remedy: cure });
      expect(found?.evidence).toStartWith(what);
      await machine.must(`${cure} || test $? = 6`);
      expect(await traffic()).toEqual([]);
      expect(await failed()).toEqual([]);
      await machine.must(`rm -rf /run/systemd/system/${service}.d; systemctl daemon-reload`);
      await machine.until("agent status | head -1 | grep -q 'running as'", 90_000);
    }, 180_000);
  }

  test("is not needed after checks by hand and by the unit: they are of one machine", async () => {
    const { machine } = node;
    const byUnit = `systemctl stop ${service}; systemctl start --no-block ${service}; sleep 3`;
    await machine.must(`${byUnit}; agent check-auth --all; ${byUnit}`);
    expect(await machine.must("agent status")).not.toContain("Another machine uses the keys");
  }, 60_000);

  test("is not needed where status is well, and peers says so too, beside a check that watches", async () => {
    const { machine } = node;
    await machine.until("agent status | head -1 | grep -q 'running as'", 90_000);
    for (const round of [1, 2, 3])
      expect([round, await machine.must("agent peers")]).toEqual([
        round,
        expect.stringContaining("1 peer, 1 answer"),
      ]);
  }, 120_000);

  test("is to install the engine where its file is gone", async () => {
    const { machine } = node;
    await machine.must(
      "mv /usr/bin/nebula /usr/bin/nebula.away && systemctl kill --signal=SIGKILL overlay-agent@acme",
    );
    await machine.until("! systemctl is-active --quiet overlay-agent@acme", 30_000);
    const checks = await examine();
    const cures = checks.filter(({ verdict }) => verdict === "fail").map(({ id, remedy }) => [id, remedy]);
    expect(cures).toContainEqual(["engine", "agent overlay install"]);
    expect(cures).toContainEqual(["traffic", "agent overlay install && agent start acme"]);
    await machine.must("mv /usr/bin/nebula.away /usr/bin/nebula");
    await machine.until("systemctl is-active --quiet overlay-agent@acme", 30_000);
  }, 120_000);

  test("ends it in desktop mode: the daemon is stopped and disabled", async () => {
    await using desk = await site.boot("desk");
    const { machine } = desk;
    await desk.register("desktop");
    await machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
    await machine.must("systemctl disable --now overlay-agent");
    const { stdout } = await machine.run("agent doctor --json");
    const found = v.parse(Doctor, JSON.parse(stdout)).checks.filter(({ id }) => id === "traffic");
    expect(found.map(({ verdict, remedy }) => [verdict, remedy])).toContainEqual([
      "fail",
      "agent start acme",
    ]);
    await machine.must("agent start acme");
    expect(await machine.must("systemctl is-active overlay-agent; systemctl is-enabled overlay-agent")).toBe(
      "active\nenabled",
    );
    await machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
  }, 180_000);

  test("restart works where no follower of the journal can be started", async () => {
    const { machine } = node;
    await machine.must(
      `mv /usr/bin/journalctl /usr/bin/journalctl.real && printf '#!/bin/sh\\ncase "$*" in *--follow*) exit 1;; esac\\nexec /usr/bin/journalctl.real "$@"\\n' > /usr/bin/journalctl && chmod 755 /usr/bin/journalctl`,
    );
    try {
      const before = await machine.must("systemctl show --property=MainPID --value overlay-agent@acme");
      expect(await machine.must("agent restart acme")).toBe("acme is running");
      expect(await machine.must("systemctl show --property=MainPID --value overlay-agent@acme")).not.toBe(
        before,
      );
    } finally {
      await machine.must("mv /usr/bin/journalctl.real /usr/bin/journalctl");
    }
  }, 120_000);
});
