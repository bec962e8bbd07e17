// Names for programs on a Debian that systemd has booted: switched on, followed, and switched off, while the service is
// killed, the disk is full, and other programs edit /etc/hosts. No other line of the file is ever missing.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { paths } from "../support/paths.ts";
import { makeSite, type MachineNode, type Site } from "../support/machine-node.ts";
import { describeMachine } from "../support/nspawn.ts";

const unit = "overlay-agent-names";
const outside = "sed '/^# BEGIN overlay-agent/,/^# END overlay-agent/d' /etc/hosts";
const write = "printf '127.0.0.1\\tlocalhost\\n192.0.2.99 upstream.example\\n# no line feed' >/etc/hosts";
const hostsJson = "/etc/overlay-agent/acme/hosts.json";

describeMachine("names under systemd", () => {
  let site: Site;
  let node: MachineNode;
  let slug: string;
  let before: string;
  const must = (line: string) => node.machine.must(line);
  const finds = (name: string) => node.machine.until(`getent hosts ${name}.${slug}.internal`, 30_000);
  const hasNone = () => node.machine.until("! grep -q overlay-agent /etc/hosts", 30_000);

  beforeAll(async () => {
    site = await makeSite(["vm"]);
    node = await site.boot("vm");
    slug = site.plane.slug;
    await must(write);
    await node.register("server");
    await must(`test -e ${hostsJson.replace("acme", slug)} || agent check-auth --all`);
    before = await must("sha256sum </etc/hosts");
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
  });

  test("off until they are switched on, then programs find them", async () => {
    expect(await must(`getent hosts lighthouse.${slug}.internal || echo nothing`)).toBe("nothing");
    expect(await must("agent names 2>&1")).toContain("names --on");
    expect(await must("agent names --on --dry-run")).toContain(`${unit}.service`);
    expect(await must("sha256sum </etc/hosts")).toBe(before);
    await must("agent names --on");
    await finds("lighthouse");
    expect(await must(`systemd-analyze verify ${unit}.service 2>&1`)).toBe("");
    await must(`systemd-analyze security --threshold=25 ${unit}.service`);
    const shown = await must("agent names lighthouse");
    expect(shown).toContain("10.77.0.1");
    expect(shown).toContain("/etc/hosts, the block of overlay-agent");
    expect(await must("agent status")).toContain(
      "Programs find names in /etc/hosts: programs of this machine do not ask",
    );
    expect(await must("agent doctor | grep ' names '")).toContain(`lighthouse.${slug}.internal is found`);
  }, 60_000);

  test("another domain is in the file only while root allows it", async () => {
    const line = `grep -q '^10.77.0.1 lighthouse.${slug}.internal lighthouse.corp.example$' /etc/hosts`;
    await site.plane.api("PATCH", paths.organization(slug), { name_suffix: "corp.example" });
    // What the timer does within a minute.
    await must("agent check-auth --all");
    await node.machine.until("agent status | grep 'do not end in .corp.example'", 30_000);
    expect(await must(`${line} || echo nothing`)).toBe("nothing");
    await must("agent names allow corp.example");
    await node.machine.until(`${line} && getent hosts lighthouse.corp.example`, 30_000);
    await must("agent names disallow corp.example");
    await node.machine.until(`! grep -q corp.example /etc/hosts`, 30_000);
    await must("agent names allow corp.example");
    await node.machine.until(line, 30_000);
  }, 180_000);

  test("a program that replaces or appends to the file keeps its lines, and names come back", async () => {
    await must("echo '192.0.2.7 appended.example' >>/etc/hosts");
    await must("sed -i '/BEGIN overlay/,/END overlay/d' /etc/hosts");
    await finds("lighthouse");
    expect(await must(outside)).toContain("192.0.2.7 appended.example");
    await must("sed -i '/appended/d' /etc/hosts");
  }, 30_000);

  test("killed at 15 moments, while lines are appended: no line is missing at any time", async () => {
    const done = await must(`
      systemctl start ${unit}
      (while [ ! -e /tmp/over ]; do getent hosts upstream.example >/dev/null || echo failed; done) >/tmp/failures &
      for i in $(seq 15); do
        echo "192.0.2.8 line$i.example" >>/etc/hosts
        systemctl kill --signal=SIGKILL ${unit} 2>/dev/null || true
        sleep 0.$((i % 7 + 1))
      done
      touch /tmp/over; wait; cat /tmp/failures; grep -c '^192.0.2.8 line' /etc/hosts`);
    expect(done).toBe("15");
    await finds("lighthouse");
    await must("sed -i '/^192.0.2.8 /d' /etc/hosts");
  }, 90_000);

  test("a full disk and a mount point change nothing; with space, names are written", async () => {
    await node.machine.until(`systemctl is-active ${unit}`, 30_000);
    await must(`systemctl stop ${unit}`);
    await hasNone();
    // In a mount namespace of its own, /etc is a file system with one free block, or none.
    const inSmall = (line: string) =>
      must(`unshare --mount sh -ec '
        cp -a /etc/overlay-agent /tmp/root$$ && mkdir -p /tmp/small && mount -t tmpfs -o size=8k none /tmp/small
        cp -a /etc/hosts /tmp/small/hosts && head -c 4096 /dev/zero >/tmp/small/fill
        mount --bind /tmp/small /etc && former=$(sha256sum </etc/hosts)
        keep() { timeout 3 agent names --run --config-root /tmp/root$$ 2>&1 || true; }
        ${line}'`);
    const full = await inSmall(`keep; [ "$(sha256sum </etc/hosts)" = "$former" ]; ls -A /etc`);
    expect(full).toContain("disk");
    expect(full).toEndWith("fill\nhosts");
    expect(await inSmall("rm /etc/fill; keep; cat /etc/hosts")).toContain(` lighthouse.${slug}.internal`);
    const mounted = await inSmall(
      `rm /etc/fill; mount --bind /etc/hosts /etc/hosts; keep; [ "$(sha256sum </etc/hosts)" = "$former" ]; ls -A /etc`,
    );
    expect(mounted).toContain("it is a mount point");
    expect(mounted).toEndWith("hosts");
    await must(`systemctl start ${unit}`);
    await finds("lighthouse");
  }, 60_000);

  test("switched off, the file is as it was, byte for byte, and nothing is left", async () => {
    await must(`${write} && touch -d '-1 min' /etc/hosts`);
    await finds("lighthouse");
    await must("agent names --off");
    expect(await must("sha256sum </etc/hosts")).toBe(before);
    expect(await must(`ls -A /etc /etc/systemd/system | grep -e '^.hosts' -e '${unit}' || true`)).toBe("");
    await must("agent names --on");
    await finds("lighthouse");
    const pid = `systemctl show --property=MainPID --value ${unit}`;
    const former = await must(pid);
    await must("cp /usr/local/bin/agent /usr/local/bin/new && mv /usr/local/bin/new /usr/local/bin/agent");
    await node.machine.until(`systemctl is-active ${unit} && [ "$(${pid})" != ${former} ]`, 30_000);
    await must("agent install-systemd --uninstall");
    await hasNone();
    expect(await must(`ls /etc/systemd/system | grep '${unit}' || true`)).toBe("");
    expect(await must("sha256sum </etc/hosts")).toBe(before);
  }, 60_000);
});
