// The trial of offloads on a network that the test makes: what is lost when many packets are sent at once, and when few are.

import { beforeEach, expect, test } from "bun:test";
import { OffloadTrial } from "../../../../src/node/health/paths/offload-trial.ts";
import { measureBurstLoss } from "../../../../src/node/health/paths/burst-loss.ts";
import {
  decideDataPlane,
  readTrial,
  writeTrial,
  type DataPlane,
} from "../../../../src/node/files/config/data-plane.ts";
import { dataPlaneInForce } from "../../../../src/node/files/config/data-plane-in-force.ts";
import { readSyncState, writeSyncState } from "../../../../src/node/files/generations.ts";
import { readKernel } from "../../../../src/platform/network/kernel.ts";
import type { OpenEcho } from "../../../../src/platform/network/echo-socket.ts";
import { useSentConfig } from "../../../support/sent-config.ts";

const path = { from: "10.77.0.2", to: "10.77.0.1", bytes: 1300 };

/** Packets that were sent since the clock last moved; whether one passes depends on how many there were before it. */
function network(passes: (nth: number, sent: number) => boolean) {
  let [moment, sent, ms] = [0, 0, Date.parse("2026-11-27T00:00:00Z")];
  const open: OpenEcho = async (_, onReply) => ({
    send(_to, sequence) {
      sent += 1;
      moment += 1;
      if (passes(moment, sent)) onReply({ sequence, payload: new Uint8Array() });
      return true;
    },
    close() {},
  });
  const system = {
    now: () => ms,
    async sleep(wait: number) {
      ms += wait;
      moment = 0;
    },
  };
  return { open, system, sent: () => sent, pass: (time: number) => void (ms += time) };
}

const together = ({ open, system }: ReturnType<typeof network>) => measureBurstLoss(path, { open, system });

test("large packets that pass, that are lost together, and a path that loses any", async () => {
  const healthy = network(() => true);
  expect(await together(healthy)).toBe("pass");
  expect(healthy.sent()).toBe(32);
  // The first packet of a burst goes alone.
  expect(await together(network((nth) => nth === 1))).toBe("lost");
  expect(await together(network((_, sent) => sent % 5 !== 0))).toBe("pass");
  expect(await together(network((_, sent) => sent % 2 === 0))).toBe("unknown");
  expect(await together(network(() => false))).toBe("unknown");
  expect(
    await measureBurstLoss(path, { open: async () => "denied", system: network(() => true).system }),
  ).toBe("denied");
});

test("an engine that is late takes packets together that were sent one by one: each waits for the one before", async () => {
  const everyMs = 50;
  let [ms, waiting] = [0, [] as (() => void)[]];
  const open: OpenEcho = async (_, onReply) => ({
    send(_to, sequence) {
      waiting.push(() => onReply({ sequence, payload: new Uint8Array() }));
      return true;
    },
    close() {},
  });
  const sleep = async (wait: number) => {
    const isTaken = Math.floor((ms + wait) / everyMs) > Math.floor(ms / everyMs);
    ms += wait;
    if (!isTaken) return;
    if (waiting.length === 1) waiting[0]?.();
    waiting = [];
  };
  expect(await measureBurstLoss(path, { open, system: { sleep } })).toBe("lost");
});

const here = useSentConfig();
const engine = "1.12.0";
const kernel = "6.1.0";
let asked: string[] = [];
let log: string[] = [];
let pid = 1;

/** Offloads in force, or not. */
function set(on: boolean, by: DataPlane["tun"]["by"] = "default"): void {
  const { directory } = here.organization;
  const state = readSyncState(directory) ?? { etag: "", config_version: 0, applied_at: "" };
  const each = { on, by };
  const plane = { engine, kernel, tun: each, udp: each, since: 0, former: { tun: false, udp: false } };
  writeSyncState(directory, { ...state, data_plane: plane });
}

beforeEach(() => {
  asked = [];
  log = [];
  pid = 1;
  set(true);
});

function trialOn({ open, system }: ReturnType<typeof network>) {
  const { slug, directory } = here.organization;
  const note = (what: string) => async () => void asked.push(what);
  const deps = { decide: note("decide"), restart: note("restart"), log: here.world.log };
  const trial = new OffloadTrial({ place: { slug, directory }, kernel, open, system, ...deps });
  const look = (version: string | undefined = engine) =>
    trial.tryIfDue({
      engine: { pid, version, ageMs: 0 },
      from: "10.77.0.2",
      to: "10.77.0.1",
      name: "hub",
      bytes: 1300,
      recentLog: async () => log,
    });
  const state = () => readTrial(directory)?.state;
  return { look, state };
}

