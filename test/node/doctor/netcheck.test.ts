// The findings of `agent netcheck` that do not need a running overlay.

import { expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { canMeet } from "../../../src/node/doctor/can-meet.ts";
import { examineMapping, netcheck } from "../../../src/node/doctor/netcheck.ts";
import { ok } from "../../../src/node/doctor/check.ts";
import type { OpenEcho } from "../../../src/platform/network/echo-socket.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { emptyMachine } from "../../support/machine.ts";

const lighthouse = "10.77.0.9";

async function check({
  isLighthouse = false,
  relays = [],
  at = "127.0.0.1:9",
  seen,
  running,
  open = async () => "absent" as const,
}: {
  isLighthouse?: boolean;
  relays?: readonly string[];
  /** The underlay address of all hubs. */
  at?: string;
  seen?: Awaited<ReturnType<Parameters<typeof netcheck>[1]["probedStatus"]>>;
  running?: string;
  open?: OpenEcho;
}) {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const config = {
    static_host_map: Object.fromEntries([lighthouse, ...relays].map((each) => [each, [at]])),
    relay: { relays },
    lighthouse: { am_lighthouse: isLighthouse, hosts: isLighthouse ? [] : [lighthouse] },
  };
  mkdirSync(join(organization.directory, "run"), { recursive: true });
  writeFileSync(join(organization.directory, "config.yml"), JSON.stringify(config));
  const { lookup, sleep } = world.system;
  const checks = await netcheck(organization, {
    system: { env: {}, lookup, sleep, machineState: async () => emptyMachine },
    open,
    probedStatus: async () => seen,
    controlPlane: async () => ok("fine"),
    engine: async () => ({ isRunning: running !== undefined, running }),
  });
  return Object.fromEntries(
    checks.map(({ id, verdict, evidence, remedy }) => [id, [verdict, evidence, remedy]]),
  );
}

test("a stopped overlay is called stopped, and is no failure of this process's rights", async () => {
  const found = ["skipped", "The overlay is stopped", "agent up acme"];
  expect(await check({})).toMatchObject({ mapping: found, mtu: found });
});

test("a revoked node is not told to start", async () => {
  const found = ["skipped", "The overlay does not run: access was revoked", undefined];
  expect(await check({ seen: { state: "revoked", wanted: "up" } })).toMatchObject({
    mapping: found,
    mtu: found,
  });
});

test("a relay that a peer does not reach is not told to look for a relay", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const met = (relay: object) => {
    writeFileSync(join(organization.directory, "config.yml"), JSON.stringify({ relay }));
    const now = Date.now();
    const line = `time="${new Date(now).toISOString()}" level=info msg="Handshake timed out" vpnAddrs="[10.77.0.8]"`;
    return canMeet(organization, [line], now).verdict;
  };
  expect([met({}), met({ am_relay: true }), met({ relays: [lighthouse] })]).toEqual(["warn", "ok", "ok"]);
});

test("an engine that is too old to report the mapping is skipped; a newer one may have started just now", async () => {
  const { mapping } = await check({ running: "1.6.1" });
  expect(mapping).toEqual([
    "skipped",
    "Engine 1.6.1 does not report where lighthouses see this node",
    "agent overlay update",
  ]);
  expect((await check({ running: "1.12.0" })).mapping).toEqual([
    "warn",
    expect.stringContaining("does not serve its control socket"),
    "agent restart acme # if it stays so",
  ]);
});

test("a lighthouse measures the way to another lighthouse, and does not call it a mere node", async () => {
  const sent: string[] = [];
  const open: OpenEcho = async (_, onReply) => ({
    send(to, sequence, payload) {
      sent.push(to);
      onReply({ sequence, payload });
      return true;
    },
    close() {},
  });
  const { mapping, mtu } = await check({ isLighthouse: true, running: "1.6.1", open });
  expect(mapping?.slice(0, 2)).toEqual([
    "skipped",
    "A lighthouse reports to no other, so none says where it sees this node",
  ]);
  expect([mtu?.[0], sent]).toEqual(["ok", [lighthouse]]);
});

