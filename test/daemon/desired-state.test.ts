// What a user wants of an organization in desktop mode, and what the daemon does about it: start and stop of a revoked
// organization, a failed switch, registrations that end or begin while no daemon runs.

import { afterEach, beforeEach, expect, spyOn, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openState, removeRecordWithoutDaemon, stateLockPath } from "../../src/daemon/state.ts";
import { AppError } from "../../src/base/errors.ts";
import { OrganizationHealth } from "../../src/node/health/organization-health.ts";
import { lockFile } from "../../src/platform/file-lock.ts";
import { rejection } from "../pki/thrown.ts";
import { codeOf, makeEnginesWorld, stateOf, type EnginesWorld } from "../support/organization-engines.ts";
import { until } from "../support/until.ts";

let world: EnginesWorld;

beforeEach(() => {
  world = makeEnginesWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

const notePath = (slug: string) => join(world.configRoot, slug, "auth-revoked.json");
const revoke = (slug: string) =>
  writeFileSync(
    notePath(slug),
    JSON.stringify({ revoked_at: "2026-11-20T00:00:00Z", reason: "left", node_id: 77 }),
  );
const isWanted = (engines: ReturnType<EnginesWorld["open"]>["engines"], slug: string) =>
  engines.status(slug)[0]?.wanted;

for (const verb of ["start", "restart"] as const) {
  test(`${verb} of a revoked organization is refused, and remembered also by the next daemon`, async () => {
    world.register("acme");
    revoke("acme");
    const first = world.open();
    await first.engines.stop("acme");
    expect(first.engines.status()[0]).toMatchObject({ state: "revoked", wanted: "down" });
    const refused = await rejection(first.engines[verb]("acme"));
    expect([refused.code, refused.exitStatus]).toEqual(["access_revoked", 7]);
    expect(refused.message).toBe("The access of acme was revoked: left");
    expect(refused.details.hint).toContain("remembered");
    expect(first.engines.status()[0]).toMatchObject({ state: "revoked", wanted: "up" });
    expect(first.followed).toEqual(["acme"]);
    await world.crash(first);
    rmSync(notePath("acme"));
    const second = world.open();
    await until(() => stateOf(second.engines, "acme") === "running");
  });
}

test("start of an organization that was restored while it was stopped asks the control plane, and runs", async () => {
  world.register("acme");
  revoke("acme");
  const { engines, synced, whenSynced } = world.open();
  await engines.stop("acme");
  whenSynced(() => rmSync(notePath("acme")));
  await engines.start("acme");
  expect(synced).toEqual(["acme"]);
  expect(engines.status()[0]).toMatchObject({ state: "running", wanted: "up" });
});

test("a stop while a start asks the control plane wins, and so does the end of the daemon", async () => {
  world.register("acme");
  for (const how of ["stop", "shutDown"] as const) {
    revoke("acme");
    const made = world.open();
    const { engines, whenSynced, followed } = made;
    await engines.stop("acme");
    await until(() => followed.length === 0);
    let ended: Promise<void> | undefined;
    whenSynced(() => {
      rmSync(notePath("acme"));
      ended = engines[how]("acme");
    });
    expect(await codeOf(engines.start("acme"))).toBe("busy");
    await ended;
    expect([stateOf(engines, "acme"), followed.length]).toEqual(["stopped", 0]);
    await world.crash(made);
  }
});

test("a stopped organization stays stopped when an order restores it", async () => {
  world.register("acme");
  revoke("acme");
  const { engines, controls } = world.open();
  await until(() => controls.length === 1);
  expect(await controls[0]?.wanted?.()).toBe(true);
  await engines.stop("acme");
  expect(await controls[0]?.wanted?.()).toBe(false);
});

test("an order that comes during a start gives access_revoked, not the engine's failure", async () => {
  world.register("acme");
  const { engines } = world.open({ mayStart: false });
  const started = codeOf(engines.start("acme"));
  revoke("acme");
  expect(await started).toBe("access_revoked");
  expect(engines.status()[0]).toMatchObject({ state: "revoked", wanted: "up" });
});

for (const verb of ["start", "switch"] as const) {
  test(`an order that ends the engine during a ${verb} is the reason that the ${verb} gives`, async () => {
    world.register("acme");
    world.register("beta");
    const { engines } = world.open({ mayStart: false });
    await engines.start("acme");
    await engines.stop("acme");
    const config = join(world.configRoot, "beta", "config.yml");
    writeFileSync(config, 'tun: {dev: "o-beta"} # is revoked meanwhile, ends at once\n');
    const refused = await rejection(engines[verb]("beta"));
    expect([refused.code, refused.exitStatus]).toEqual(["access_revoked", 7]);
    expect(refused.message).toContain("The access of beta was revoked: left");
  });
}

test("a failed switch leaves everything as before: the former organizations run", async () => {
  world.register("acme");
  world.register("beta");
  world.register("gamma", { octet: 78 });
  const { engines, store } = world.open({ mayStart: false });
  await engines.switch("acme");
  await engines.start("gamma");
  writeFileSync(join(world.configRoot, "beta", "config.yml"), 'tun: {dev: "o-beta"} # ends at once\n');
  const failed = await rejection(engines.switch("beta"));
  expect(failed.code).toBe("engine_failed");
  expect(failed.message).toMatch(/^beta does not start: .*; started again: acme, gamma$/);
  expect(engines.status().map(({ team, state, wanted }) => [team, state, wanted])).toEqual([
    ["acme", "running", "up"],
    ["beta", "stopped", "down"],
    ["gamma", "running", "up"],
  ]);
  expect(store.active()).toBe("acme");
});

test("a switch to a revoked organization changes nothing", async () => {
  world.register("acme");
  world.register("beta");
  const { engines } = world.open({ mayStart: false });
  await engines.start("acme");
  const pid = engines.pid("acme");
  revoke("beta");
  expect(await codeOf(engines.switch("beta"))).toBe("access_revoked");
  expect(engines.pid("acme")).toBe(pid);
  expect(isWanted(engines, "beta")).toBe("up");
});

test("a daemon that is killed during a switch has stored both desired states, or none", async () => {
  world.register("acme");
  world.register("beta");
  const first = world.open({ mayStart: false });
  await first.engines.start("acme");
  await first.engines.stop("beta");
  const seen = new Set<string>();
  const look = () => {
    const stored = first.store.records();
    seen.add(`${stored.get("acme")?.wanted} ${stored.get("beta")?.wanted} ${first.store.active()}`);
  };
  look();
  const ended = new AbortController();
  const switching = first.engines.switch("beta").finally(() => ended.abort());
  for (; !ended.signal.aborted; look()) await Bun.sleep(0);
  await switching;
  expect([...seen].sort()).toEqual(["down up beta", "up down undefined"]);
});

test("unregistered and registered again while no daemon ran, an organization starts", async () => {
  world.register("acme");
  const first = world.open();
  await until(() => stateOf(first.engines, "acme") === "running");
  await first.engines.forget("acme");
  await until(() => first.followed.length === 0);
  await world.crash(first);
  world.register("acme", { registeredAt: "2026-11-21T00:00:00Z" });
  const second = world.open();
  await until(() => stateOf(second.engines, "acme") === "running");
});

test("without a daemon the record of an unregistered organization is removed; a running daemon keeps its database", async () => {
  world.register("acme");
  const first = world.open({ mayStart: false });
  await first.engines.switch("acme");
  await first.engines.stop("acme");
  await world.crash(first);
  const path = join(world.directory, "state.db");
  const held = lockFile(stateLockPath(path));
  expect(removeRecordWithoutDaemon(path, "acme", world.log, Date.now, world.configRoot)).toBe(false);
  held?.release();
  expect(removeRecordWithoutDaemon(path, "acme", world.log, Date.now, world.configRoot)).toBe(true);
  const store = openState(path, world.log, Date.now);
  expect([store.records().size, store.active()]).toEqual([0, undefined]);
  store.close();
  const absent = join(world.directory, "none.db");
  expect(removeRecordWithoutDaemon(absent, "acme", world.log, Date.now, world.configRoot)).toBe(true);
  const second = world.open();
  await until(() => stateOf(second.engines, "acme") === "running");
});

test("a daemon that was not told drops what is unregistered, or is now in server mode; a damaged one stays", async () => {
  const octets = { acme: 77, beta: 78, gamma: 79 };
  for (const [slug, octet] of Object.entries(octets)) world.register(slug, { octet });
  const { engines } = world.open();
  await until(() => engines.status().every(({ state }) => state === "running"));
  rmSync(join(world.configRoot, "acme"), { recursive: true });
  world.register("beta", { octet: 78, mode: "server", registeredAt: "2026-11-21T00:00:00Z" });
  writeFileSync(join(world.configRoot, "gamma", "node-config.json"), "{");
  engines.tidy();
  await until(() => engines.slugs().join() === "gamma");
  engines.tidy();
  expect(stateOf(engines, "gamma")).toBe("running");
});

test("a daemon that was not told uses a new registration after its next round", async () => {
  world.register("acme");
  const first = world.open();
  await until(() => stateOf(first.engines, "acme") === "running");
  const pid = first.engines.pid("acme");
  world.register("acme", { registeredAt: "2026-11-21T00:00:00Z" });
  first.engines.tidy();
  await until(() => first.engines.pid("acme") !== pid && stateOf(first.engines, "acme") === "running");
  const next = first.engines.pid("acme");
  await world.crash(first);
  world.register("acme", { registeredAt: "2026-11-22T00:00:00Z" });
  const second = world.open();
  await until(() => second.engines.pid("acme") !== next && stateOf(second.engines, "acme") === "running");
});

test("a full disk refuses a start, and nothing is changed", async () => {
  world.register("acme");
  const { engines, store } = world.open({ mayStart: false });
  await engines.stop("acme");
  await engines.forget("acme");
  store.putRecords = () => {
    throw new AppError("disk_full", "no space");
  };
  using watch = spyOn(OrganizationHealth.prototype, "run");
  expect(await codeOf(engines.start("acme"))).toBe("disk_full");
  expect(engines.slugs()).toEqual([]);
  expect(watch.mock.calls.map(([signal]) => signal.aborted)).toEqual([true]);
});

test("a damaged state database starts nothing that a user stopped, and status says what happened", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const first = world.open();
  await until(() => first.engines.status().every(({ state }) => state === "running"));
  await first.engines.stop("acme");
  await world.crash(first);
  writeFileSync(join(world.directory, "state.db"), "not a database ".repeat(500));
  const { engines } = world.open();
  await until(() => stateOf(engines, "beta") === "running");
  expect(engines.status("acme")[0]).toMatchObject({ state: "stopped", wanted: "down" });
  for (const { message } of engines.status()) expect(message).toContain("The state database was damaged");
});