test("a network that carries them is measured once for each engine, and twice a day", async () => {
  const path = network(() => true);
  const { look, state } = trialOn(path);
  await look();
  expect([state(), path.sent()]).toEqual(["passed", 32]);
  path.pass(3_600_000);
  await look();
  expect(path.sent()).toBe(32);
  pid = 2;
  await look();
  expect(path.sent()).toBe(64);
  path.pass(12 * 3_600_000);
  await look();
  expect([path.sent(), asked]).toEqual([96, []]);
});

test("an engine that sends one by one since the kernel refused large packets is remembered, and told until its end", async () => {
  const path = network(() => true);
  const { look } = trialOn(path);
  const { directory } = here.organization;
  const [started, refused] = ["udp: GSO enabled", "udp: kernel rejected GSO send, disabling GSO"];
  // Of an engine before.
  log = [refused, started];
  await look();
  expect([readTrial(directory)?.unsegmented, asked]).toEqual([undefined, []]);
  pid = 2;
  log = [started, refused];
  await look();
  expect([readTrial(directory)?.unsegmented, asked]).toEqual([true, ["decide"]]);
  // The log has gone on since.
  log = [];
  path.pass(12 * 3_600_000);
  await look();
  expect(readTrial(directory)?.unsegmented).toBe(true);
  const trial = readTrial(directory);
  const basis = {
    engine,
    kernel: { ...readKernel(), release: kernel, isLinux: true },
    sent: {},
    own: {},
    trial,
  };
  const plane = decideDataPlane(basis, undefined, 0);
  const at = Date.parse(trial?.at ?? "");
  const whyOf = (startedAt: number | undefined) => dataPlaneInForce(plane, startedAt, undefined).why;
  expect([whyOf(at - 1000), whyOf(at + 1000), whyOf(undefined)]).toEqual(["segments", undefined, undefined]);
  pid = 3;
  await look();
  expect(readTrial(directory)?.unsegmented).toBe(undefined);
});

test("offloads that lose packets are turned off, and stay off where that helps", async () => {
  let broken = true;
  const { look, state } = trialOn(network((nth) => !broken || nth === 1));
  await look();
  expect([state(), asked]).toEqual(["trial", ["decide", "restart"]]);
  // The engine without them is not measured before it has started.
  set(false, "traffic");
  await look();
  expect(asked.length).toBe(2);
  [broken, pid] = [false, 2];
  await look();
  expect([state(), asked]).toEqual(["off", ["decide", "restart", "decide"]]);
  expect(readTrial(here.organization.directory)?.reason).toBe(
    "Offloads are off: with them, packets sent together to hub were lost; without them they pass (engine 1.12.0, kernel 6.1.0)",
  );
  pid = 3;
  await look();
  expect(asked.length).toBe(3);
});

test("what is lost without them too turns them on again, and is not tried for a week", async () => {
  const path = network((nth) => nth === 1);
  const { look, state } = trialOn(path);
  await look();
  set(false, "traffic");
  pid = 2;
  await look();
  expect([state(), asked]).toEqual(["cleared", ["decide", "restart", "decide", "restart"]]);
  set(true);
  pid = 3;
  await look();
  path.pass(86_400_000);
  await look();
  expect(asked.length).toBe(4);
  path.pass(7 * 86_400_000);
  await look();
  expect(state()).toBe("trial");
});

test("while nothing is certain it is measured again after a minute, and rarely after some tries", async () => {
  const path = network((_, sent) => sent % 2 === 0);
  const { look, state } = trialOn(path);
  const wait = async (ms: number) => {
    const before = path.sent();
    path.pass(ms);
    const isUncertain = await look();
    return [isUncertain, path.sent() > before];
  };
  expect(await wait(0)).toEqual([true, true]);
  expect(await wait(30_000)).toEqual([true, false]);
  expect(await wait(30_000)).toEqual([true, true]);
  for (let tries = 2; tries < 4; tries++) expect(await wait(60_000)).toEqual([true, true]);
  // The fifth time.
  expect(await wait(60_000)).toEqual([false, true]);
  expect(await wait(60_000)).toEqual([false, false]);
  expect(await wait(3_600_000)).toEqual([false, true]);
  expect([state(), asked]).toEqual([undefined, []]);
  // Another engine is measured at once.
  pid = 2;
  expect(await wait(0)).toEqual([true, true]);
});

test("nothing is changed where root decided, and what another engine did says nothing", async () => {
  const { directory } = here.organization;
  const { look, state } = trialOn(network((nth) => nth === 1));
  set(true, "root");
  await look();
  await look(undefined);
  expect([state(), asked]).toEqual([undefined, []]);
  set(true);
  writeTrial(directory, {
    state: "cleared",
    engine: "1.11.0",
    kernel,
    reason: "",
    pid: 1,
    at: "2026-11-27T00:00:00Z",
  });
  await look();
  expect(state()).toBe("trial");
});
