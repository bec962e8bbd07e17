// From nothing to a network in three commands: `agent setup` on one Debian machine that systemd has booted, `agent up KEY`
// on two others, and what comes after: a second run, a reboot, an update of settings, uninstalling. The tests share the
// machines and depend on their order.

import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { buildAgent } from "../support/agent.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const names = ["control", "web", "db"] as const;
type Name = (typeof names)[number];
const setup = "agent setup --yes --public-name control.example.org --email ada@example.org --org-slug acme";
const Setup = v.object({
  url: v.string(),
  ca_fingerprint: v.string(),
  lighthouse: v.nullable(v.object({ ip_address: v.string(), port: v.object({ reachable: v.null() }) })),
  join_keys: v.array(v.string()),
});
const settings = "/etc/overlay-agent/control-plane.toml";
const unit = "/etc/systemd/system/overlay-agent-control.service";

describeMachine("day one", () => {
  const directory = temporaryDirectory();
  const machines = new Map<Name, Machine>();
  let lan: Lan;
  let keys: string[] = [];
  const on = (name: Name): Machine => {
    const machine = machines.get(name);
    if (machine === undefined) throw new Error(`There is no machine ${name}`);
    return machine;
  };
  const file = (path: string) => join(on("control").root, path);

  beforeAll(async () => {
    const place = join(directory.path, "usr/local/bin/agent");
    mkdirSync(dirname(place), { recursive: true });
    copyFileSync(buildAgent(), place);
    lan = makeLan(names);
    for (const name of names) machines.set(name, makeMachine(lan.host(name).namespace, directory.path));
    await Promise.all(
      [...machines].map(async ([name, machine]) => {
        await machine.boot();
        appendFileSync(
          join(machine.root, "etc/hosts"),
          `${lan.host("control").address} control.example.org\n`,
        );
        await machine.must(`hostname ${name}`);
      }),
    );
  }, 300_000);

  afterAll(async () => {
    for (const machine of machines.values()) await machine[Symbol.asyncDispose]();
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  test("setup refuses what it cannot carry out, before it changes anything", async () => {
    for (const [line, sentence] of [
      ["agent setup --yes", "Missing --public-name HOST"],
      ["agent setup --yes --public-name 'not a name' --email ada@example.org", "--public-name must be"],
      ["agent setup --yes --public-name control.example.org --email nobody", "--email"],
      [`${setup} --tls files`, "--tls-cert FILE"],
      [`${setup} --network 10.77.0.1/16`, "--network must be like"],
    ] as const) {
      const { status, stderr } = await on("control").run(line);
      expect([status, stderr]).toEqual([2, expect.stringContaining(sentence)]);
    }
    expect(existsSync(file(settings))).toBe(false);
  }, 60_000);

  test("a plan names the files, the user and the units, and changes nothing", async () => {
    const plan = await on("control").must(`${setup} --dry-run`);
    for (const part of [
      "useradd --system",
      `${settings} (0644) created`,
      `${unit} (0644) created`,
      "enable --now overlay-agent-control.service",
      "/var/lib/overlay-agent/server/control.db",
      "POST https://control.example.org/api/org/acme/nodes/register/",
    ])
      expect(plan).toContain(part);
    expect(existsSync(file(settings))).toBe(false);
    expect(existsSync(file(unit))).toBe(false);
  }, 60_000);

  test("three commands make a network", async () => {
    const begin = performance.now();
    const { stdout, stderr, status } = await on("control").run(`${setup} --json`, 120_000);
    expect({ status, stderr }).toMatchObject({ status: 0 });
    const made = v.parse(v.pipe(v.string(), v.parseJson(), Setup), stdout);
    expect(made.lighthouse?.ip_address).toBe("10.77.0.1");
    expect(made.join_keys.length).toBe(2);
    keys = made.join_keys;
    await on("web").must(`agent up ${keys[0]}`);
    await on("db").must(`agent up ${keys[1]}`);
    await on("web").until("ping -c 1 -W 1 10.77.0.3", 20_000);
    const seconds = (performance.now() - begin) / 1000;
    process.stdout.write(`three commands, to the first ping: ${seconds.toFixed(1)} s (bar 60)\n`);
  }, 180_000);

  test("the service has its own user, and is hardened", async () => {
    const control = on("control");
    const owner = await control.must("stat -c %U /proc/$(systemctl show -P MainPID overlay-agent-control)");
    expect(owner).toBe("overlay-agent-control");
    expect(await control.must("journalctl -u overlay-agent-control")).not.toContain("/setup/#");
    const exposure = await control.must(
      "systemd-analyze security overlay-agent-control --no-pager | tail -n 1",
    );
    expect(Number(/level for \S+: ([\d.]+)/.exec(exposure)?.[1])).toBeLessThanOrEqual(2);
    expect(statSync(file("var/lib/overlay-agent/server")).mode & 0o777).toBe(0o700);
    expect(await control.must("systemctl show -P NotifyAccess -P Type overlay-agent-control")).toContain(
      "notify",
    );
  });

  test("setup again changes nothing: no restart, no new key, no new node", async () => {
    const control = on("control");
    const started = () =>
      control.must("systemctl show -P ExecMainStartTimestampMonotonic overlay-agent-control");
    const before = [await started(), readFileSync(file(settings), "utf8")];
    const { status, stdout, stderr } = await control.run("agent setup --yes --json");
    // Its own lighthouse is found at its name.
    expect([status, stderr]).toEqual([0, expect.not.stringContaining("look for")]);
    expect(v.parse(v.pipe(v.string(), v.parseJson(), Setup), stdout)).toMatchObject({
      lighthouse: null,
      join_keys: [],
    });
    expect([await started(), readFileSync(file(settings), "utf8")]).toEqual(before);
    expect(await control.must("agent setup --yes --dry-run")).not.toMatch(/created|changed|removed|restart/);
    expect((await control.must("agent admin node list acme --json")).match(/"ip_address":/g)?.length).toBe(3);
  }, 60_000);

  test("setup with another flag changes that line alone, and restarts the service", async () => {
    const control = on("control");
    writeFileSync(file(settings), `${readFileSync(file(settings), "utf8")}# mine\nevent-retention = "90d"\n`);
    await control.must("agent setup --yes --port 8443");
    const text = readFileSync(file(settings), "utf8");
    expect(text).toContain('# mine\nevent-retention = "90d"\n');
    expect(text).toContain('public-url = "https://control.example.org:8443"');
    await control.must("agent setup --yes --port 443");
    expect(readFileSync(file(settings), "utf8")).toContain('public-url = "https://control.example.org"\n');
  }, 60_000);

  test("setup again after a run that was killed before the restart lets the service use the settings", async () => {
    const control = on("control");
    const started = () => control.must("systemctl show -P MainPID overlay-agent-control");
    const listens = (port: number) => control.run(`bash -c '</dev/tcp/127.0.0.1/${port}'`);
    const before = await started();
    // Also a privileged port, so that the unit stays the same.
    const written = readFileSync(file(settings), "utf8").replaceAll(/:443"|\.org"/g, (part) =>
      part === ':443"' ? ':444"' : '.org:444"',
    );
    writeFileSync(file(settings), written);
    expect((await listens(444)).status).not.toBe(0);
    await control.must("agent setup --yes --port 444");
    expect(readFileSync(file(settings), "utf8")).toBe(written);
    expect((await listens(444)).status).toBe(0);
    const second = await started();
    expect(second).not.toBe(before);
    await control.must("agent setup --yes --port 444");
    expect(await started()).toBe(second);
    await control.must("agent setup --yes --port 443");
  }, 60_000);

  test("a reload hands over to a new process, which systemd watches from then on", async () => {
    const control = on("control");
    const main = () => control.must("systemctl show -P MainPID overlay-agent-control");
    const before = await main();
    await control.must("systemctl reload overlay-agent-control");
    await control.until(`test $(systemctl show -P MainPID overlay-agent-control) != ${before}`, 20_000);
    await control.until(`! test -d /proc/${before}`, 20_000);
    expect(
      await control.must(
        "systemctl is-active overlay-agent-control && systemctl show -P NRestarts overlay-agent-control",
      ),
    ).toBe("active\n0");
    await control.must("agent checkin");
    const second = await main();
    await control.must("cp /usr/local/bin/agent /usr/local/bin/agent.old && agent self-update --rollback");
    expect(await main()).not.toBe(second);
    await control.must("agent checkin");
    await control.must("systemctl restart overlay-agent-control && agent checkin");
  }, 60_000);

  test("all of it is back after a reboot", async () => {
    const control = on("control");
    await control.powerOff();
    await control.boot();
    await control.must("hostname control && systemctl is-active overlay-agent-control");
    await on("web").until("ping -c 1 -W 1 10.77.0.1", 30_000);
    await control.must("agent admin node list acme");
  }, 120_000);

  test("a data directory of serve is taken over, unless that server runs", async () => {
    const web = on("web");
    await web.must(
      "agent admin user create bob@example.org --password-file - <<-EOF\n\tcorrect horse battery\n\tEOF",
    );
    await web.must("agent admin org create old --network 10.99.0.0/16");
    // As a control plane leaves it that moved here, and whose lighthouse stayed.
    const hub = "--lighthouse --public-ip web.example.org";
    await web.must(`agent admin node create old far && agent admin node update old far ${hub}`);
    await web.must("agent serve >/root/serve.log 2>&1 & echo $! >/root/serve.pid; sleep 2");
    const line = "agent setup --yes --public-name web.example.org --port 8420 --no-lighthouse --machines 1";
    const { status, stderr } = await web.run(line);
    expect([status, stderr]).toEqual([1, expect.stringContaining("Another `agent serve` uses")]);
    await web.must(
      "kill $(cat /root/serve.pid); while kill -0 $(cat /root/serve.pid) 2>/dev/null; do sleep 0.1; done",
    );
    const again = await web.run(`${line} --json`);
    expect([again.status, again.stdout]).toEqual([0, expect.stringContaining('"org_slug":"old"')]);
    expect(again.stderr).toContain(
      "Nodes of old look for far at web.example.org, the name of this control plane, and this machine is not far",
    );
    expect(again.stderr).toContain("agent admin node update old far --public-ip ADDRESS");
    expect(await web.must("stat -c %U /var/lib/overlay-agent/server/control.db")).toBe(
      "overlay-agent-control",
    );
    expect(await web.must("agent admin user list")).toContain("bob@example.org");
  }, 90_000);

  test("setup again while its service starts goes on, as after a run that was killed", async () => {
    const web = on("web");
    const directory = "/run/systemd/system/overlay-agent-control.service.d";
    // The server has its data and its port, and its unit still starts.
    await web.must(
      `mkdir -p ${directory}; printf '[Service]\\nExecStartPost=/bin/sleep 10\\n' >${directory}/slow.conf; systemctl daemon-reload; systemctl restart --no-block overlay-agent-control; sleep 4`,
    );
    expect((await web.run("systemctl is-active overlay-agent-control")).stdout).toContain("activating");
    const line = "agent setup --yes --public-name web.example.org --port 8420 --no-lighthouse --machines 0";
    await web.must(line);
    await web.must(`rm -r ${directory}; systemctl daemon-reload; systemctl is-active overlay-agent-control`);
  }, 90_000);

  test("setup asks on a terminal for what no flag says, and never shows the password", async () => {
    const password = "correct horse battery";
    // Typed as fast as pasted text, the last answer empty: the default.
    const typed = ["db.example.org", "eve@example.org", password, password, "pasted", ""].join("\\r");
    const line = "agent setup --no-lighthouse --machines 1 --port 8421";
    const shown = await on("db").must(
      `(sleep 1; printf '${typed}\\r'; sleep 12) | script -qec '${line}' /dev/null`,
    );
    expect(shown).toContain("https://db.example.org:8421");
    expect(shown).not.toContain(password);
    expect(await on("db").must("agent admin user list --json")).toContain("eve@example.org");
    expect(await on("db").must("agent admin org list --json")).toContain('"slug":"pasted"');
  }, 60_000);

  test("uninstalling keeps settings and data, also with --purge", async () => {
    const script = readFileSync(join(import.meta.dir, "../../install"), "utf8");
    writeFileSync(file("root/install"), script);
    const { stderr } = await on("control").run("sh /root/install --uninstall --purge", 60_000);
    expect(existsSync(file(settings))).toBe(true);
    expect(existsSync(file("var/lib/overlay-agent/server/control.db"))).toBe(true);
    expect(stderr).toContain("It cannot start again without");
  }, 90_000);
});
