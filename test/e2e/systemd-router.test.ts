// Routers on Debian machines that systemd has booted, one in each mode: made ready by the unit beside the engine or by the
// daemon, and as the machine was before once the offer ends.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { runSync } from "../support/debian.ts";
import { forgetKernel, makeSite, type Site } from "../support/machine-node.ts";
import { describeMachine } from "../support/nspawn.ts";

/** The machines have no nftables. */
async function prepare(root: string): Promise<void> {
  const listed = runSync(["ldd", "/usr/sbin/nft"]).matchAll(/ (\/\S+) \(/g);
  for (const path of ["/usr/sbin/nft", ...Array.from(listed, ([, library = ""]) => library)]) {
    const target = join(root, path.replace(/^\/lib/, "/usr/lib"));
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(path, target);
  }
}

describeMachine("a router under systemd", () => {
  let site: Site;
  beforeAll(async () => {
    site = await makeSite(["server", "desktop"], { prepare });
  }, 300_000);
  afterAll(() => site[Symbol.asyncDispose]());

  test.each(["server", "desktop"] as const)(
    "in %s mode: made ready, and undone",
    async (mode) => {
      await using node = await site.boot(mode);
      const { machine } = node;
      const network = mode === "server" ? "192.168.7.0/24" : "192.168.8.0/24";
      const connect = `ip link add lan0 type veth peer name lan1; ip addr add ${network.replace("0/24", "1/24")} dev lan0; ip link set lan0 up; ip link set lan1 up`;
      await machine.must(connect);
      const forwarding = "cat /proc/sys/net/ipv4/conf/lan0/forwarding";
      const before = await machine.must(`nft list ruleset; ${forwarding}`);
      await node.register(mode);
      await machine.must(`agent sync-config --org-slug acme --advertise ${network}+masquerade`);
      const id = Number(
        await machine.must(
          "grep -o 'node_id[^,]*' /etc/overlay-agent/acme/node-config.json | grep -o '[0-9]*'",
        ),
      );
      const made = await site.plane.api("POST", "/api/org/acme/routes/", { network, via: [id] });
      expect(made).toMatchObject({ routers: [{ approved: true }] });
      const isReady = `${forwarding} | grep -q 1 && nft list ruleset | grep masquerade`;
      await machine.until(isReady, 90_000);
      const unit = mode === "server" ? "overlay-agent-edge@acme" : "overlay-agent";
      expect(await machine.must(`systemctl is-active ${unit}.service`)).toContain("active");
      await machine.must(`systemd-analyze security --threshold=25 ${unit}.service`);
      // A kill changes nothing. After a power cut it is made ready again, also if the network comes later.
      await machine.must(`systemctl kill --signal=KILL ${unit}.service; ${isReady}`);
      await machine.cutPower();
      forgetKernel(site.host(mode));
      await machine.boot();
      await machine.must(connect);
      await machine.until(isReady, 90_000);
      const isAsBefore = `test "$(nft list ruleset; ${forwarding})" = "${before.trim()}"`;
      await machine.must("agent sync-config --org-slug acme --advertise none");
      await site.plane.api("DELETE", `/api/org/acme/routes/?network=${encodeURIComponent(network)}`);
      await machine.until(isAsBefore, 90_000);
      // Also when the program is uninstalled. In such a machine the shell may not write settings of the kernel.
      await machine.must(`agent sync-config --org-slug acme --advertise ${network}+masquerade`);
      await site.plane.api("POST", "/api/org/acme/routes/", { network, via: [id] });
      await machine.until(isReady, 90_000);
      await machine.must(
        `systemctl stop ${unit}.service; mount -o remount,rw /proc/sys; agent edge --undo; ${isAsBefore}`,
      );
    },
    300_000,
  );
});
