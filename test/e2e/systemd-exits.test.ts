// A strict exit on a Debian machine that systemd has booted: nothing leaves beside it after a power cut, before and without
// the agent, until root says off.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { runAgent } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { forgetKernel, makeSite, type Site } from "../support/machine-node.ts";
import { registerArguments } from "../support/overlay.ts";
import { engineNamed } from "../support/engines.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { describeMachine } from "../support/nspawn.ts";

const engine = engineNamed("1.12").nebula;

/** The machines have no nftables, and an old engine. */
async function prepare(root: string): Promise<void> {
  mkdirSync(join(root, "usr/bin"), { recursive: true });
  copyFileSync(engine, join(root, "usr/bin/nebula"));
  const listed = runSync(["ldd", "/usr/sbin/nft"]).matchAll(/ (\/\S+) \(/g);
  for (const path of ["/usr/sbin/nft", ...Array.from(listed, ([, library = ""]) => library)]) {
    const target = join(root, path.replace(/^\/lib/, "/usr/lib"));
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(path, target);
  }
}

describeMachine("a strict exit under systemd", () => {
  let site: Site;
  let other: string;
  beforeAll(async () => {
    site = await makeSite(["desktop", "server", "other"], { prepare });
    other = site.host("other").address;
  }, 300_000);
  afterAll(() => site[Symbol.asyncDispose]());

  test.each([
    ["desktop", "overlay-agent"],
    ["server", "overlay-agent-edge@acme overlay-agent@acme overlay-agent-auth.timer"],
  ] as const)(
    "in %s mode survives a power cut, also without the agent, and ends with a word of root",
    async (mode, units) => {
      await using node = await site.boot(mode);
      const { machine } = node;
      const gate = `gate-${mode}`;
      const ping = `ping -c 1 -W 1 ${other}`;
      const state = () => machine.must("ip rule; ip route show table all; nft list ruleset");
      await node.register(mode);
      await machine.until("agent status", 30_000);
      // An exit that never answers.
      using directory = temporaryDirectory();
      const words = registerArguments({ slug: site.plane.slug, plane: site.plane }, directory.path, gate, [
        "--allow-plain-http",
        "--overlay-binary",
        engine,
      ]);
      const inside = site.host("other").inside;
      const { stdout } = await runAgent([...words, "--json"], {
        input: await site.plane.makeToken(),
        inside,
      });
      const { node_id: id } = JSON.parse(stdout) as { node_id: number };
      await site.plane.api("PATCH", `/api/org/${site.plane.slug}/nodes/${id}/`, { exit_groups: ["any"] });
      await machine.until(`agent exit list | grep ${gate}`, 90_000);
      const before = await state();
      await machine.must(ping);
      await machine.run(`agent exit use ${gate} --strict --no-lan`);
      expect(await machine.must("systemd-analyze verify overlay-agent-exit.service 2>&1")).toBe("");
      await machine.must("systemd-analyze security --threshold=25 overlay-agent-exit.service");
      expect((await machine.run(ping)).status).not.toBe(0);
      // From the first units on, as fast as it can.
      await machine.must(`cat >/etc/systemd/system/early.service <<X
[Unit]
DefaultDependencies=no
After=network-pre.target
[Service]
ExecStart=/bin/bash -c 'while :; do echo x >/dev/udp/${other}/5000; sleep 0.01; done'
[Install]
WantedBy=sysinit.target
X
systemctl enable early; systemctl disable ${units}`);
      const seen = Bun.spawn(site.host("other").inside(["tcpdump", "-lnni", "eth0", "udp port 5000"]), {
        stdout: "pipe",
        stderr: "ignore",
      });
      await machine.cutPower();
      forgetKernel(site.host(mode));
      await machine.boot();
      expect(await machine.must("systemctl is-active overlay-agent-exit early")).toBe("active\nactive");
      expect((await machine.run(`systemctl is-active ${units}`)).stdout).not.toMatch(/^active/m);
      expect((await machine.run(ping)).status).not.toBe(0);
      await machine.must(`systemctl start ${units}`);
      await machine.until("agent status", 30_000);
      await Bun.sleep(2000);
      seen.kill("SIGINT");
      expect((await new Response(seen.stdout).text()).trim()).toBe("");
      await machine.must("systemctl stop early; agent exit use off");
      await machine.must(ping);
      const after = await state();
      expect(after.replaceAll(/\d+ms/g, "")).toBe(before.replaceAll(/\d+ms/g, ""));
      expect((await machine.run("systemctl cat overlay-agent-exit")).status).not.toBe(0);
    },
    180_000,
  );
});
