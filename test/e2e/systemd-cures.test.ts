// Cures that doctor prints, each tried on a booted machine with its fault: after it the finding is gone. The tests share
// one machine in server mode, and leave it well.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { cures } from "../support/doctor-cures.ts";
import { engineNamed, missing } from "../support/engines.ts";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { inFull, shuffled } from "../support/soak.ts";
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

/** As with a package: systemd masks no unit that is a file of /etc. */
function takeAway(way: "mask" | "disable", unit: string): string {
  const [from, to] = [`/etc/systemd/system/${unit}`, "/usr/lib/systemd/system"];
  return `if [ -f ${from} ]; then mv ${from} ${to}; systemctl daemon-reload; fi; systemctl ${way} --now ${unit}`;
}

/** The checks, once this one has nothing to say any more, or after some time. */
async function untilLeft<T extends { id: string }>(
  look: () => Promise<readonly T[]>,
  id: string,
): Promise<readonly T[]> {
  let left = await look();
  for (let tries = 0; tries < 10 && left.some((each) => each.id === id); tries++) {
    await Bun.sleep(1500);
    left = await look();
  }
  return left;
}

/** Those that restart no engine take a second each; of the others the same third, and all in soak. */
const someOf = (all: typeof cures) => {
  const slow = shuffled(all.filter(({ isSlow }) => isSlow === true));
  const left = new Set(slow.slice(Math.ceil(slow.length / 3)));
  return all.filter((each) => !left.has(each));
};

