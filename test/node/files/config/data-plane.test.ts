// Offloads and buffers: what is decided from engine, kernel and administrators, and how a decision reaches a running engine.

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { engineSettings } from "../../../support/engine-settings.ts";
import { syncOrganization } from "../../../../src/node/contact/sync.ts";
import { followOnce } from "../../../../src/node/contact/follow-once.ts";
import { noneInUse } from "../../../../src/node/engine/engine-in-use.ts";
import {
  dataPlaneKeys,
  decideDataPlane,
  isOutdated,
  withDataPlane,
  writeTrial,
  type DataPlane,
  type Trial,
} from "../../../../src/node/files/config/data-plane.ts";
import { dataPlaneInForce } from "../../../../src/node/files/config/data-plane-in-force.ts";
import { readSyncState, writeSyncState } from "../../../../src/node/files/generations.ts";
import { decideForStart } from "../../../../src/node/files/config/rewrite-config.ts";
import type { Kernel } from "../../../../src/platform/network/kernel.ts";
import { readKernel } from "../../../../src/platform/network/kernel.ts";
import { valueAt, type YamlMap } from "../../../../src/base/yaml.ts";
import { emptyMachine } from "../../../support/machine.ts";
import { followDeps, makeControl, nodePath } from "../../../support/node.ts";
import { useSentConfig } from "../../../support/sent-config.ts";

const kernel: Kernel = {
  isLinux: true,
  release: "6.1.0-28-amd64",
  memory: 4 * 1024 ** 3,
  usualBuffer: 212_992,
  mostBuffer: 212_992,
  canForceBuffers: true,
};
const mib = 1024 * 1024;
const trial: Trial = {
  state: "off",
  engine: "1.12.0",
  kernel: kernel.release,
  reason: "Lost",
  pid: 1,
  at: "",
};

type Asked = {
  engine?: string | undefined;
  kernel?: Partial<Kernel>;
  sent?: YamlMap;
  own?: YamlMap;
  trial?: Trial;
};
function decide(asked: Asked = {}, before?: DataPlane): DataPlane {
  const { engine = "1.12.0", sent = {}, own = {}, trial } = asked;
  return decideDataPlane({ engine, kernel: { ...kernel, ...asked.kernel }, sent, own, trial }, before, 1000);
}
const both = (value: boolean): YamlMap => ({ tun: { use_offloads: value }, listen: { udp_offloads: value } });

test("an unknown engine, as while systemd does not answer, is not another one: the former decision stays", () => {
  const before = decide();
  const { release } = kernel;
  expect(isOutdated(before, undefined, release)).toBe(false);
  expect(isOutdated(before, "1.11.1", release)).toBe(true);
  expect(isOutdated(before, undefined, "6.99.0")).toBe(true);
  expect(isOutdated(undefined, undefined, release)).toBe(true);
  const basis = { engine: undefined, kernel, sent: {}, own: {}, trial: undefined };
  expect(decideDataPlane(basis, before, 2000)).toEqual(before);
  // Known for the first time, after a decision without an engine.
  expect(isOutdated(decideDataPlane(basis, undefined, 0), "1.12.0", release)).toBe(true);
});

describe("switches", () => {
  const [on, off] = [(by: string) => ({ on: true, by }), (by: string) => ({ on: false, by })];
  test.each([
    ["on where engine and kernel can", {}, on("default"), on("default")],
    ["off with an older engine", { engine: "1.11.1" }, off("engine"), off("engine")],
    ["off elsewhere", { kernel: { isLinux: false } }, off("platform"), off("platform")],
    [
      "of Debian 11: the interface's alone",
      { kernel: { release: "5.10.0-32-amd64" } },
      on("default"),
      off("kernel"),
    ],
    ["of RHEL 8", { kernel: { release: "4.18.0-553.el8" } }, on("default"), off("kernel")],
    ["off with an ancient kernel", { kernel: { release: "4.9.0" } }, off("kernel"), off("kernel")],
    ["off by the organization", { sent: both(false) }, off("organization"), off("organization")],
    [
      "on by the organization",
      { sent: both(true), kernel: { release: "5.4.0" } },
      on("organization"),
      on("organization"),
    ],
    ["root stands above the organization", { sent: both(true), own: both(false) }, off("root"), off("root")],
    ["traffic stands above the organization", { sent: both(true), trial }, off("traffic"), off("traffic")],
    ["root stands above traffic", { own: both(true), trial }, on("root"), on("root")],
    ["another engine is tried again", { engine: "1.12.1", trial }, on("default"), on("default")],
    ["another kernel is tried again", { kernel: { release: "6.2.0" }, trial }, on("default"), on("default")],
    [
      "what offloads were not to blame for",
      { trial: { ...trial, state: "cleared" } },
      on("default"),
      on("default"),
    ],
    [
      "no key for an engine that does not know it",
      { engine: "1.11.1", own: both(true) },
      off("engine"),
      off("engine"),
    ],
  ] as const)("%s", (_, asked, tun, udp) => {
    expect(decide(asked)).toMatchObject({ tun, udp });
  });

  test("one of them alone", () => {
    expect(decide({ sent: { listen: { udp_offloads: false } } })).toMatchObject({
      tun: on("default"),
      udp: off("organization"),
    });
  });
});

