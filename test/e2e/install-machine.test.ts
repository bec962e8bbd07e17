// The install script on a Debian booted by its own systemd, in both modes: put there, upgraded while the overlay carries
// packets, taken away and put back, and in the end gone without a trace.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { hostTarget } from "../../build.ts";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const modes = ["desktop", "server"] as const;
const install = (machine: Machine, version: string, flags = "") =>
  machine.must(`sh /srv/${version}/install --release-url /srv/${version} ${flags} 2>&1`);
const versionOf = (machine: Machine) => machine.must("agent version --no-check | cut -d ' ' -f 2");
/** Every file of the system but what changes by itself, and the backups that groupadd and groupdel leave. */
const files = async (machine: Machine) => {
  const passed = ["/proc", "/sys", "/run", "/tmp", "/srv", "/var/log", "/var/tmp", "/var/lib/systemd"];
  const prune = passed.map((path) => `-path ${path}`).join(" -o ");
  const listed = await machine.must(`find / -xdev \\( ${prune} \\) -prune -o -print | sort`);
  return listed
    .split("\n")
    .filter((path) => !/^\/etc\/(g?shadow-|group-|passwd-|subgid-|\.pwd\.lock)$/.test(path));
};

/** An administrator's control plane, with a unit whose name begins like ours. */
const ownServer = `mkdir -p /var/lib/overlay-agent/server && echo data >/var/lib/overlay-agent/server/control.db &&
printf '[Service]\\nExecStart=/usr/bin/sleep infinity\\n' >/etc/systemd/system/overlay-agent-serve.service &&
systemctl daemon-reload && systemctl start overlay-agent-serve`;

describeMachine("install", () => {
  let site: Site;
  beforeAll(async () => {
    using work = temporaryDirectory();
    const key = releaseKey;
    site = await makeSite(modes, {
      async prepare(root) {
        for (const version of ["0.1.0", "0.2.0"]) {
          const executables = { [hostTarget()]: readFileSync(buildVersion(work.path, version)) };
          await makeRelease(join(root, "srv", version), { version, executables }, key);
        }
      },
    });
  }, 300_000);
  afterAll(() => site[Symbol.asyncDispose]());

  for (const mode of modes) {
    describe(`${mode} mode`, () => {
      let node: MachineNode;
      let before: string[];
      beforeAll(async () => {
        node = await site.boot(mode);
        await node.machine.must(`rm /usr/local/bin/agent && ${ownServer}`);
        before = await files(node.machine);
      });
      afterAll(() => node[Symbol.asyncDispose]());

      test("a plan changes nothing; fresh, and registered", async () => {
        const { machine } = node;
        expect(await install(machine, "0.1.0", "--dry-run")).toContain("would download");
        expect(await files(machine)).toEqual(before);
        await install(machine, "0.1.0");
        await node.register(mode);
        await machine.until(pingPeer, 30_000);
      }, 120_000);

      test("upgraded, what runs is the new one, and no packet is lost", async () => {
        const { machine } = node;
        const pinging = machine.must("ping -i 0.2 -c 40 10.77.0.1 | grep -o '[0-9]*% packet loss'");
        await install(machine, "0.2.0");
        expect(await versionOf(machine)).toBe("0.2.0");
        if (mode === "desktop") {
          await machine.until('agent status --json | grep -q \'"version":"0.2.0"\'', 30_000);
        }
        expect(await pinging).toBe("0% packet loss");
        expect(await machine.must("systemctl is-system-running")).toBe("running");
      }, 120_000);

      test("taken away, the organization is kept; put back, it goes on", async () => {
        const { machine } = node;
        await machine.must("sh /srv/0.2.0/install --uninstall");
        expect(
          await machine.must("ls /etc/systemd/system/*.wants /etc/systemd/system | grep overlay- || true"),
        ).toBe("overlay-agent-serve.service");
        await machine.must("systemctl is-active overlay-agent-serve");
        expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
        await install(machine, "0.2.0");
        await machine.must("agent install-systemd");
        await machine.until(pingPeer, 30_000);
      }, 120_000);

      test("purged, no trace is left", async () => {
        const { machine } = node;
        expect(await machine.must("sh /srv/0.2.0/install --uninstall --purge --dry-run 2>&1")).toContain(
          "would run",
        );
        await machine.must(pingPeer);
        await machine.must("sh /srv/0.2.0/install --uninstall --purge");
        expect(await files(machine)).toEqual(before);
        expect(await machine.must("grep -c overlay-agent /etc/group || true")).toBe("0");
        expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
        expect(await machine.must("systemctl list-units --all --plain --no-legend 'overlay-agent*'")).toMatch(
          /^overlay-agent-serve\.service +loaded active running [^\n]*$/,
        );
        expect(await machine.must("systemctl is-system-running")).toBe("running");
      }, 120_000);
    });
  }
});
