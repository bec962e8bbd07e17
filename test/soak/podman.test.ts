// Names in containers of Podman, on a Debian that systemd has booted: with the network of the machine, and with one of their
// own; with systemd-resolved, and with /etc/hosts.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { debianTree } from "../support/debian-tree.ts";
import { makeSite } from "../support/machine-node.ts";
import { startNameServer } from "../support/name-server.ts";
import { describeMachine, machinePackages } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const packages = [
  "systemd-resolved",
  "libnss-resolve",
  "podman",
  "crun",
  "netavark",
  "aardvark-dns",
  "iptables",
  "ca-certificates",
];
const name = "vm.acme.internal";
/** The root of the machine in a container. What is switched off here, a machine within a machine does not permit. */
const inContainer = (network: string) =>
  `systemd-run --quiet --pipe --wait --collect --property=Delegate=yes podman --storage-driver=vfs --cgroup-manager=cgroupfs \
    run --cgroups=disabled --security-opt seccomp=unconfined --rm --network=${network} --rootfs /:O \
    /usr/bin/getent ahostsv4 ${name} 2>/dev/null || true`;

describeMachine("containers of Podman", () => {
  test("find names with the machine's network; with their own, only those of /etc/hosts", async () => {
    using directory = temporaryDirectory();
    const answers = join(directory.path, "names.json");
    writeFileSync(answers, "{}");
    await using site = await makeSite(["vm", "dns"], {
      base: debianTree("podman", [...machinePackages, ...packages]),
      async prepare(root) {
        for (const each of ["etc/systemd/resolved.conf.d", "etc/containers"])
          mkdirSync(join(root, each), { recursive: true });
        writeFileSync(join(root, "etc/hosts"), "127.0.0.1 localhost\n");
        writeFileSync(join(root, "etc/containers/containers.conf"), "[containers]\nkeyring=false\n");
        const own = `[Resolve]\nDNS=${dnsAddress}\nLLMNR=no\n`;
        writeFileSync(join(root, "etc/systemd/resolved.conf.d/test.conf"), own);
      },
    });
    const dns = site.host("dns");
    expect(dns.address).toBe(dnsAddress);
    await startNameServer(dns, answers);
    await using node = await site.boot("vm");
    const must = (line: string) => node.machine.must(line, 120_000);
    // A unit of the package has made files for another kind of storage.
    await must("rm -rf /var/lib/containers; mount -o remount,bind,rw /proc/sys");
    await node.register("server");
    await must("test -e /etc/overlay-agent/acme/hosts.json || agent check-auth --all");
    await must("agent names --on");
    await node.machine.until(`getent ahostsv4 ${name} | grep -q 10.77.0.2`, 15_000);
    expect(await must(inContainer("host"))).toContain("10.77.0.2");
    expect(await must(inContainer("bridge"))).toBe("");
    await must(`sed -i 's/resolve \\[!UNAVAIL=return\\]//' /etc/nsswitch.conf
      rm /etc/resolv.conf && echo 'nameserver ${dns.address}' >/etc/resolv.conf`);
    await node.machine.until(`grep -q ${name} /etc/hosts`, 15_000);
    for (const network of ["host", "bridge"]) expect(await must(inContainer(network))).toContain("10.77.0.2");
  }, 900_000);
});

/** Of the last host of the site. */
const dnsAddress = "192.0.2.4";
