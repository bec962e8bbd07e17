// The control socket of engine 1.12 inside of the units' sandboxes, on a Debian machine that systemd has booted: created,
// private, and used for changes, in server and desktop mode.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { engineNamed } from "../support/engines.ts";
import { makeSite, pingPeer, type Site } from "../support/machine-node.ts";
import { describeMachine } from "../support/nspawn.ts";

const socket = "/etc/overlay-agent/acme/run/ctl.sock";

describeMachine("control socket", () => {
  let site: Site;
  beforeAll(async () => {
    const prepare = async (root: string) => {
      const overlay = join(root, "usr/local/bin/overlay");
      mkdirSync(join(overlay, ".."), { recursive: true });
      copyFileSync(engineNamed("1.12").nebula, overlay);
      chmodSync(overlay, 0o755);
    };
    site = await makeSite(["server", "desktop"], { prepare });
  }, 300_000);
  afterAll(async () => {
    await site[Symbol.asyncDispose]();
  });

  for (const mode of ["server", "desktop"] as const) {
    test(`${mode} mode: the engine creates it, and a change is applied through it`, async () => {
      await using node = await site.boot(mode);
      const { machine } = node;
      await node.register(mode);
      await machine.until(pingPeer, 20_000);
      await machine.until(`test -S ${socket}`, 10_000);
      expect(await machine.must(`stat -c '%a %U' ${socket} /etc/overlay-agent/acme/run`)).toBe(
        "600 root\n700 root",
      );
      const log =
        mode === "server"
          ? "journalctl --no-pager --output=cat --unit=overlay-agent@acme"
          : "cat /var/lib/overlay-agent/logs/acme.log";
      await machine.must(
        `printf 'preferred_ranges: ["192.168.7.0/24"]\\n' >/etc/overlay-agent/acme/overrides.yml && agent sync-config`,
      );
      await machine.until(`${log} | grep -Eq 'Config reload (was )?complete'`, 10_000);
      expect((await machine.run(`${log} | grep 'Caught HUP'`)).stdout).toBe("");
      const unit = mode === "server" ? "overlay-agent@acme" : "overlay-agent";
      await machine.must(`systemd-analyze security --threshold=25 ${unit}.service`);
    }, 120_000);
  }
});