test.each<[string, readonly (readonly string[])[], readonly string[], string, RegExp]>([
  [
    "a lighthouse in the same network sees no NAT, so the other one alone does not tell its kind",
    [["192.168.1.5:4242"], ["192.168.1.5:4242", "198.51.100.7:4242"]],
    [],
    "ok",
    /^A NAT maps this node to 198\.51\.100\.7:4242; with one lighthouse its kind cannot be told$/,
  ],
  [
    "what the node advertises is no other port of the NAT",
    [
      ["198.51.100.7:5000", "198.51.100.7:4242"],
      ["198.51.100.7:5000", "198.51.100.7:4242"],
    ],
    ["198.51.100.7:4242"],
    "ok",
    /^The NAT maps this node to the same port for each lighthouse \(198\.51\.100\.7:5000\)/,
  ],
  [
    "a NAT with another port for each lighthouse stays one where the node advertises an address",
    [
      ["198.51.100.7:5000", "198.51.100.7:4242"],
      ["198.51.100.7:5001", "198.51.100.7:4242"],
    ],
    ["198.51.100.7:4242"],
    "warn",
    /another port for each lighthouse \(198\.51\.100\.7:5000, 198\.51\.100\.7:5001\)/,
  ],
  [
    "an advertised address alone tells no kind of NAT",
    [["198.51.100.7:4242"], ["198.51.100.7:4242"]],
    ["198.51.100.7:4242"],
    "ok",
    /^Lighthouses see this node only at its own addresses and at those that it advertises/,
  ],
])("%s", async (_, reports, advertised, verdict, evidence) => {
  const lighthouses = reports.map((_, at) => `10.77.0.${at + 1}`);
  const known = Object.fromEntries(
    lighthouses.map((each, at) => [each, { learned: [], reported: [...(reports[at] ?? [])], relay: [] }]),
  );
  const machine = { ...emptyMachine, addresses: [{ device: "eth0", address: "192.168.1.5/24" }] };
  const found = await examineMapping(
    { own: "10.77.0.7", lighthouses, advertised },
    { queryLighthouse: async () => known },
    { system: { sleep: async () => {}, machineState: async () => machine } },
  );
  expect(found).toMatchObject({ verdict, evidence: expect.stringMatching(evidence) });
});

test("one size must fit all paths: the narrowest is named, with the setting that fits", async () => {
  const relay = "10.77.0.8";
  const open: OpenEcho = async (_, onReply) => ({
    send(to, sequence, payload) {
      if (payload.length + 28 <= (to === relay ? 1200 : 1500)) onReply({ sequence, payload });
      return true;
    },
    close() {},
  });
  const { mtu } = await check({ relays: [relay], running: "1.6.1", open });
  const [verdict, evidence, remedy] = mtu ?? [];
  expect(verdict).toBe("fail");
  const [, bytes] =
    /^Packets above (119\d|1200) bytes are lost on the way to .*; \1 bytes pass on all 2 measured paths$/.exec(
      evidence ?? "",
    ) ?? [];
  expect(remedy).toContain(`set tun: { mtu: ${bytes} }`);
});

test("more than eight lighthouses and relays are not all asked, and that is said; eight are", async () => {
  const engine = createSocket("udp4");
  engine.on("message", (packet, { port }) =>
    engine.send(Buffer.concat([Buffer.from([0x12]), packet.subarray(1)]), port, "127.0.0.1"),
  );
  engine.bind(0, "127.0.0.1");
  await once(engine, "listening");
  const tripsOf = async (count: number) => {
    const relays = Array.from({ length: count - 1 }, (_, at) => `10.77.1.${at}`);
    const { round_trips } = await check({ relays, at: `127.0.0.1:${engine.address().port}` });
    const evidence = round_trips?.[1] ?? "";
    return [evidence.match(/ ms/g)?.length, evidence.endsWith("; more were not asked")];
  };
  try {
    expect([await tripsOf(8), await tripsOf(9)]).toEqual([
      [8, false],
      [8, true],
    ]);
  } finally {
    engine.close();
  }
});