describeMachine("on a machine with its fault, a cure of doctor", () => {
  let site: Site;
  let node: MachineNode;
  /** What doctor says of the old engine of this machine, before there is any fault. */
  let known: ReadonlySet<string>;
  const examine = async () =>
    v.parse(Doctor, JSON.parse((await node.machine.run("agent doctor --json")).stdout)).checks;
  const traffic = async () =>
    (await examine()).filter(({ id, verdict }) => id === "traffic" && verdict !== "ok");
  const failed = async () =>
    (await examine()).filter(({ verdict }) => verdict === "fail").map(({ id }) => id);
  const unwell = async () =>
    (await examine()).flatMap(({ id, verdict, remedy }) =>
      verdict === "ok" || verdict === "skipped" ? [] : [[verdict, id, remedy]],
    );
  const pidOf = "systemctl show --property=MainPID --value overlay-agent@acme";
  const headline = async () => (await node.machine.run("agent status")).stdout.split("\n")[0];

  beforeAll(async () => {
    site = await makeSite(["vm", "desk"], {
      prepare: async (layer) => {
        if (missing !== undefined) return;
        mkdirSync(join(layer, "srv"));
        copyFileSync(engineNamed("1.12").nebula, join(layer, "srv/newest"));
      },
    });
    node = await site.boot("vm");
    await node.register("server");
    await node.machine.until(pingPeer, 20_000);
    await node.machine.until(`systemctl start --no-block ${service}; test -e ${saved}`, 30_000);
    await node.machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
    const before = (await examine()).filter(({ verdict }) => verdict !== "ok" && verdict !== "skipped");
    expect(before.map(({ verdict, remedy }) => [verdict, remedy])).toEqual([
      ["warn", "agent overlay update"],
      ["warn", "agent overlay update"],
    ]);
    known = new Set(before.map(({ evidence }) => evidence));
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

  // Their order says nothing: each leaves the machine as it was.
  for (const { name, id, make, remedy, first, typed, undo } of inFull ? cures : someOf(cures)) {
    test(`is what doctor prints, and ends it: ${name}`, async () => {
      const { machine } = node;
      try {
        await machine.must(await make(node, site));
        const checks = (await examine()).filter((each) => each.id === id);
        const found = checks.find(({ verdict }) => /fail|warn/.test(verdict));
        expect([name, checks, found?.remedy]).toEqual([name, checks, expect.stringContaining(remedy)]);
        if (first !== undefined)
          await machine.must(typeof first === "string" ? first : await first(node, site));
        const asPrinted = found?.remedy ?? "false";
        await machine.must(typeof typed === "function" ? typed(asPrinted) : (typed ?? asPrinted), 120_000);
        const after = async () => (await examine()).filter(({ verdict }) => /fail|warn/.test(verdict));
        const left = await untilLeft(after, id);
        expect([name, left.filter(({ evidence }) => !known.has(evidence))]).toEqual([name, []]);
        await machine.until("agent status | head -1 | grep -q 'running as'", 60_000);
        await machine.until(pingPeer, 30_000);
      } finally {
        if (typeof undo === "string") await machine.must(undo, 120_000);
        else await undo?.(node, site);
      }
    }, 240_000);
  }

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

  test("is not needed where the configuration was gone at a start: a check starts the engine, but none that root stopped", async () => {
    const { machine } = node;
    const unit = "overlay-agent@acme";
    const check = "agent check-auth --all || test $? = 6";
    const config = "/etc/overlay-agent/acme/config.yml";
    await machine.must(`systemctl stop ${timer} ${service}`);
    await site.plane.stop();
    try {
      for (const lost of [`$(readlink -f ${config})`, config]) {
        await machine.must(`systemctl stop ${unit} && rm ${lost} && systemctl start ${unit}`);
        await machine.must(`! systemctl is-active ${unit}`);
        await machine.must(check);
        await machine.until(pingPeer, 20_000);
      }
      await machine.must(`systemctl stop ${unit}; ${check}`);
      await machine.must(`! systemctl is-active ${unit}`);
    } finally {
      await site.plane.start();
      await machine.must(`systemctl start ${unit} ${timer}; systemctl start --no-block ${service}`);
    }
    await machine.until("agent status | head -1 | grep -q 'running as'", 60_000);
  }, 120_000);

  test("ends it in desktop mode: the daemon is stopped and disabled", async () => {
    await using desk = await site.boot("desk");
    const { machine } = desk;
    // Without an organization no service is needed, and none is missed.
    const bare = v.parse(Doctor, JSON.parse((await machine.run("agent doctor --json")).stdout)).checks;
    expect(bare.filter(({ id }) => id === "units").map(({ verdict }) => verdict)).toEqual(["skipped"]);
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
    const isBack = "systemctl is-active overlay-agent; systemctl is-enabled overlay-agent";
    expect(await machine.must(isBack)).toBe("active\nenabled");
    await machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
    // As a program of the daemon's protocol does it.
    const forget = `perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => "/run/overlay-agent/cmd.sock") or die; print $s qq({"v":1,"action":"delete","team":"acme"}\\n); $s->flush; print scalar <$s>'`;
    expect(await machine.must(forget)).toContain('"ok":true');
    expect(await machine.must("agent status; true")).toContain("The daemon does not know this organization");
    const told = v.parse(Doctor, JSON.parse((await machine.run("agent doctor --json")).stdout)).checks;
    const forgotten = told.find(({ evidence }) => evidence.startsWith("The daemon does not know"));
    expect(forgotten).toMatchObject({ id: "traffic", verdict: "warn", remedy: "agent start acme" });
    await machine.must(forgotten?.remedy ?? "false");
    await machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
    const { stdout: cured } = await machine.run("agent doctor --json");
    expect(cured).not.toContain("The daemon does not know");
    for (const way of ["mask", "disable"] as const)
      for (const word of ["start acme", "up acme", "doctor --fix"]) {
        await machine.must(takeAway(way, "overlay-agent.service"));
        const { status, stderr } = await machine.run(`agent ${word}`, 60_000);
        expect({ way, word, status, stderr }).toMatchObject({ status: 0 });
        expect([way, word, await machine.must(isBack)]).toEqual([way, word, "active\nenabled"]);
        await machine.until("agent status | head -1 | grep -q 'running as'", 30_000);
      }
  }, 180_000);

  // The timer and the engine's unit; the daemon below.
  for (const [what, unit] of [
    ["the timer", timer],
    ["the engine", "overlay-agent@acme.service"],
  ] as const)
    for (const way of ["mask", "disable"] as const)
      for (const word of ["start acme", "up acme", "doctor --fix"])
        // An engine that root has disabled is stopped, as wanted, and that command leaves it so.
        if (!(what === "the engine" && way === "disable" && word === "doctor --fix"))
          test(`${word} brings back ${what} after: systemctl ${way}`, async () => {
            const { machine } = node;
            await machine.must(takeAway(way, unit));
            const { status, stdout, stderr } = await machine.run(`agent ${word}`, 60_000);
            expect({ word, status, stdout, stderr }).toMatchObject({ status: 0 });
            await machine.until(
              `systemctl is-active --quiet ${unit} && systemctl is-enabled --quiet ${unit}`,
              10_000,
            );
            await machine.until(pingPeer, 30_000);
            expect(await failed()).toEqual([]);
          }, 120_000);

  test("unregister of another config root leaves the usual one, its engine and its timer alone", async () => {
    const { machine } = node;
    const token = await site.plane.makeToken();
    const before = await machine.must(pidOf);
    const { url, slug } = site.plane;
    await machine.must(
      `echo ${token} | agent register --api-base ${url} --allow-plain-http --org-slug ${slug} --node-name other --mode server --no-start --config-root /etc/other --registration-token-file -`,
    );
    const words = await machine.must("agent unregister --config-root /etc/other --org-slug acme");
    expect([words, await machine.must("ls -A /etc/other")]).toEqual([words, ""]);
    expect(await machine.must(pidOf)).toBe(before);
    expect(
      await machine.must(`systemctl is-active ${timer}; systemctl is-enabled overlay-agent@acme ${timer}`),
    ).toBe("active\nenabled\nenabled");
    await machine.must("agent check-auth --org-slug acme");
    await machine.must(pingPeer);
    expect(await failed()).toEqual([]);
  }, 120_000);

  test("restart works where no follower of the journal can be started", async () => {
    const { machine } = node;
    await machine.must(
      `mv /usr/bin/journalctl /usr/bin/journalctl.real && printf '#!/bin/sh\\ncase "$*" in *--follow*) exit 1;; esac\\nexec /usr/bin/journalctl.real "$@"\\n' > /usr/bin/journalctl && chmod 755 /usr/bin/journalctl`,
    );
    try {
      const before = await machine.must(pidOf);
      expect(await machine.must("agent restart acme")).toBe("acme is running");
      expect(await machine.must(pidOf)).not.toBe(before);
    } finally {
      await machine.must("mv /usr/bin/journalctl.real /usr/bin/journalctl");
    }
  }, 120_000);

  test("is not guessed while systemd does not answer: the engine is seen to run, and the rest is unknown", async () => {
    const { machine } = node;
    await machine.must(
      `mv /usr/bin/systemctl /usr/bin/systemctl.real && printf '#!/bin/sh\\nexit 1\\n' > /usr/bin/systemctl && chmod 755 /usr/bin/systemctl`,
    );
    try {
      expect(await headline()).toStartWith("acme is running, not ");
      const said = (await traffic()).map(({ verdict, evidence }) => [verdict, evidence.split(":")[0]]);
      expect(said).toEqual([["warn", "systemd does not answer"]]);
      const { stdout } = await machine.run("agent check-auth --org-slug acme --json", 60_000);
      expect(stdout).toContain('"result":"ok"');
    } finally {
      await machine.must("mv /usr/bin/systemctl.real /usr/bin/systemctl");
    }
    await machine.until("agent status | head -1 | grep -q 'running as'", 90_000);
  }, 180_000);

  test("brings the checks back where the agent's file of the units is gone, as beside a package", async () => {
    const { machine } = node;
    const places = ["/usr/local/bin/agent", "/usr/bin/agent"];
    for (const word of ["start acme", "up acme", "doctor --fix", "install-systemd"]) {
      const [gone = "", there = ""] = places;
      await machine.must(`mv ${gone} ${there}`);
      const found = (await examine()).filter(({ verdict }) => verdict === "fail");
      expect([word, found.map(({ id, remedy }) => [id, remedy])]).toEqual([
        word,
        [
          ["units", "agent install-systemd"],
          ["traffic", "agent start acme"],
        ],
      ]);
      expect(found[0]?.evidence).toContain(`${service} starts ${gone}, which is gone`);
      expect(found[1]?.evidence).toStartWith(`Its checks start ${gone}, which is gone`);
      expect(await headline()).toBe("acme is running, not checked");
      expect((await machine.run(`agent ${word}`, 60_000)).stderr).not.toContain("agent:");
      expect([word, await failed()]).toEqual([word, []]);
      await machine.must(`systemctl start ${service} --no-block; agent check-auth --all`);
      places.reverse();
    }
  }, 180_000);

  test.skipIf(missing !== undefined)(
    "is to install the engine that runs, where its file is gone and an older one is there",
    async () => {
      const { machine } = node;
      const isWell = "agent status | head -1 | grep -q 'running as'";
      // Without its sources, apt does not wait for a network.
      await machine.must("rm -rf /etc/apt/sources.list*; agent overlay update --file /srv/newest", 60_000);
      await machine.until(isWell, 60_000);
      expect(await unwell()).toEqual([]);
      const before = await machine.must(pidOf);
      for (const cure of ["agent overlay install", "agent doctor --fix"]) {
        await machine.must("rm /usr/local/bin/overlay");
        expect(await unwell()).toEqual([
          ["fail", "engine", "agent overlay install"],
          ["fail", "engine", "agent overlay install"],
        ]);
        const services = await machine.run("agent install-systemd");
        expect(services).toMatchObject({
          status: 1,
          stderr: expect.stringContaining("agent overlay install"),
        });
        await machine.must("agent sync-config");
        await machine.must(cure, 60_000);
        expect([cure, await unwell()]).toEqual([cure, []]);
        expect(
          await machine.must(
            "cmp /srv/newest /usr/local/bin/overlay && agent overlay update --file /srv/newest",
          ),
        ).toContain("is already 1.12.0");
        expect(await machine.must(pidOf)).toBe(before);
      }
      // As after an update of this program that decides otherwise about offloads: the engine has the former ones.
      const synced = "/etc/overlay-agent/acme/current/sync.json";
      await machine.must(
        `sed -i -E 's/"since":[0-9]+,"former":\\{[^}]*\\}/"since":'$(date +%s000)',"former":{"tun":true,"udp":false}/' ${synced} && grep -q '"udp":false}' ${synced}`,
      );
      expect(await unwell()).toContainEqual(["warn", "offloads", "agent restart acme"]);
      await machine.must("agent restart acme");
      expect((await unwell()).filter(([, id]) => id === "offloads")).toEqual([]);
      // Nothing runs that could be restored: the package's engine is what there is, and it is named.
      await machine.must("rm /usr/local/bin/overlay && systemctl kill --signal=SIGKILL overlay-agent@acme");
      await machine.until("! systemctl is-active --quiet overlay-agent@acme", 30_000);
      expect(await unwell()).toContainEqual(["fail", "traffic", "agent overlay install && agent start acme"]);
      const { stdout, stderr } = await machine.run("agent overlay install && agent start acme", 120_000);
      expect([stdout, stderr]).toEqual([
        expect.stringContaining("is now 1.6.1, a link to /usr/bin/nebula"),
        stderr,
      ]);
      await machine.until(pingPeer, 60_000);
      await machine.must("agent overlay update --file /srv/newest", 60_000);
      await machine.must("rm /usr/local/bin/overlay.old");
      const back = await machine.must("agent overlay update --rollback", 120_000);
      expect(back).toContain("/usr/local/bin/overlay is now 1.6.1, a link to /usr/bin/nebula");
      await machine.until(pingPeer, 60_000);
      await machine.until(isWell, 60_000);
    },
    300_000,
  );
});
