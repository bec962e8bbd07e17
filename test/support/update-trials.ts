// The tests of `agent self-update` in a booted Debian, with really signed releases: good ones, and bad ones that must
// be gone again within a minute, also over a power cut. One test file for each mode, so that each keeps its time.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build, hostTarget } from "../../build.ts";
import { inCi } from "./debian.ts";
import { makeMachineNode, type MachineNode } from "./machine-node.ts";
import { cannotBoot, type Machine } from "./nspawn.ts";
import { makeRelease, makeReleaseKey, type TestRelease } from "./releases.ts";
import { temporaryDirectory } from "./temporary.ts";

const reason = cannotBoot();
if (reason !== undefined && inCi) throw new Error(`No machine can be booted: ${reason}`);

const pingPeer = "ping -c 1 -W 1 10.77.0.1";
const key = makeReleaseKey();
const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());

/** Says its version like a good one, and does `rest` when it has to work. */
const impostor = (version: string, rest: string) =>
  Buffer.from(`#!/bin/sh\n[ "$1" = version ] && { echo '{"version":"${version}"}'; exit 0; }\n${rest}\n`);

async function buildVersion(version: string): Promise<string> {
  return build(hostTarget(), join(work.path, `agent-${version}`), { version, releaseKeys: [key.text] });
}

const publish = (
  machine: Machine,
  name: string,
  release: Omit<TestRelease, "executables">,
  program: Uint8Array,
  signer = key,
) =>
  makeRelease(
    join(machine.root, "srv", name),
    { ...release, executables: { [hostTarget()]: program } },
    signer,
  );

const update = (machine: Machine, name: string) =>
  machine.run(`agent self-update --json --release-url /srv/${name}`, 120_000);
const version = (machine: Machine) =>
  machine.must(`agent version --no-check --json | grep -o '"version":"[^"]*"' | cut -d '"' -f 4`);

export function describeUpdates(mode: "desktop" | "server"): void {
  describe.skipIf(reason !== undefined)(`self-update, ${mode} mode`, () => updateTests(mode));
}

function updateTests(mode: "desktop" | "server"): void {
  let node: MachineNode;
  beforeAll(async () => {
    node = await makeMachineNode(await buildVersion("0.1.0"));
    const { machine } = node;
    await node.register(mode);
    await machine.until(pingPeer, 10_000);
    await publish(
      machine,
      "good",
      { version: "0.2.0", sequence: 5 },
      readFileSync(await buildVersion("0.2.0")),
    );
    await publish(machine, "exits", { version: "0.3.0", sequence: 6 }, impostor("0.3.0", "exit 1"));
    await publish(machine, "hangs", { version: "0.3.0", sequence: 6 }, impostor("0.3.0", "exec sleep 1000"));
    await publish(
      machine,
      "ends",
      { version: "0.3.0", sequence: 6 },
      impostor("0.3.0", "exec systemd-notify --ready"),
    );
  }, 300_000);
  afterAll(() => node[Symbol.asyncDispose]());

  test("a good release is taken, no packet is lost, and the guard goes away", async () => {
    const { machine } = node;
    const pinging = machine.must("ping -i 0.2 -c 50 -W 1 10.77.0.1 | grep -o '[0-9]*% packet loss'");
    const { status, stdout, stderr } = await update(machine, "good");
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(JSON.parse(stdout)).toMatchObject({
      from: "0.1.0",
      to: "0.2.0",
      source: "release",
      changed: true,
    });
    expect(await pinging).toBe("0% packet loss");
    expect(await version(machine)).toBe("0.2.0");
    await machine.until("! ls /etc/systemd/system | grep -q guard", 5000);
    expect(await machine.must("systemctl is-system-running")).toBe("running");
    if (mode === "desktop") expect(await machine.must("agent status --json")).toContain('"version":"0.2.0"');
  }, 120_000);

  for (const name of mode === "desktop" ? ["exits", "hangs", "ends"] : ["exits", "hangs"]) {
    test(`one that ${name} is back at the old one within 60 s, and the tunnel lives`, async () => {
      const { machine } = node;
      const begin = performance.now();
      const { status, stdout } = await update(machine, name);
      expect(status).toBe(1);
      expect(stdout).toContain("did not work here");
      await machine.until(
        `systemctl is-active ${mode === "desktop" ? "overlay-agent" : "overlay-agent@acme"}`,
        5000,
      );
      expect(performance.now() - begin).toBeLessThan(60_000);
      expect(await version(machine)).toBe("0.2.0");
      await machine.must(pingPeer);
      await machine.until("agent status --json | grep -q running", 10_000);
    }, 120_000);
  }

  test("power cut while a bad one is on trial: after the boot the old one is back within 60 s", async () => {
    const { machine } = node;
    void update(machine, "hangs");
    await machine.until("[ $(stat -c %s /usr/local/bin/agent) -lt 1000 ]", 30_000);
    await machine.cutPower();
    await machine.boot().catch(() => 0);
    const tookMs = await machine.until("[ $(stat -c %s /usr/local/bin/agent) -gt 1000 ]", 60_000);
    expect(tookMs).toBeLessThan(60_000);
    expect(await version(machine)).toBe("0.2.0");
    await machine.until(pingPeer, 30_000);
    await machine.until("systemctl is-system-running | grep -q running", 60_000);
    await machine.until("! ls /etc/systemd/system | grep -q guard", 10_000);
  }, 180_000);

  test("what must not be taken is refused with the reason, and nothing is replaced", async () => {
    const { machine } = node;
    const program = impostor("0.4.0", "exit 0");
    await publish(machine, "replayed", { version: "0.4.0", sequence: 4 }, program);
    await publish(
      machine,
      "expired",
      { version: "0.4.0", sequence: 9, expiresAt: "2026-01-02T00:00:00Z" },
      program,
    );
    await publish(machine, "foreign", { version: "0.4.0", sequence: 9 }, program, makeReleaseKey());
    await publish(machine, "older", { version: "0.1.9", sequence: 9 }, program);
    await publish(machine, "other", { version: "0.5.0", sequence: 9 }, program);
    await publish(machine, "broken", { version: "0.4.0", sequence: 9 }, Buffer.from("no program"));
    await makeRelease(
      join(machine.root, "srv/platform"),
      { version: "0.4.0", sequence: 9, executables: {} },
      key,
    );
    const reasons = {
      replayed: "number 4",
      expired: "expired",
      foreign: "unknown key",
      older: "older than this one",
      other: "reports version 0.4.0, not 0.5.0",
      broken: "reports version none",
      platform: `nothing for ${hostTarget()}`,
      nowhere: "Cannot read",
    };
    for (const [name, text] of Object.entries(reasons)) {
      const { status, stdout } = await update(machine, name);
      expect({ name, status, said: stdout.includes(text) ? text : stdout }).toEqual({
        name,
        status: 1,
        said: text,
      });
    }
    expect(await version(machine)).toBe("0.2.0");
    expect(await machine.must("ls -A /usr/local/bin")).not.toContain(".new.");
  }, 120_000);
}
