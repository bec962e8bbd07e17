// `agent self-update` in a booted Debian, in both modes, with signed releases: a good one, and bad ones that must be
// rolled back within a minute, also after a power cut. Each has its own machine; the bad ones run in parallel, because
// most of the time is waiting.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { hostTarget } from "../../build.ts";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey, standIn } from "../support/releases.ts";
import { inFull, instants } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

type Mode = "desktop" | "server";
const modes: readonly Mode[] = ["desktop", "server"];

/** What a bad version does where the daemon or the check is to run, and the modes in which that matters. */
const bad = {
  exits: { does: "exit 1", in: modes },
  hangs: { does: "exec sleep 1000", in: modes },
  ends: { does: "exec systemd-notify --ready", in: ["desktop"] },
  "has-no-database": {
    does: 'exec /usr/local/bin/agent.old "$@" --state-db-path /proc/none/state.db',
    in: ["desktop"],
  },
} as const;
const trials = Object.entries(bad).flatMap(([name, each]) =>
  each.in.map((mode) => ({ mode, name, host: `${mode}-${name}` })),
);
const hosts = [
  ...trials.map(({ host }) => host),
  ...modes.flatMap((mode) => [`${mode}-good`, `${mode}-power`, `${mode}-moments`]),
];
/** Works as the former one does, for it is that. */
const works = 'exec /usr/local/lib/agent "$@"';
/** An update takes about as long until its trial begins. */
const moments = instants(40, 1500);

const update = (machine: Machine, name: string) =>
  machine.run(`agent self-update --json --release-url /srv/${name}`, 180_000);
const version = (machine: Machine) =>
  machine.must(`agent version --no-check --json | grep -o '"version":"[^"]*"' | cut -d '"' -f 4`);
/** The stand-ins are small, the real executables are not. */
const onTrial = "[ $(stat -c %s /usr/local/bin/agent) -lt 1000 ]";
const isBack = "[ $(stat -c %s /usr/local/bin/agent) -gt 1000 ]";
const guardGone = "! ls /etc/systemd/system | grep -q guard";
/** Neither at work nor about to be; also not between two tries. */
const guardIdle =
  "! systemctl list-jobs | grep -q overlay-agent-guard && " +
  "systemctl show --property=ActiveState overlay-agent-guard | grep -qE 'inactive|failed'";
const unitOf = (mode: Mode) => (mode === "desktop" ? "overlay-agent" : "overlay-agent@acme");

/** 0.1.0 for the machines, and what it may be updated to below /srv. */
async function prepareSite(): Promise<Site> {
  using work = temporaryDirectory();
  const key = releaseKey;
  const executable = buildVersion(work.path, "0.1.0");
  const good = readFileSync(buildVersion(work.path, "0.2.0"));
  return makeSite(hosts, {
    executable,
    async prepare(root) {
      const publish = (name: string, content: { version: string; sequence: number }, program: Uint8Array) =>
        makeRelease(join(root, "srv", name), { ...content, executables: { [hostTarget()]: program } }, key);
      await publish("good", { version: "0.2.0", sequence: 5 }, good);
      await publish("works", { version: "0.2.0", sequence: 5 }, standIn("0.2.0", works));
      for (const [name, { does }] of Object.entries(bad)) {
        await publish(name, { version: "0.3.0", sequence: 6 }, standIn("0.3.0", does));
      }
    },
  });
}

