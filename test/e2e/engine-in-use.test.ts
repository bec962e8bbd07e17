// Which engine runs, starts next and is reported, on Debian machines that systemd has booted: first the package's 1.6.1,
// then engines that are installed, updated, replaced behind our back, pinned and chosen by an administrator. The tests of
// a mode share one machine and depend on their order.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { describeTogether } from "../support/engines.ts";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";

const unit = "overlay-agent@acme";
const auth = "overlay-agent-auth.service";
const Reported = v.object({
  overlay_version: v.nullable(v.string()),
  last_checkin_at: v.nullable(v.string()),
});

/** Passes the tests of an engine, but ends at once when it runs. */
const bad = `#!/bin/sh\n[ "$1" = -version ] && echo Version: 99.0.0 && exit 0\n[ "$1" = -test ] && exit 0\nexit 1\n`;

/** The version of the running program itself, whatever its file is by now. */
const running = (machine: Machine) =>
  machine.must(
    `for each in /proc/[1-9]*; do
    tr '\\0' '|' 2>/dev/null <$each/cmdline | grep -q '|-config|/etc/overlay-agent/acme/config.yml|$' && $each/exe -version
    done; true`,
  );
const program = (machine: Machine) =>
  machine.must(`systemctl show --property=ExecStart ${unit} | sed 's/.*path=\\([^ ]*\\).*/\\1/'`);
const dropIn = (machine: Machine, text: string) =>
  machine.must(
    `mkdir -p /etc/systemd/system/${unit}.service.d && printf '${text}' >/etc/systemd/system/${unit}.service.d/own.conf &&
    systemctl daemon-reload`,
  );

