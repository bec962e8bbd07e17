// The packages: .deb on Debian machines booted by their own systemd, installed, upgraded while the overlay carries packets
// and the control plane answers, removed and purged; .rpm into a root.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { makePackages } from "../../packaging/packages.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { makeSite, pingPeer, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey, standIn } from "../support/releases.ts";
import { startFlood } from "../support/request-flood.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const modes = ["desktop", "server"] as const;
const names = ["control", "web", "db"] as const;
const setup = "agent setup --yes --public-name control.example.org --email ada@example.org --org-slug acme";
const Setup = v.pipe(v.string(), v.parseJson(), v.object({ join_keys: v.array(v.string()) }));
const mainProcess = "systemctl show -P MainPID overlay-agent-control";
const pingDb = "ping -c 1 -W 1 10.77.0.3";
const timeS = 1_790_000_000;
const deb = (version: string) =>
  `/srv/overlay-agent_${version}_${process.arch === "x64" ? "amd64" : "arm64"}.deb`;
const install = (machine: Machine, version: string) => machine.must(`dpkg -i ${deb(version)} 2>&1`);
const units = (machine: Machine) =>
  machine.must(
    "cd /etc/systemd/system && ls -d *.wants/overlay-agent* overlay-agent* 2>/dev/null | sort || true",
  );

/** The tunnel carries packets, and what brings revocations runs. */
async function goesOn(machine: Machine, mode: (typeof modes)[number]): Promise<void> {
  await machine.until(pingPeer, 30_000);
  const unit = mode === "desktop" ? "overlay-agent.service" : "overlay-agent-auth.timer";
  // The daemon may start anew while its engine goes on.
  await machine.until(`systemctl is-active ${unit}`, 30_000);
  expect(await machine.must(`systemctl is-enabled ${unit}`)).toBe("enabled");
}

/** An administrator's control plane, with its data. */
const ownServer =
  "mkdir -p /var/lib/overlay-agent/server && echo data >/var/lib/overlay-agent/server/control.db";

