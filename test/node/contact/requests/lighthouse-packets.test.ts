import { afterEach, beforeEach, expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkAuth } from "../../../../src/node/contact/check-auth.ts";
import { noneInUse } from "../../../../src/node/engine/engine-in-use.ts";
import { connectOrganization } from "../../../../src/node/contact/requests/connection.ts";
import { followOrganization } from "../../../../src/node/contact/follow.ts";
import { makeLighthousePackets } from "../../../../src/node/contact/requests/lighthouse-packets.ts";
import { lighthouseTargets } from "../../../../src/node/files/granted/lighthouse-targets.ts";
import { readSyncState, writeSyncState } from "../../../../src/node/files/generations.ts";
import type { Organization } from "../../../../src/node/files/organizations.ts";
import { syncOrganization } from "../../../../src/node/contact/sync.ts";
import { formatTime } from "../../../../src/base/quantities.ts";
import { realSystem } from "../../../../src/base/system.ts";
import { makeClock, type Clock } from "../../../support/clock.ts";
import { makeControl, makeNodeWorld, nodePath, type NodeWorld } from "../../../support/node.ts";

let world: NodeWorld;
let organization: Organization;
let clock: Clock;
let sent: string[];

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
  clock = makeClock();
  sent = [];
});
afterEach(() => world[Symbol.asyncDispose]());

const start = Date.UTC(2026, 10, 21);
const system = () => ({
  now: () => start + clock.now(),
  sleep: clock.sleep,
  sendDatagram: async (from: string, to: string, port: number) => void sent.push(`${from} ${to} ${port}`),
});
const path = (name: string) => join(organization.directory, name);

const two = ["10.77.0.9", "10.77.0.8"];

function change(options: { at?: number; hosts?: readonly unknown[] }): void {
  const { at = start, hosts = ["10.77.0.9"] } = options;
  const state = readSyncState(organization.directory);
  if (state === undefined) throw new Error("No state");
  writeSyncState(organization.directory, { ...state, certificates_changed_at: formatTime(at) });
  writeFileSync(path("config.yml"), JSON.stringify({ lighthouse: { hosts } }));
}

test("a lighthouse alone gets a packet every 0.7 s while there is traffic, from the node's address", async () => {
  change({ at: start - 86_400_000 });
  expect(lighthouseTargets(organization)).toEqual([{ from: "10.77.0.1", to: "10.77.0.9" }]);
  let isBusy = false;
  const health = { isBusy: () => isBusy };
  const packets = makeLighthousePackets(organization, { system: system(), health });
  packets.refresh();
  await clock.pass(600_000);
  expect(sent).toEqual([]);
  isBusy = true;
  await clock.pass(600_000);
  expect(sent.length).toBeWithin(842, 859);
  expect(new Set(sent)).toEqual(new Set(["10.77.0.1 10.77.0.9 9"]));
  isBusy = false;
  const before = sent.length;
  await clock.pass(600_000);
  expect(sent.length - before).toBeLessThan(2);
  await packets.stop(0);
});

test("a run that ends at once sends a packet only after a change", async () => {
  const look = async () => {
    const packets = makeLighthousePackets(organization, { system: system() }, false);
    packets.refresh();
    await clock.pass(1);
    await packets.stop(0);
    return sent.splice(0);
  };
  change({ at: start - 86_400_000 });
  expect(lighthouseTargets(organization)).toHaveLength(1);
  expect(await look()).toEqual([]);
  change({ at: start });
  expect(await look()).toEqual(["10.77.0.1 10.77.0.9 9"]);
});

test("each of several lighthouses gets two packets a second for three minutes after a change", async () => {
  change({ hosts: two });
  // Load lazy imports first: the simulated clock does not wait for them.
  expect(lighthouseTargets(organization).map(({ to }) => to)).toEqual(["10.77.0.9", "10.77.0.8"]);
  const packets = makeLighthousePackets(organization, { system: system() });
  packets.refresh();
  await clock.pass(10_000);
  expect(sent.slice(0, 2)).toEqual(["10.77.0.1 10.77.0.9 9", "10.77.0.1 10.77.0.8 9"]);
  expect(sent).toHaveLength(42);
  // Another look() sends no additional packets.
  packets.refresh();
  await clock.pass(300_000);
  expect(sent).toHaveLength(720);
  packets.refresh();
  await clock.pass(10_000);
  expect(sent).toHaveLength(720);
  await packets.stop(0);
});

test("nothing is sent without a recent change to several lighthouses, by a lighthouse, or out of the overlay", async () => {
  const send = async () => {
    const packets = makeLighthousePackets(organization, { system: system() });
    packets.refresh();
    await clock.pass(5000);
    await packets.stop(0);
    return sent.splice(0);
  };
  change({ at: start - 180_000, hosts: two });
  expect(await send()).toEqual([]);
  change({ hosts: [] });
  expect(await send()).toEqual([]);
  change({ hosts: ["192.0.2.1", "::1", 7, "10.78.0.1"] });
  expect(await send()).toEqual([]);
  change({ hosts: ["no address"] });
  expect(await send()).toEqual([]);
  change({ hosts: Array.from({ length: 20 }, (_, at) => `10.77.1.${at}`) });
  expect(new Set(await send()).size).toBe(8);
  rmSync(organization.directory, { recursive: true });
  expect(await send()).toEqual([]);
});

