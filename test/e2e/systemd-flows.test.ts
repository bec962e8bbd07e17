// Flows in server mode, on a booted machine: the edge unit counts them where the organization asks for it, and root can refuse.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { Flows } from "../../src/api/flows.ts";
import { runSync } from "../support/debian.ts";
import { makeMachinePair, type MachinePair } from "../support/machine-pair.ts";
import { describeMachine, type Machine } from "../support/nspawn.ts";

/** The machines have no nftables. */
function giveNft({ root }: Machine): void {
  const listed = runSync(["ldd", "/usr/sbin/nft"]).matchAll(/ (\/\S+) \(/g);
  for (const path of ["/usr/sbin/nft", ...Array.from(listed, ([, library = ""]) => library)]) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    if (!existsSync(join(root, path))) copyFileSync(path, join(root, path));
  }
}

const edge = "overlay-agent-edge@acme.service";
const table = "nft list table inet overlay-agent-flows-acme";

describeMachine("flows in server mode", () => {
  let pair: MachinePair;
  beforeAll(async () => void (pair = await makeMachinePair()), 300_000);
  afterAll(() => pair[Symbol.asyncDispose]());

  test("the edge unit counts them, check-auth reports them, and the unit ends when root refuses", async () => {
    const { control, web } = pair;
    await control.must("agent admin org update acme --flows on");
    const why = "flows are not reported: this machine has no nft (the package nftables)";
    await web.until(`agent status | grep '${why}'`, 90_000);
    expect((await web.run(`systemctl is-active --quiet ${edge}`)).status).not.toBe(0);
    giveNft(web);
    await web.until(`${table} >/dev/null`, 90_000);
    await web.must(`systemctl is-active ${edge} && systemd-analyze security --threshold=25 ${edge}`);
    await web.must("agent status | grep 'flows are reported: which peers'");
    await web.must("ping -c 3 10.77.0.1");
    // A stop collects what was counted, as the end of five minutes does.
    await web.must(`systemctl restart ${edge}`);
    const list = async () =>
      v.parse(Flows, JSON.parse(await control.must("agent admin flow list acme --from web --json")));
    for (let tries = 0; tries < 90 && (await list()).flows.length === 0; tries++) await Bun.sleep(1000);
    expect((await list()).flows).toContainEqual(
      expect.objectContaining({ from_name: "web", protocol: "icmp", port: null, unanswered: 0 }),
    );
    await web.must("agent sync-config --no-flows");
    await web.until(`! ${table} 2>/dev/null`, 90_000);
    await web.until(`! systemctl is-active --quiet ${edge}`, 60_000);
    await web.must("agent status | grep 'flows are not reported, as root of this machine said'");
    // check-auth counts what a relay forwards, within the rights of its unit.
    await control.must("agent admin node update acme web --relay --public-ip 192.0.2.9");
    await web.until("nft list tables | grep relay", 90_000);
  }, 300_000);
});