describeTogether(
  "the engine in use",
  ([older, newer]) => {
    if (older === undefined || newer === undefined) return;
    describeMachine("under systemd", () => {
      let site: Site;
      beforeAll(async () => {
        site = await makeSite(["server", "desktop"], {
          async prepare(root) {
            mkdirSync(join(root, "srv"));
            copyFileSync(older.nebula, join(root, "srv/older"));
            copyFileSync(newer.nebula, join(root, "srv/newer"));
            writeFileSync(join(root, "srv/bad"), bad, { mode: 0o755 });
          },
        });
      }, 300_000);
      afterAll(() => site[Symbol.asyncDispose]());

      const nodeId = (machine: Machine) =>
        machine.must(
          `grep -o '"node_id": *[0-9]*' /etc/overlay-agent/acme/node-config.json | grep -o '[0-9]*$'`,
        );
      const node = async (machine: Machine) =>
        v.parse(Reported, await site.plane.api("GET", `/api/org/acme/nodes/${await nodeId(machine)}/`));
      /** What the control plane knows after the next check-in, which `command` causes. `pause` ends the present ones. */
      const reportedBy = async (machine: Machine, command: string, pause = "true") => {
        // Times have whole seconds.
        await machine.must(`${pause}; sleep 1.1`);
        const before = (await node(machine)).last_checkin_at;
        await machine.must(command);
        for (let waited = 0; ; waited += 200) {
          if ((await node(machine)).last_checkin_at !== before) {
            // The time is known at once, the version is written a moment later.
            await Bun.sleep(500);
            return (await node(machine)).overlay_version;
          }
          if (waited > 30_000) throw new Error(`No check-in after ${command}`);
          await Bun.sleep(200);
        }
      };

      describe("server mode", () => {
        let vm: MachineNode;
        let machine: Machine;
        /** From the service, which has fewer rights than the engine. */
        const reported = () =>
          reportedBy(machine, `systemctl start --no-block ${auth}`, `systemctl stop ${auth}`);
        const reportedByRoot = () => reportedBy(machine, "agent checkin", `systemctl stop ${auth}`);
        beforeAll(async () => {
          vm = await site.boot("server");
          ({ machine } = vm);
          await vm.register("server");
          await machine.until(pingPeer, 30_000);
        }, 240_000);
        afterAll(() => vm[Symbol.asyncDispose]());

        test("the package's engine runs and is reported", async () => {
          expect([await running(machine), await program(machine)]).toEqual([
            "Version: 1.6.1",
            "/usr/bin/nebula",
          ]);
          expect(await reported()).toBe("1.6.1");
        }, 240_000);

        test("the timer's check restarts the engine for subnets, which it cannot reload, and not for a group", async () => {
          const pid = `systemctl show --property=MainPID --value ${unit}`;
          const path = `/api/org/acme/nodes/${await nodeId(machine)}/`;
          const changed = "journalctl -u overlay-agent@acme | grep -c 'Client cert refreshed' || true";
          const [before, count] = [await machine.must(pid), await machine.must(changed)];
          await site.plane.api("POST", "/api/org/acme/groups/", { name: "web" });
          await site.plane.api("PATCH", path, { groups: ["web"] });
          await machine.until(`test "$(${changed})" -gt ${count}`, 70_000);
          expect(await machine.must(pid)).toBe(before);
          await site.plane.api("PATCH", path, { subnets: ["10.99.1.0/24"] });
          await machine.until(`test "$(${pid})" != ${before}`, 70_000);
          await machine.until(pingPeer, 30_000);
          await site.plane.api("PATCH", path, { subnets: [] });
          await machine.until("agent sync-config | grep -q 'no change'", 30_000);
        }, 180_000);

        test("a first engine that does not run leaves no file, and the former one runs", async () => {
          const { status, stderr } = await machine.run("agent overlay update --file /srv/bad");
          expect(stderr).toContain("acme does not run with 99.0.0");
          expect(stderr).toContain("The previous engine is restored and running.");
          expect(status).toBe(1);
          await machine.must("test ! -e /usr/local/bin/overlay");
          expect(await program(machine)).toBe("/usr/bin/nebula");
          await machine.until(pingPeer, 30_000);
          expect(await running(machine)).toBe("Version: 1.6.1");
          expect(await reported()).toBe("1.6.1");
        }, 240_000);

        test("an installed engine is started next, but what runs is named and reported", async () => {
          const { status, stdout } = await machine.run("agent overlay install --file /srv/older");
          expect(stdout).toContain(`/usr/local/bin/overlay is now ${older.version} (was 1.6.1)`);
          expect(stdout).toContain(
            `acme still runs 1.6.1, not the installed ${older.version}. Run: agent restart acme`,
          );
          expect(status).toBe(0);
          expect([await running(machine), await program(machine)]).toEqual([
            "Version: 1.6.1",
            "/usr/local/bin/overlay",
          ]);
          expect(await reported()).toBe("1.6.1");
          expect((await machine.run("agent doctor")).stdout).toContain("acme still runs 1.6.1");
          // A systemd that does not answer says nothing about what runs: so nothing else is reported.
          const silent = "/srv/silent";
          await machine.must(`printf '#!/bin/sh\\nexit 1\\n' >${silent} && chmod +x ${silent}`);
          const command = `mount --bind ${silent} /usr/bin/systemctl; agent checkin; umount /usr/bin/systemctl`;
          expect(await reportedBy(machine, command, `systemctl stop ${auth}`)).toBe("1.6.1");
        }, 240_000);

        test("after a restart it runs, and only then is reported", async () => {
          await machine.must("agent restart acme");
          expect(await running(machine)).toBe(`Version: ${older.version}`);
          expect(await reported()).toBe(older.version);
          await machine.until(pingPeer, 30_000);
          const doctor = (await machine.run("agent doctor")).stdout;
          expect(doctor).toContain(`it runs /usr/local/bin/overlay ${older.version}`);
          expect(doctor).toContain("the service files are current");
        }, 240_000);

        test("an update restarts once with the new engine; a second one restarts nothing", async () => {
          await machine.must("agent overlay update --file /srv/newer");
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          expect(await reported()).toBe(newer.version);
          const pid = `systemctl show --property=MainPID --value ${unit}`;
          const before = await machine.must(pid);
          expect(await machine.must("agent overlay update --file /srv/newer")).toBe(
            `/usr/local/bin/overlay is already ${newer.version}`,
          );
          expect(await machine.must(pid)).toBe(before);
          await machine.until(pingPeer, 30_000);
        }, 240_000);

        test("after a downgrade the configuration fits the older engine, and a rollback ends it", async () => {
          const version = `--version ${older.version}`;
          await machine.must(`agent overlay install --file /srv/older ${version}`);
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          await machine.must("/srv/older -test -config /etc/overlay-agent/acme/config.yml");
          await machine.must(`agent overlay update --file /srv/older ${version}`);
          expect(await running(machine)).toBe(`Version: ${older.version}`);
          await machine.must("agent overlay update --rollback");
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          expect(await reported()).toBe(newer.version);
          await machine.until("! /srv/older -test -config /etc/overlay-agent/acme/config.yml", 20_000);
          await machine.must("agent overlay update --rollback");
          expect(await running(machine)).toBe(`Version: ${older.version}`);
          await machine.until(pingPeer, 30_000);
        }, 240_000);

        test("an engine replaced behind our back is reported when it runs, an older one before", async () => {
          const replace = (by: string) =>
            machine.must(`cp /srv/${by} /usr/local/bin/.x && mv /usr/local/bin/.x /usr/local/bin/overlay`);
          await replace("newer");
          expect([await reported(), await reportedByRoot()]).toEqual([older.version, older.version]);
          await machine.cutPower();
          await machine.boot();
          await machine.until(pingPeer, 30_000);
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          expect(await reported()).toBe(newer.version);
          await machine.until("agent sync-config | grep -q 'no change'", 20_000);
          await replace("older");
          // Both must accept the configuration, because the next start may come by itself.
          expect([await reported(), await reportedByRoot()]).toEqual([older.version, older.version]);
          await machine.must("agent sync-config && agent overlay update --file /srv/older");
          expect(await running(machine)).toBe(`Version: ${older.version}`);
          await machine.must("rm /usr/local/bin/overlay");
          expect(await reportedByRoot()).toBe(older.version);
          await machine.must("agent overlay install --file /srv/older && agent restart acme");
        }, 240_000);

        test("an administrator's own engine in a drop-in is kept, reported, and named by an update", async () => {
          await machine.must("mkdir -p /opt && cp /srv/newer /opt/nebula");
          const line = "/opt/nebula -config /etc/overlay-agent/acme/config.yml";
          await dropIn(machine, `[Service]\\nExecStart=\\nExecStart=${line}\\n`);
          await machine.must("agent restart acme");
          expect(await reported()).toBe(newer.version);
          const pid = `systemctl show --property=MainPID --value ${unit}`;
          const before = await machine.must(pid);
          const { status, stderr } = await machine.run("agent overlay update --file /srv/older");
          const what = `acme runs /opt/nebula (${newer.version}), not /usr/local/bin/overlay, because its unit says so`;
          expect(stderr).toContain(what);
          expect(stderr).toContain("systemctl cat overlay-agent@acme.service");
          expect(status).toBe(1);
          expect(await machine.must(pid)).toBe(before);
          expect((await machine.run("agent doctor")).stdout).toContain(what);
          await machine.must("agent stop acme");
          expect(await reported()).toBe(newer.version);
          await machine.must(`rm -r /etc/systemd/system/${unit}.service.d && systemctl daemon-reload`);
          expect(await reported()).toBe(older.version);
          await machine.until("agent sync-config && agent start acme", 20_000);
        }, 240_000);

        test("an edit of the unit file survives, also when the engine in it changes", async () => {
          const file = "/etc/systemd/system/overlay-agent@.service";
          await machine.must(
            `sed -i -e 's|^ExecStart=/usr/local/bin/overlay|ExecStart=/usr/bin/nebula|' -e 's/^RestartSec=5/RestartSec=7/' ${file} &&
            systemctl daemon-reload && agent restart acme`,
          );
          expect(await running(machine)).toBe("Version: 1.6.1");
          await machine.must("agent overlay update --file /srv/newer");
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          expect(await machine.must(`grep RestartSec= ${file}`)).toBe("RestartSec=7");
        }, 240_000);

        test("services that were installed for another engine keep it, and later commands mean it too", async () => {
          await machine.must(
            "cp /srv/newer /opt/pinned && agent install-systemd --overlay-binary /opt/pinned",
          );
          expect(await program(machine)).toBe("/opt/pinned");
          await machine.until(pingPeer, 30_000);
          expect(await machine.must("agent overlay check")).toBe(`/opt/pinned ${newer.version}`);
          expect(await machine.must("agent install-systemd")).toBe("Everything is up to date");
          expect(
            await machine.must(`agent overlay update --file /srv/older --version ${older.version}`),
          ).toBe(`/opt/pinned is now ${older.version} (was ${newer.version})`);
          expect(await running(machine)).toBe(`Version: ${older.version}`);
          expect(await reported()).toBe(older.version);
          const usual = "--overlay-binary /usr/local/bin/overlay";
          const { status, stderr } = await machine.run(`agent overlay update ${usual} --file /srv/newer`);
          expect(stderr).toContain(`acme runs /opt/pinned (${older.version}), not /usr/local/bin/overlay`);
          expect(status).toBe(1);
          await machine.must(`agent install-systemd ${usual}`);
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          expect(await machine.must("agent overlay check")).toBe(`/usr/local/bin/overlay ${newer.version}`);
        }, 240_000);
      });

      describe("desktop mode", () => {
        let vm: MachineNode;
        let machine: Machine;
        const reported = () =>
          reportedBy(machine, "systemctl restart overlay-agent && agent status >/dev/null");
        beforeAll(async () => {
          vm = await site.boot("desktop");
          ({ machine } = vm);
          await vm.register("desktop");
          await machine.until(pingPeer, 30_000);
        }, 240_000);
        afterAll(() => vm[Symbol.asyncDispose]());

        test("an engine that a former daemon started is reported until it is restarted", async () => {
          expect(await running(machine)).toBe("Version: 1.6.1");
          expect(await reported()).toBe("1.6.1");
          const { stdout } = await machine.run("agent overlay install --file /srv/older");
          expect(stdout).toContain("acme still runs 1.6.1");
          expect(await reported()).toBe("1.6.1");
          await machine.must("agent overlay update --file /srv/newer");
          expect(await running(machine)).toBe(`Version: ${newer.version}`);
          expect(await reported()).toBe(newer.version);
          await machine.must(`agent overlay update --file /srv/older --version ${older.version}`);
          expect(await running(machine)).toBe(`Version: ${older.version}`);
          expect(await reported()).toBe(older.version);
          await machine.must(
            "cp /srv/newer /usr/local/bin/.x && mv /usr/local/bin/.x /usr/local/bin/overlay",
          );
          expect(await reported()).toBe(older.version);
          expect((await machine.run("agent doctor")).stdout).toContain(`acme still runs ${older.version}`);
        }, 240_000);

        test("an update without a daemon names the engine that keeps running", async () => {
          await dropInDaemonAway(machine);
          const { status, stderr } = await machine.run("agent overlay update --file /srv/newer");
          expect(stderr).toContain(`acme still runs ${older.version}, not the installed ${newer.version}`);
          expect(status).toBe(1);
        }, 240_000);
      });
    });
  },
  ["1.10", "sid"],
);

/** The daemon stays away, and its engine runs on. */
function dropInDaemonAway(machine: Machine): Promise<string> {
  return machine.must(
    `mkdir -p /run/systemd/system/overlay-agent.service.d &&
    printf '[Service]\\nRestart=no\\n' >/run/systemd/system/overlay-agent.service.d/away.conf &&
    systemctl daemon-reload && systemctl kill --kill-who=main --signal=SIGKILL overlay-agent; sleep 1`,
  );
}