describeMachine("self-update", () => {
  let site: Site;
  beforeAll(async () => {
    site = await prepareSite();
  }, 300_000);
  afterAll(() => site[Symbol.asyncDispose]());

  async function boot(mode: Mode, host: string): Promise<MachineNode> {
    const node = await site.boot(host);
    await node.register(mode);
    await node.machine.until(pingPeer, 30_000);
    return node;
  }

  for (const mode of modes) {
    test(`${mode} mode: installs a good release, loses no packet, and removes the guard`, async () => {
      await using node = await boot(mode, `${mode}-good`);
      const { machine } = node;
      const pinging = machine.must("ping -i 0.2 -c 50 10.77.0.1 | grep -o '[0-9]*% packet loss'");
      const { status, stdout, stderr } = await update(machine, "good");
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      expect(JSON.parse(stdout)).toMatchObject({
        from: "0.1.0",
        to: "0.2.0",
        source: "release",
        changed: true,
      });
      expect(await pinging).toBe("0% packet loss");
      expect(await version(machine)).toBe("0.2.0");
      await machine.until(guardGone, 30_000);
      expect(await machine.must("systemctl is-system-running")).toBe("running");
      if (mode === "desktop") {
        expect(await machine.must("agent status --json")).toContain('"version":"0.2.0"');
      }
      await machine.must("agent self-update --rollback");
      expect(await version(machine)).toBe("0.1.0");
      await machine.until(pingPeer, 30_000);
      // Where it belongs to a package, that package's manager updates it.
      const packaged = await machine.run(
        "cp /usr/local/bin/agent /usr/bin/nebula-cert && nebula-cert self-update --json",
      );
      expect(packaged).toMatchObject({
        status: 1,
        stdout: expect.stringContaining("No package repository of this machine has nebula"),
      });
    }, 180_000);
  }

  for (const { mode, name, host } of trials) {
    test.concurrent(
      `${mode} mode: one that ${name} is back at the old one within 60 s, and the tunnel lives`,
      async () => {
        await using node = await boot(mode, host);
        const { machine } = node;
        const begin = performance.now();
        const { status, stdout } = await update(machine, name);
        expect({ status, said: stdout.includes("did not work here") || stdout }).toEqual({
          status: 1,
          said: true,
        });
        expect(performance.now() - begin).toBeLessThan(60_000);
        expect(await version(machine)).toBe("0.1.0");
        await machine.until(`systemctl is-active ${unitOf(mode)}`, 30_000);
        await machine.until(pingPeer, 30_000);
        await machine.until("agent status --json | grep -q running", 30_000);
        await machine.until(`${guardGone} && [ "$(ls -A /usr/local/bin)" = agent ]`, 30_000);
      },
      240_000,
    );
  }

  for (const mode of modes) {
    test.concurrent(
      `${mode} mode: power cut while a bad one is on trial, and the old one is back within 60 s of the boot`,
      async () => {
        await using node = await boot(mode, `${mode}-power`);
        const { machine } = node;
        void update(machine, "hangs");
        await machine.until(onTrial, 60_000);
        await machine.cutPower();
        const booting = machine.boot();
        const tookMs = await machine.until(isBack, 90_000);
        expect(tookMs).toBeLessThan(60_000);
        await booting;
        expect(await version(machine)).toBe("0.1.0");
        await machine.until(pingPeer, 30_000);
        await machine.until(guardGone, 30_000);
        await machine.until("systemctl is-system-running | grep -q running", 60_000);
      },
      240_000,
    );
  }

  for (const mode of modes) {
    test.concurrent(
      `${mode} mode: the command killed, or the power cut, at any moment: one that works is left`,
      async () => {
        await using node = await boot(mode, `${mode}-moments`);
        const { machine } = node;
        await machine.must("cp /usr/local/bin/agent /usr/local/lib/agent");
        for (const [round, ms] of moments.entries()) {
          const name = round % 4 < 2 ? "works" : "exits";
          // Killed with all that it has started, or its last words to systemd would come some time later.
          const begun = `echo $$ >/run/update.pid; exec agent self-update --release-url /srv/${name}`;
          void machine.run(`setsid sh -c '${begun}'`);
          await machine.until("[ -s /run/update.pid ]", 30_000);
          await Bun.sleep(ms);
          if (round % 2 === 0) await machine.run("kill -KILL -$(cat /run/update.pid)");
          else await machine.cutPower().then(() => machine.boot());
          await machine.until(guardIdle, 90_000);
          const now = await version(machine);
          expect(now === "0.1.0" || (now === "0.2.0" && name === "works"), `${name}: ${now}`).toBe(true);
          await machine.until(`systemctl is-active ${unitOf(mode)}`, 30_000);
          await machine.until(pingPeer, 30_000);
          await machine.must("cp --remove-destination /usr/local/lib/agent /usr/local/bin/agent");
          await machine.must("rm -f /var/lib/overlay-agent/release.json /run/update.pid");
          if (mode === "desktop") await machine.must("systemctl restart overlay-agent");
        }
      },
      inFull ? 1_800_000 : 300_000,
    );
  }
});
