// Which programs find names, on a Debian that systemd has booted: each is tried with systemd-resolved and with /etc/hosts, also
// one with another C library, and programs in containers.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { installMissing, runSync } from "../support/debian.ts";
import { debianTree } from "../support/debian-tree.ts";
import { makeSite, type MachineNode, type Site } from "../support/machine-node.ts";
import { startNameServer } from "../support/name-server.ts";
import { describeMachine, machinePackages } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const packages =
  "systemd-resolved libnss-resolve systemd-container openssh-client postgresql-client default-jre-headless".split(
    " ",
  );
const musl = `#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int count, char **words) {
  struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
  if (count < 2 || getaddrinfo(words[1], NULL, &hints, &found)) return 1;
  puts(inet_ntoa(((struct sockaddr_in *)found->ai_addr)->sin_addr));
}
`;

/** How a program that finds the name of its own machine says that nothing listens there; and what it says without the name. */
const programs: Record<string, (name: string) => { line: string; finds: string }> = {
  getent: (name) => ({ line: `getent ahostsv4 ${name}`, finds: "10.77.0.2" }),
  ping: (name) => ({ line: `ping -c1 -W2 ${name}`, finds: "10.77.0.2" }),
  curl: (name) => ({ line: `curl -sS --max-time 5 http://${name}:9/`, finds: "Failed to connect" }),
  ssh: (name) => ({ line: `ssh -oBatchMode=yes -oConnectTimeout=5 -p9 ${name}`, finds: "refused" }),
  psql: (name) => ({ line: `PGCONNECT_TIMEOUT=5 psql -h ${name} -p9 -U x x`, finds: "refused" }),
  java: (name) => ({ line: `keytool -printcrl -file http://${name}:9/`, finds: "refused" }),
  musl: (name) => ({ line: `/usr/local/bin/musl-lookup ${name}`, finds: "10.77.0.2" }),
};
/** The root of the machine in another mount namespace, with its own /etc/hosts: a container with the host's resolver. */
const container = (line: string) => `unshare --mount --pid --fork sh -c '
  echo 127.0.0.1 localhost >/run/container.hosts && mount --bind /run/container.hosts /etc/hosts && ${line}'`;
/** As a service, because a container needs a control group of its own. */
const nspawn = (resolver: string, line: string) =>
  `systemd-run --quiet --pipe --wait --collect --property=Delegate=yes systemd-nspawn --quiet --register=no --keep-unit \
    --volatile=yes --directory=/ --resolv-conf=${resolver} --pipe ${line}`;

describeMachine("programs", () => {
  let site: Site;
  let node: MachineNode;
  const name = "vm.acme.internal";
  const directory = temporaryDirectory();
  const must = (line: string) => node.machine.must(line, 120_000);
  /** The programs that find the name. */
  const whoFinds = async (wrap = (line: string) => line) => {
    const found: string[] = [];
    for (const [program, make] of Object.entries(programs)) {
      const { line, finds } = make(name);
      if ((await must(`${wrap(line)} 2>&1 || true`)).includes(finds)) found.push(program);
    }
    return found;
  };

  const lookUpIn = (resolver: string) =>
    must(`${nspawn(resolver, `/usr/bin/getent ahostsv4 ${name}`)} 2>&1 || true`);

  beforeAll(async () => {
    expect(installMissing(["/usr/bin/musl-gcc"])).toBeUndefined();
    const names = join(directory.path, "names.json");
    writeFileSync(names, "{}");
    site = await makeSite(["vm", "dns"], {
      base: debianTree("programs", [...machinePackages, ...packages]),
      async prepare(root) {
        const bin = join(root, "usr/local/bin");
        mkdirSync(bin, { recursive: true });
        mkdirSync(join(root, "etc/systemd/resolved.conf.d"), { recursive: true });
        writeFileSync(join(root, "etc/hosts"), "127.0.0.1 localhost\n");
        writeFileSync(join(directory.path, "lookup.c"), musl);
        runSync(["musl-gcc", "-static", "-o", join(bin, "musl-lookup"), join(directory.path, "lookup.c")]);
        chmodSync(join(bin, "musl-lookup"), 0o755);
      },
    });
    await startNameServer(site.host("dns"), names);
    node = await site.boot("vm");
    const own = `[Resolve]\\nDNS=${site.host("dns").address}\\nLLMNR=no\\n`;
    await must(
      `printf '${own}' >/etc/systemd/resolved.conf.d/test.conf && systemctl restart systemd-resolved`,
    );
    await node.register("server");
    await must("test -e /etc/overlay-agent/acme/hosts.json || agent check-auth --all");
  }, 400_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  });

  test("find no name while names are off", async () => {
    expect(await whoFinds()).toEqual([]);
  }, 120_000);

  test("find names through systemd-resolved, also in containers that have its resolv.conf", async () => {
    await must("agent names --on");
    await node.machine.until(`getent ahostsv4 ${name} | grep -q 10.77.0.2`, 15_000);
    expect(await whoFinds()).toEqual(Object.keys(programs));
    expect(await whoFinds(container)).toEqual(Object.keys(programs));
    expect(await lookUpIn("bind-stub")).toContain("10.77.0.2");
    expect(await lookUpIn("bind-stub --private-network")).not.toContain("10.77.0.2");
  }, 180_000);

  test("find names in /etc/hosts, except in containers with a file of their own", async () => {
    await must(`sed -i 's/resolve \\[!UNAVAIL=return\\]//' /etc/nsswitch.conf
      rm /etc/resolv.conf && echo 'nameserver ${site.host("dns").address}' >/etc/resolv.conf`);
    await node.machine.until(`grep -q ${name} /etc/hosts`, 15_000);
    expect(await whoFinds()).toEqual(Object.keys(programs));
    expect(await whoFinds(container)).toEqual([]);
    expect(await lookUpIn("copy-host")).not.toContain("10.77.0.2");
  }, 180_000);
});
