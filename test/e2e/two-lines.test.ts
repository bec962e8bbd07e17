// Two lines join a machine: on a bare Debian with nothing but curl, the lines that `agent setup` printed, with the control
// plane's own CA. The control plane came by script, then by package.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { makePackages } from "../../packaging/packages.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const setup = "agent setup --yes --public-name control.example.org --email ada@example.org --org-slug acme";
const Key = v.pipe(v.string(), v.parseJson(), v.object({ join_key: v.string() }));
const kept = "/lib/overlay-agent/release";

describeMachine("two lines", () => {
  const directory = temporaryDirectory();
  const machines = new Map<string, Machine>();
  let lan: Lan;
  const on = (name: string): Machine => {
    const machine = machines.get(name);
    if (machine === undefined) throw new Error(`There is no machine ${name}`);
    return machine;
  };

  beforeAll(async () => {
    const place = join(directory.path, "srv");
    mkdirSync(place);
    const executable = buildVersion(directory.path, "0.2.0");
    const release = { version: "0.2.0", executables: { [hostTarget()]: readFileSync(executable) } };
    await makeRelease(join(place, "release"), { ...release, releaseUrl: "/srv/release" }, releaseKey);
    const edition = { version: "0.2.0", timeS: 1_790_000_000, fast: true, releaseUrl: "/srv/release" };
    await makePackages(place, executable, hostTarget(), edition);
    lan = makeLan(["control", "web", "db"]);
    for (const name of ["control", "web", "db"]) {
      // Only the control plane has the release.
      const layer = name === "control" ? join(directory.path, "layer") : undefined;
      if (layer !== undefined) {
        mkdirSync(layer);
        Bun.spawnSync(["cp", "-r", place, layer]);
      }
      const machine = makeMachine(lan.host(name).namespace, layer);
      machines.set(name, machine);
      await machine.boot();
      appendFileSync(join(machine.root, "etc/hosts"), `${lan.host("control").address} control.example.org\n`);
      await machine.must(`hostname ${name}`);
    }
  }, 300_000);
  afterAll(async () => {
    for (const machine of machines.values()) await machine[Symbol.asyncDispose]();
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  test("setup prints them, and they join a machine that has only curl", async () => {
    await on("control").must("sh /srv/release/install");
    const said = await on("control").must(setup, 180_000);
    const lines = said.split("\n").map((line) => line.trim());
    const install = lines.find((line) => line.includes("/install")) ?? "";
    const up = lines.find((line) => line.startsWith("agent up ")) ?? "";
    expect(install).toContain("https://control.example.org/install");
    expect(said).toContain("It needs curl and ca-certificates");
    const web = on("web");
    expect((await web.run("agent version")).status).not.toBe(0);
    const begin = performance.now();
    await web.must(`export PATH=$PATH:/usr/local/bin\n${install}\n${up}`, 120_000);
    const seconds = (performance.now() - begin) / 1000;
    await web.until("ping -c 1 -W 1 10.77.0.1", 20_000);
    const size = await on("control").must(`stat -c %s /usr/local${kept}/*.tar.*`);
    process.stdout.write(
      `two lines, to a joined node: ${seconds.toFixed(1)} s, ${(Number(size) / 1e6).toFixed(1)} MB downloaded\n`,
    );
    expect(await web.must("cat /usr/local/lib/overlay-agent/releases.url")).toBe(
      "https://control.example.org/releases/",
    );
    // By the CA that its registration pinned.
    expect(await web.must("agent self-update --check")).toContain("is the latest release");
    // As docs/production.md says.
    const uninstall = (await Bun.file(join(import.meta.dir, "../../docs/production.md")).text())
      .split("### Uninstall")[1]
      ?.split("```")[1]
      ?.replace(/^sh\n/, "");
    await web.must(`set -e\n${uninstall ?? "false"}`);
    await web.must("! ls -d /etc/overlay-agent /var/lib/overlay-agent /usr/local/bin/agent 2>/dev/null");
  }, 240_000);

  test("a control plane of the package gets the release of its version from the publisher's address", async () => {
    const control = on("control");
    await control.must("sh /srv/release/install --uninstall");
    await control.must(`dpkg -i /srv/overlay-agent_0.2.0_*.deb 2>&1 && test ! -e /usr${kept}`);
    const again = `${setup} --machines 1`;
    const plan = await control.must(`${again} --dry-run`);
    expect(plan).toContain(`/usr${kept}/manifest.json (0644) created`);
    const said = await control.must(again, 180_000);
    expect(
      await control.must(
        `cd /usr${kept} && for each in *; do cmp $each /srv/release/$each || exit 1; done; ls`,
      ),
    ).toMatch(/^agent-0\.2\.0-\S+\nmanifest\.json\nmanifest\.json\.minisig$/);
    const install = said.split("\n").find((line) => line.includes("/install")) ?? "";
    const { join_key } = v.parse(
      Key,
      await control.must("agent admin token create acme --expires 1h --json"),
    );
    await on("db").must(`${install}\nagent up ${join_key}`, 120_000);
    await on("db").until("ping -c 1 -W 1 10.77.0.1", 20_000);
    // Nothing to do the second time.
    expect(await control.must(`${again} --dry-run`)).not.toContain(kept);
    await control.must("dpkg -r overlay-agent 2>&1");
    expect(await control.must("ls -d /usr/lib/overlay-agent 2>&1 || true")).toContain("No such file");
  }, 300_000);
});