describe("buffers", () => {
  test.each([
    ["4 MiB, also with old engines", { engine: "1.6.1" }, { buffer: 4 * mib }],
    ["1 MiB on a small machine", { kernel: { memory: 256 * mib } }, { buffer: mib }],
    [
      "what a container may have",
      { kernel: { canForceBuffers: false, mostBuffer: 2 * mib } },
      { buffer: 2 * mib, is_limited: true },
    ],
    [
      "none where a container may not have more than usual",
      { kernel: { canForceBuffers: false, mostBuffer: 106_496 } },
      { is_limited: true },
    ],
    ["none where the system's are larger", { kernel: { usualBuffer: 16 * mib } }, {}],
    ["none where the organization says something", { sent: { listen: { write_buffer: 1 } } }, {}],
    ["none where root says something", { own: { listen: { read_buffer: 0 } } }, {}],
    ["none elsewhere", { kernel: { isLinux: false } }, {}],
  ] as const)("%s", (_, asked, { buffer, is_limited }: Partial<DataPlane>) => {
    const { buffer: b, is_limited: l } = decide(asked);
    expect([b, l]).toEqual([buffer, is_limited]);
  });
});

test("the configuration has exactly these keys, and each is one of the allow-list", () => {
  expect(dataPlaneKeys.filter((each) => !engineSettings().includes(each))).toEqual([]);
  const written = withDataPlane({ tun: { dev: "x" }, listen: { port: 1 } }, decide());
  expect(written).toEqual({
    tun: { dev: "x", use_offloads: true },
    listen: { port: 1, udp_offloads: true, read_buffer: 4 * mib, write_buffer: 4 * mib },
  });
  // An engine that does not know a key does not get it, whoever sent it.
  const old = withDataPlane(both(true), decide({ engine: "1.11.0", sent: both(true) }));
  expect(dataPlaneKeys.map((each) => valueAt(old, each))).toEqual([undefined, undefined, 4 * mib, 4 * mib]);
});

test("what is in force is what the running engine started with, not what was decided since", () => {
  const former = decide({ sent: both(false) });
  const plane = decide({}, former);
  expect(plane).toMatchObject({ since: 1000, former: { tun: false, udp: false } });
  const off = { tun_offloads: false, udp_offloads: false };
  const on = { tun_offloads: true, udp_offloads: true };
  const shown = (startedAt: number | undefined, device?: boolean) =>
    dataPlaneInForce(plane, startedAt, device);
  const long = 1000 - 3_600_000;
  expect(shown(long)).toMatchObject({
    ...off,
    why: "restart",
    reason: "Offloads turn on at the engine's next start",
  });
  expect(shown(long, false)).toMatchObject({ ...off, why: "restart" });
  // The clock was set: the interface knows better.
  expect(shown(long, true)).toMatchObject(on);
  expect(shown(5000, true)).toEqual({ ...on, buffer_bytes: 4 * mib });
  expect(shown(5000, false)).toMatchObject({ ...off, udp_offloads: true, why: "refused" });
  expect(shown(undefined)).toMatchObject(on);
});

test("this machine's kernel is read", () => {
  const read = readKernel();
  expect(read.release).toMatch(/^\d+\.\d+/);
  expect(read.memory).toBeGreaterThan(16 * mib);
  expect(read.usualBuffer).toBeGreaterThan(1000);
});