describeMachine("packages", () => {
  const work = temporaryDirectory();
  let site: Site;
  beforeAll(async () => {
    const missing = installMissing(["/usr/bin/lintian", "/usr/bin/rpm", "/usr/bin/man"]);
    if (missing !== undefined) throw new Error(missing);
    site = await makeSite([...modes, ...names, "client"], {
      async prepare(root) {
        mkdirSync(join(root, "srv"), { recursive: true });
        for (const version of ["0.1.0", "0.2.0"]) {
          const executable = buildVersion(work.path, version);
          // Compressed as for a release only in long runs: it takes longer than the tests of the packages.
          const edition = { version, timeS, fast: !inFull };
          await makePackages(join(root, "srv"), executable, hostTarget(), edition);
          runSync(["sh", "-c", `cp ${root}/srv/*${version}* ${work.path}/`]);
        }
        const executables = { [hostTarget()]: readFileSync(buildVersion(work.path, "0.2.0")) };
        await makeRelease(join(root, "srv/release"), { version: "0.2.0", executables }, releaseKey);
        const bad = { [hostTarget()]: standIn("0.3.0", "exit 1") };
        await makeRelease(
          join(root, "srv/bad"),
          { version: "0.3.0", sequence: 6, executables: bad },
          releaseKey,
        );
      },
    });
  }, 600_000);
  afterAll(async () => {
    await site[Symbol.asyncDispose]();
    work[Symbol.dispose]();
  });

  for (const mode of modes) {
    describe(`${mode} mode`, () => {
      let node: MachineNode;
      beforeAll(async () => {
        node = await site.boot(mode);
        await node.machine.must(`rm /usr/local/bin/agent && ${ownServer}`);
      });
      afterAll(() => node[Symbol.asyncDispose]());

      test("installed and registered, the units are those of the package", async () => {
        const { machine } = node;
        await install(machine, "0.1.0");
        expect(await machine.must("getent group overlay-agent | cut -d : -f 1")).toBe("overlay-agent");
        expect(await units(machine)).toBe("");
        await node.register(mode);
        await machine.until(pingPeer, 30_000);
        expect(await units(machine)).toBe(
          mode === "desktop"
            ? "multi-user.target.wants/overlay-agent.service"
            : "multi-user.target.wants/overlay-agent@acme.service\ntimers.target.wants/overlay-agent-auth.timer",
        );
        expect(
          await machine.must("systemd-analyze verify /usr/lib/systemd/system/overlay-agent* 2>&1 || true"),
        ).toBe("");
      }, 240_000);

      test("upgraded, the new version runs, and no packet is lost", async () => {
        const { machine } = node;
        const pinging = machine.must("ping -i 0.2 -c 60 10.77.0.1 | grep -o '[0-9]*% packet loss'");
        await install(machine, "0.2.0");
        expect(await machine.must("agent version --no-check | cut -d ' ' -f 2")).toBe("0.2.0");
        if (mode === "desktop") {
          await machine.until('agent status --json | grep -q \'"version":"0.2.0"\'', 30_000);
        }
        expect(await pinging).toBe("0% packet loss");
        expect(await machine.must("systemctl is-system-running")).toBe("running");
      }, 240_000);

      test("a packaged agent does not replace itself, and names the package manager", async () => {
        const { machine } = node;
        for (const flags of ["--release-url /srv", "--rollback"]) {
          const { status, stderr } = await machine.run(`agent self-update ${flags}`);
          expect(status).toBe(1);
          expect(stderr).toContain("No package repository of this machine has overlay-agent");
          expect(stderr).toContain("apt-get install ./overlay-agent_….deb");
        }
      }, 240_000);

      test("removed, nothing runs and the organization is kept; installed again, it goes on", async () => {
        const { machine } = node;
        await machine.must("dpkg -r overlay-agent 2>&1");
        expect(await machine.must("ip -o link | grep -c ov- || true")).toBe("0");
        expect(await machine.must("ls /etc/overlay-agent")).toBe("acme");
        await install(machine, "0.2.0");
        await goesOn(machine, mode);
      }, 240_000);

      test("package and script change places in every order, and the node goes on with its check-ins", async () => {
        const { machine } = node;
        const script = "sh /srv/release/install";
        const [byScript, byPackage] = [`${script} --release-url /srv/release`, `dpkg -i ${deb("0.2.0")}`];
        const [noScript, noPackage] = [`${script} --uninstall`, "dpkg -r overlay-agent"];
        for (const line of [
          // From the package to the script, and back: with the command of day one where the units were removed.
          `${noPackage} && ${byScript}`,
          byPackage,
          noScript,
          // The script beside the package, which is removed then.
          byScript,
          noPackage,
          // Without both, and the package again.
          `${noScript} && ${byPackage} && agent doctor --fix`,
          `${noPackage} && ${byPackage}`,
        ]) {
          const { status, stdout, stderr } = await machine.run(line, 60_000);
          expect({ line, status, said: status === 0 ? "" : stdout + stderr }).toEqual({
            line,
            status: 0,
            said: "",
          });
          await goesOn(machine, mode).catch((error: unknown) => {
            throw new Error(`after ${line}: ${String(error)}`);
          });
        }
      }, 240_000);

      test("a bad version of the script's executable is rolled back where the units are the package's", async () => {
        const { machine } = node;
        await machine.must("sh /srv/release/install --release-url /srv/release && agent install-systemd");
        const { status, stdout } = await machine.run(
          "agent self-update --json --release-url /srv/bad",
          180_000,
        );
        expect({ status, stdout }).toEqual({
          status: 1,
          stdout: expect.stringContaining("Version 0.3.0 did not work here"),
        });
        expect(await machine.must("agent version --no-check")).toContain("agent 0.2.0");
        // The package's program takes the services over, and no packet is lost.
        await goesOn(machine, mode);
        const pinging = machine.must("ping -i 0.2 -c 60 10.77.0.1 | grep -o '[0-9]*% packet loss'");
        await machine.must("sh /srv/release/install --uninstall");
        await goesOn(machine, mode);
        expect(await pinging).toBe("0% packet loss");
        const program = await machine.must(
          "grep -h ^ExecStart= /etc/systemd/system/overlay-agent*.service || true",
        );
        expect(program).not.toContain("/usr/local/bin/agent");
      }, 240_000);

      test("purged, no trace is left but the data of a control plane", async () => {
        const { machine } = node;
        const said = await machine.must("dpkg -P overlay-agent 2>&1");
        expect(said).not.toContain("kept: /etc");
        expect(await units(machine)).toBe("");
        expect(
          await machine.must(
            "find /etc /usr /var/lib /run -xdev -name '*overlay-agent*' -not -path '/usr/share/*' | sort",
          ),
        ).toBe("/var/lib/overlay-agent");
        expect(await machine.must("find /var/lib/overlay-agent -type f")).toBe(
          "/var/lib/overlay-agent/server/control.db",
        );
        expect(await machine.must("grep -c overlay-agent /etc/group || true")).toBe("0");
        expect(await machine.must("systemctl is-system-running")).toBe("running");
      }, 240_000);
    });
  }

  /** Three bare machines with the package. A machine of nspawn cannot set the kernel's setting: /proc/sys is read-only. */
  async function bootBare(): Promise<Machine[]> {
    site.host("control").run(["/bin/sh", "-c", "echo 1 >/proc/sys/net/ipv4/tcp_migrate_req"]);
    const booted = await Promise.all(names.map(async (name) => (await site.boot(name)).machine));
    for (const [at, each] of booted.entries()) {
      const address = `${site.host("control").address} control.example.org\n`;
      appendFileSync(join(each.root, "etc/hosts"), address);
      await each.must(`rm /usr/local/bin/agent; echo ${names[at]} >/etc/hostname && hostname ${names[at]}`);
      await install(each, "0.1.0");
    }
    return booted;
  }

  /** From the first command to the first ping between the two machines that joined, s. */
  async function threeCommands([control, web, db]: readonly Machine[]): Promise<number> {
    if (control === undefined || web === undefined || db === undefined) throw new Error("No machines");
    const begin = performance.now();
    const { join_keys: keys } = v.parse(Setup, await control.must(`${setup} --json`, 120_000));
    await web.must(`agent up ${keys[0]}`);
    await db.must(`agent up ${keys[1]}`);
    await web.until(pingDb, 20_000);
    return (performance.now() - begin) / 1000;
  }

  // Once it is made below, for the other tests.
  if (inFull)
    test("three commands make a network, ten times on new machines", async () => {
      const seconds: number[] = [];
      while (seconds.length < 10) {
        const machines = await bootBare();
        try {
          seconds.push(await threeCommands(machines));
        } finally {
          for (const each of machines) await each[Symbol.asyncDispose]();
        }
      }
      const each = seconds.map((one) => one.toFixed(1)).join(", ");
      process.stdout.write(`package, three commands to the first ping: ${each} s (bar 60)\n`);
      expect(Math.max(...seconds)).toBeLessThan(60);
    }, 1_800_000);

  describe("a network", () => {
    const machines: Machine[] = [];
    const machine = (at: number) => () => {
      const found = machines[at];
      if (found === undefined) throw new Error(`There is no machine ${names[at]}`);
      return found;
    };
    const [control, web] = [machine(0), machine(1)];
    const everywhere = (line: string) => Promise.all(machines.map((each) => each.must(line, 120_000)));

    beforeAll(async () => {
      machines.push(...(await bootBare()));
    }, 300_000);
    afterAll(async () => {
      for (const each of machines) await each[Symbol.asyncDispose]();
    });

    test("three commands make a network", async () => {
      const seconds = await threeCommands(machines);
      process.stdout.write(`package, three commands to the first ping: ${seconds.toFixed(1)} s (bar 60)\n`);
    }, 180_000);

    test("the control plane runs the unit of the package, with its kernel setting", async () => {
      expect(await control().must("realpath $(systemctl show -P FragmentPath overlay-agent-control)")).toBe(
        "/usr/lib/systemd/system/overlay-agent-control.service",
      );
      for (const path of [
        "systemd/system/overlay-agent-control.service",
        "sysctl.d/60-overlay-agent-control.conf",
      ])
        expect(existsSync(join(control().root, "etc", path))).toBe(false);
      expect(await control().must("cat /usr/lib/sysctl.d/60-overlay-agent.conf")).toContain(
        "net.ipv4.tcp_migrate_req = 1",
      );
    });

    test("upgraded everywhere, no ping is lost and no request fails", async () => {
      const before = await control().must(mainProcess);
      const flood = startFlood(site.host("client"), `https://${site.host("control").address}/readyz`);
      const pinging = web().must("ping -i 0.2 -c 100 10.77.0.3 | grep -o '[0-9]* received'", 60_000);
      for (const each of machines) await install(each, "0.2.0");
      await control().until(`test "$(${mainProcess})" != ${before}`, 60_000);
      await control().until(`! test -d /proc/${before}`, 60_000);
      const [received, { sent, failures }] = [await pinging, await flood.stop()];
      process.stdout.write(
        `upgrade by package: ${received} of 100 pings, ${failures.length} of ${sent} requests failed (bars 100, 0)\n`,
      );
      expect(sent).toBeGreaterThan(100);
      expect([received, failures]).toEqual(["100 received", []]);
      expect(await control().must(`readlink /proc/$(${mainProcess})/exe`)).toBe("/usr/bin/agent");
      expect(await control().must("systemctl show -P NRestarts overlay-agent-control")).toBe("0");
      expect(await everywhere("agent version --no-check | cut -d ' ' -f 2")).toEqual([
        "0.2.0",
        "0.2.0",
        "0.2.0",
      ]);
      await everywhere("agent checkin");
    }, 180_000);

    test("all machines rebooted, the network is back without a hand", async () => {
      const rounds = inFull ? 10 : 1;
      const took: number[] = [];
      for (let round = 0; round < rounds; round++) {
        await Promise.all(machines.map((each) => each.powerOff()));
        await Promise.all(machines.map((each) => each.boot()));
        took.push(await web().until(pingDb, 90_000));
        await everywhere("agent checkin");
      }
      process.stdout.write(
        `reboot of all: back ${took.length} of ${rounds}, ${Math.round(Math.max(...took))} ms after the boot at most\n`,
      );
    }, 900_000);
  });

  test("lintian finds nothing that has no reason, and each man page is well formed", () => {
    const file = join(work.path, deb("0.2.0").slice(5));
    // The first reads all words of the executable, and can only tell of what is not shown without a flag. The other one
    // starts four programs for each page.
    const without = ["binaries/spelling", ...(inFull ? [] : ["documentation/manual"])];
    const accepted = inFull ? [] : ["--suppress-tags", "uses-no-compression-for-data-tarball"];
    const parts = without.flatMap((part) => ["--dont-check-part", part]);
    const argv = ["lintian", "--profile", "debian", ...parts, ...accepted, file];
    const found = Bun.spawnSync(argv, { stderr: "ignore" });
    expect([found.exitCode, found.stdout.toString()]).toEqual([0, ""]);
    const root = join(work.path, "deb");
    runSync(["dpkg-deb", "-x", file, root]);
    const directory = join(root, "usr/share/man/man1");
    const pages = readdirSync(directory);
    expect(pages).toEqual(
      expect.arrayContaining(["agent.1.gz", "agent-serve.1.gz", "agent-admin-token-create.1.gz"]),
    );
    // Once for all: man starts six programs for each page.
    const sources = pages.map((page) => gunzipSync(readFileSync(join(directory, page))));
    const groff = ["groff", "-Kutf8", "-Tutf8", "-mandoc", "-wmac", "-rLL=100n", "-z"];
    const { stderr } = Bun.spawnSync(groff, { stdin: Buffer.concat(sources), stderr: "pipe" });
    expect(stderr.toString()).toBe("");
    const env = { PATH: process.env["PATH"] ?? "", LC_ALL: "C.UTF-8" };
    const man = Bun.spawnSync(["man", "--warnings", "-l", join(directory, "agent.1.gz")], {
      env,
      stderr: "pipe",
    });
    expect([man.exitCode, man.stderr.toString()]).toEqual([0, ""]);
  }, 300_000);

  test("the .rpm installs into a root, with the same executable, units and pages", () => {
    const root = join(work.path, "rpm");
    const [file = ""] = readdirSync(work.path).filter(
      (name) => name.endsWith(".rpm") && name.includes("0.2.0"),
    );
    // Fedora's own packages are not here: scripts and dependencies are looked at below.
    runSync(["rpm", "--root", root, "-i", "--nodeps", "--noscripts", join(work.path, file)]);
    expect(runSync([join(root, "usr/bin/agent"), "version", "--no-check"])).toStartWith("agent 0.2.0");
    expect(readFileSync(join(root, "usr/lib/systemd/system/overlay-agent.service"), "utf8")).toContain(
      "ExecStart=/usr/bin/agent --ipc-mode socket\n",
    );
    const listed = runSync(["rpm", "-qlp", join(work.path, file)]);
    for (const path of ["/usr/share/zsh/site-functions/_agent", "/usr/share/man/man1/agent.1.gz"])
      expect(listed).toContain(path);
    expect(listed).not.toContain("lintian");
    expect(runSync(["rpm", "-qp", "--scripts", join(work.path, file)])).toContain(
      "try-reload-or-restart overlay-agent-control.service",
    );
  }, 240_000);
});