test("a change time in the future, after the clock was set back, does not extend the sending", async () => {
  change({ at: start + 86_400_000, hosts: two });
  const packets = makeLighthousePackets(organization, { system: system() });
  packets.refresh();
  await clock.pass(170_000);
  change({ at: start - 1_000_000, hosts: two });
  await clock.pass(300_000);
  expect(sent).toHaveLength(720);
  await packets.stop(0);
});

test("a failed packet is ignored, and the next one is sent", async () => {
  change({});
  let tries = 0;
  const failing = { ...system(), sendDatagram: () => Promise.reject(new Error(`EADDRNOTAVAIL ${tries++}`)) };
  const packets = makeLighthousePackets(organization, { system: failing });
  packets.refresh();
  await clock.pass(5000);
  expect(tries).toBe(11);
  await packets.stop(0);
});

test("after the last turn packets continue for the given time only, and only after a change", async () => {
  const packets = makeLighthousePackets(organization, { system: system() });
  packets.refresh();
  await packets.stop(9000);
  change({});
  const more = makeLighthousePackets(organization, { system: system() });
  more.refresh();
  await clock.pass(1000);
  const stopped = more.stop(9100);
  await clock.pass(30_000);
  await stopped;
  expect(sent).toHaveLength(21);
});

test("a new certificate counts as a change, other news do not", async () => {
  const { system, log } = world;
  const sync = () =>
    connectOrganization(
      organization,
      system,
      log,
    )((client) =>
      syncOrganization(organization, {
        client,
        control: makeControl(),
        engine: noneInUse,
        command: "test",
        log,
        system,
      }),
    );
  const changedAt = () => readSyncState(organization.directory)?.certificates_changed_at;
  const rule = {
    direction: "inbound",
    protocol: "tcp",
    ports: "22",
    peer: { any: true },
    target: { any: true },
  };
  await world.api("POST", "/api/org/acme/firewall_rules/", rule);
  expect((await sync()).result).toBe("changed");
  expect(changedAt()).toBeUndefined();
  await world.api("POST", `${nodePath(organization)}renew_cert/`, {});
  expect((await sync()).result).toBe("changed");
  const at = changedAt();
  expect(at).toBe(formatTime(world.server.clock.ms));
  world.server.clock.ms += 60_000;
  await world.api("POST", "/api/org/acme/firewall_rules/", { ...rule, ports: "23" });
  expect((await sync()).result).toBe("changed");
  expect(changedAt()).toBe(at);
});

/** The control plane is unreachable. */
const edgeWithoutPlane = () => ({
  configRoot: world.root,
  withClient: () => Promise.reject(new Error("away")),
  control: makeControl(),
  engine: async () => noneInUse,
  command: "test",
  log: world.log,
  system: { ...realSystem(), ...system() },
});

// Units that an earlier version wrote wait for 50 s.
test.each([50, 58])("check-auth --wait %i sends packets until shortly before the next run", async (waitS) => {
  change({});
  const run = checkAuth(organization, edgeWithoutPlane(), waitS).then(() => clock.now());
  await clock.pass(70_000);
  const ended = await run;
  expect(ended).toBeGreaterThan(57_000);
  expect(ended).toBeLessThan(60_000);
  expect(sent.length).toBeGreaterThan(114);
});

test.each([0, 60])("check-auth --wait %i sends no packets after its wait", async (waitS) => {
  change({});
  const run = checkAuth(organization, edgeWithoutPlane(), waitS).then(() => clock.now());
  await clock.pass(100_000);
  expect(await run).toBe(1000 * waitS);
});

test("followOrganization() sends packets, also while the control plane is unreachable", async () => {
  change({});
  const ending = new AbortController();
  const following = followOrganization(organization, edgeWithoutPlane(), { signal: ending.signal });
  await clock.pass(60_000);
  expect(sent).toHaveLength(121);
  ending.abort(new Error("over"));
  await clock.pass(1000);
  await following;
  expect(sent).toHaveLength(121);
});

test("a datagram arrives from the given address; an address of another machine is refused", async () => {
  const socket = createSocket("udp4").bind(0, "127.0.0.1");
  await once(socket, "listening");
  const arrived = once(socket, "message");
  const { sendDatagram } = realSystem();
  await sendDatagram("127.0.0.2", "127.0.0.1", socket.address().port);
  const [message, from] = await arrived;
  expect([message.length, from.address]).toEqual([0, "127.0.0.2"]);
  socket.close();
  // The port is closed now: an ICMP error must not matter.
  await sendDatagram("127.0.0.1", "127.0.0.1", 9);
  expect(sendDatagram("192.0.2.77", "127.0.0.1", 9)).rejects.toThrow();
  expect(readFileSync(path("node-config.json"), "utf8")).toContain("10.77.0.1");
});