describe("on a node", () => {
  const here = useSentConfig();
  const machineState = async () => ({
    ...emptyMachine,
    kernel: {
      ...emptyMachine.kernel,
      isLinux: true,
      release: process.platform === "linux" ? readKernel().release : "6.1.0",
      memory: 4 * 1024 ** 3,
    },
  });
  const inUse = (version: string, running = version) => ({
    ...noneInUse,
    isRunning: true,
    next: version,
    running,
    version,
  });
  const keys = () => dataPlaneKeys.map((each) => valueAt(here.present(), each));
  const decided = () => readSyncState(here.organization.directory)?.data_plane;

  async function sync(version: string, control = makeControl(), running = version) {
    const { system, log } = here.world;
    const deps = followDeps(here.world, here.organization);
    const result = await deps.withClient((client) =>
      syncOrganization(here.organization, {
        client,
        control,
        engine: inUse(version, running),
        command: "test",
        log,
        system: { ...system, sleep: async () => {}, machineState },
      }),
    );
    return { ...result, asked: control.asked };
  }
  const setOverrides = (overrides: YamlMap) =>
    here.world.api("PATCH", nodePath(here.organization), { config_overrides: overrides });

  test("an organization of a former version gets them by a reload, and the rest at the engine's next start", async () => {
    const { directory } = here.organization;
    await sync("1.12.0");
    const { data_plane: _, ...former } = readSyncState(directory) ?? {
      etag: "",
      config_version: 0,
      applied_at: "",
    };
    writeSyncState(directory, former);
    await setOverrides(both(false));
    await sync("1.12.0");
    writeSyncState(directory, { ...(readSyncState(directory) ?? former), data_plane: undefined });
    await setOverrides({});
    const { asked, restartPending } = await sync("1.12.0");
    expect(asked).toEqual(["reload"]);
    expect(restartPending.sort()).toEqual(["listen.udp_offloads", "tun.use_offloads"]);
    expect(keys()).toEqual([true, true, 4 * mib, 4 * mib]);
  });

  test("an older engine gets no key that it does not know, a newer one gets them again", async () => {
    await sync("1.12.0");
    expect(keys().slice(0, 2)).toEqual([true, true]);
    expect(await sync("1.6.1", makeControl(), "1.12.0")).toMatchObject({ result: "changed" });
    expect(keys()).toEqual([undefined, undefined, 4 * mib, 4 * mib]);
    expect(decided()).toMatchObject({ engine: "1.6.1", tun: { on: false, by: "engine" } });
    await sync("1.12.0", makeControl(), "1.6.1");
    expect(keys().slice(0, 2)).toEqual([true, true]);
  });

  test("an administrator's word restarts the engine at once, and its end waits", async () => {
    await sync("1.12.0");
    await setOverrides(both(false));
    expect((await sync("1.12.0")).asked).toEqual(["restart"]);
    expect(decided()).toMatchObject({ tun: { on: false, by: "organization" } });
    await setOverrides({});
    expect((await sync("1.12.0")).asked).toEqual(["reload"]);
    writeFileSync(join(here.organization.directory, "overrides.yml"), "tun: {use_offloads: false}\n");
    expect((await sync("1.12.0")).asked).toEqual(["restart"]);
    expect(decided()).toMatchObject({ tun: { on: false, by: "root" }, udp: { on: true } });
  });

  test("a check-in decides again when the engine of the next start is another one, and only then", async () => {
    await sync("1.12.0");
    const deps = followDeps(here.world, here.organization);
    let next = "1.11.1";
    const turn = () =>
      followOnce(
        here.organization,
        { ...deps, engine: async () => inUse(next, "1.11.1"), system: { ...deps.system, machineState } },
        { waitS: 0 },
      );
    // The control plane renders for the engine that runs.
    await turn();
    expect((await turn()).sync).toBeUndefined();
    next = "1.12.0";
    expect((await turn()).sync).toMatchObject({ result: "changed" });
    expect(keys().slice(0, 2)).toEqual([true, true]);
    expect((await turn()).sync).toBeUndefined();
  });

  test("before a start it is decided without the control plane, for the engine that starts", async () => {
    const { directory } = here.organization;
    await sync("1.11.1");
    writeFileSync(join(directory, "overrides.yml"), "listen: {port: 4250}\n");
    const deps = { command: "test", system: { ...here.world.system, machineState } };
    await decideForStart(here.organization, "1.12.0", deps);
    expect(keys()).toEqual([true, true, 4 * mib, 4 * mib]);
    // What no command applied stays out of it.
    expect(here.section("listen")["port"]).not.toBe(4250);
    writeTrial(directory, { ...trial, kernel: readKernel().release, reason: "Large packets were lost" });
    await decideForStart(here.organization, "1.12.0", deps);
    expect(keys().slice(0, 2)).toEqual([false, false]);
    expect(decided()).toMatchObject({ tun: { by: "traffic" }, reason: "Large packets were lost" });
    // A configuration from the control plane does not forget it.
    await sync("1.12.0");
    expect(keys().slice(0, 2)).toEqual([false, false]);
  });
});
