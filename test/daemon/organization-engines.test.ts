// The organizations of a machine with real files, a real store and real processes: a script replaces the engine. Only the
// control plane is faked.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chownSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { maxLogBytes } from "../../src/daemon/engine-logs.ts";
import { codeOf, makeEnginesWorld, stateOf, type EnginesWorld } from "../support/organization-engines.ts";
import { until } from "../support/until.ts";

let world: EnginesWorld;

beforeEach(() => {
  world = makeEnginesWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

test("desktop organizations in the config root start, stay connected, and the next daemon adopts their engines", async () => {
  world.register("acme");
  world.register("server", { octet: 78, mode: "server" });
  mkdirSync(join(world.configRoot, ".beta.pending"));
  const first = world.open();
  await until(() => stateOf(first.engines, "acme") === "running");
  expect(first.engines.slugs()).toEqual(["acme"]);
  expect(first.followed).toEqual(["acme"]);
  first.news[0]?.restartPending(["tun.dev"]);
  first.news[0]?.restartPending([]);
  first.news[0]?.restartPending(["listen.port", "tun.dev"]);
  const confirm = { until: "2026-11-27T12:00:00Z", url: "https://vpn.example.org/console/acme/" };
  first.news[0]?.confirmation(confirm);
  const [status] = first.engines.status();
  expect(status).toMatchObject({
    team: "acme",
    state: "running",
    wanted: "up",
    ip_address: "10.77.0.5",
    last_checkin_at: "2026-11-20T12:00:00Z",
    restart_pending: ["tun.dev", "listen.port"],
    confirm,
  });
  await world.crash(first);
  const second = world.open();
  expect(second.engines.status()[0]).toMatchObject({
    pid: status?.pid,
    wanted: "up",
    restart_pending: ["tun.dev", "listen.port"],
    confirm,
  });
  // The user confirmed it, or the control plane is one that says nothing of it.
  second.news[0]?.confirmation(undefined);
  expect(second.engines.status()[0]?.confirm).toBeUndefined();
  await second.engines.restart("acme");
  expect(second.engines.status()[0]?.pid).not.toBe(status?.pid);
  expect(second.engines.status()[0]?.restart_pending).toBeUndefined();
});

test("across daemons, a stopped organization stays stopped and a forgotten one forgotten until a request", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const first = world.open();
  await until(() => first.engines.status().every(({ state }) => state === "running"));
  await first.engines.stop("acme");
  await first.engines.forget("beta");
  await until(() => first.followed.length === 0);
  expect(first.notices.at(-1)).toEqual({ event: "gone", team: "beta" });
  await world.crash(first);

  const second = world.open();
  expect(second.engines.slugs()).toEqual(["acme"]);
  expect(stateOf(second.engines, "acme")).toBe("stopped");
  expect(second.engines.provision()).toEqual(["beta"]);
  await until(() => stateOf(second.engines, "beta") === "running");
  await second.engines.forget("beta");
  await second.engines.start("beta");
  expect(second.engines.slugs()).toEqual(["acme", "beta"]);
  expect(await codeOf(second.engines.start("gamma"))).toBe("not_registered");
  expect(await codeOf(second.engines.stop("gamma"))).toBe("unknown_team");
});

test("without autostart no engine starts, and running engines are adopted", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const first = world.open();
  await until(() => first.engines.status().every(({ state }) => state === "running"));
  await first.engines.stop("beta");
  await world.crash(first);
  const second = world.open({ mayStart: false });
  await until(() => stateOf(second.engines, "acme") === "running");
  await second.engines.shutDown();
  await world.crash(second);
  const third = world.open({ mayStart: false });
  expect(third.engines.status().map(({ state }) => state)).toEqual(["stopped", "stopped"]);
});

test("colliding organizations: the second start is refused in any order; switch exchanges them", async () => {
  world.register("acme");
  world.register("beta");
  const { engines } = world.open();
  await until(() => engines.status().filter(({ state }) => state === "running").length === 1);
  const [winner = "", loser = ""] =
    stateOf(engines, "acme") === "running" ? ["acme", "beta"] : ["beta", "acme"];
  expect(engines.status(loser)[0]?.message).toContain(`${loser} cannot run beside ${winner}: their networks`);
  expect(await codeOf(engines.start(loser))).toBe("collision");
  expect(engines.pid(loser)).toBeUndefined();
  await engines.switch(loser);
  expect(engines.status(loser)[0]).toMatchObject({ state: "running", active: true });
  expect(stateOf(engines, winner)).toBe("stopped");
});

test("overlapping IPv6 networks collide too", async () => {
  world.register("acme", { network6: "fd77::5/64" });
  world.register("beta", { octet: 78, network6: "fd77::9/64" });
  const { engines } = world.open({ mayStart: false });
  await engines.start("acme");
  expect(await codeOf(engines.start("beta"))).toBe("collision");
});

test("simultaneous starts give one engine, and the last switch wins", async () => {
  world.register("acme");
  world.register("beta");
  const { engines } = world.open({ mayStart: false });
  await engines.forget("acme");
  await Promise.all([engines.start("acme"), engines.start("acme"), engines.start("acme")]);
  // Each engine leads its own session, so only session leaders count.
  const leaders = () =>
    Bun.spawnSync(["ps", "-eo", "pid=,sid=,args="])
      .stdout.toString()
      .split("\n")
      .filter((line) => line.includes(`-config ${world.configRoot}/`))
      .map((line) => line.trim().split(/ +/))
      .flatMap(([pid = "", session]) => (pid === session ? [pid] : []));
  expect(leaders()).toEqual([String(engines.pid("acme"))]);
  await Promise.all([engines.switch("beta"), engines.switch("acme"), engines.switch("beta")]);
  expect(engines.status().map(({ team, state, active }) => [team, state, active])).toEqual([
    ["acme", "stopped", undefined],
    ["beta", "running", true],
  ]);
  expect(leaders()).toEqual([String(engines.pid("beta"))]);
});

test("simultaneous requests share one sync and one test of the configuration", async () => {
  world.register("acme");
  const { engines, synced } = world.open({ mayStart: false });
  const outcomes = Array.from({ length: 50 }, () => engines.sync("acme"));
  await Bun.sleep(5);
  outcomes.push(...Array.from({ length: 50 }, () => engines.sync("acme")));
  const versions = (await Promise.all(outcomes)).map(({ configVersion }) => configVersion);
  expect([new Set(versions.slice(0, 50)), new Set(versions.slice(50))]).toEqual([new Set([1]), new Set([2])]);
  expect(synced).toEqual(["acme", "acme"]);
  await Promise.all(Array.from({ length: 50 }, () => engines.start("acme")));
  // Once before the start is accepted, and once before it is executed.
  expect(readFileSync(join(world.directory, "engine.tests"), "utf8")).toBe("once\nonce\n");
});

test("start and restart make a pausing connection ask the control plane at once", async () => {
  world.register("acme");
  const { engines, news } = world.open();
  let asked = 0;
  news[0]?.paused(() => (asked += 1));
  await engines.start("acme");
  expect(asked).toBe(1);
  await engines.restart("acme");
  expect(asked).toBe(2);
  news[0]?.paused(undefined);
  await engines.start("acme");
  expect(asked).toBe(2);
});

test("an ending daemon stops engines that are about to start, and refuses every change", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const { engines } = world.open({ mayStart: false });
  const asked = [codeOf(engines.start("acme")), codeOf(engines.start("beta"))];
  await Bun.sleep(1);
  const ended = engines.shutDown();
  const late = [engines.start("acme"), engines.stop("beta"), engines.switch("beta"), engines.restart("acme")];
  expect(await Promise.all(late.map(codeOf))).toEqual(["busy", "busy", "busy", "busy"]);
  expect(engines.provision()).toEqual([]);
  await ended;
  await Promise.all(asked);
  expect(engines.status().map(({ state, pid }) => [state, pid])).toEqual([
    ["stopped", undefined],
    ["stopped", undefined],
  ]);
});

test("a restart with a broken configuration keeps the running engine", async () => {
  world.register("acme");
  const { engines } = world.open();
  await until(() => stateOf(engines, "acme") === "running");
  const pid = engines.pid("acme");
  writeFileSync(join(world.configRoot, "acme", "config.yml"), "tun: [");
  expect(await codeOf(engines.restart("acme"))).toBe("bad_configuration");
  expect(engines.pid("acme")).toBe(pid);
  expect(stateOf(engines, "acme")).toBe("running");
});

test("a running engine is adopted and connected even with a damaged configuration", async () => {
  world.register("acme");
  const first = world.open();
  await until(() => stateOf(first.engines, "acme") === "running");
  const pid = first.engines.pid("acme");
  let last = first;
  const config = join(world.configRoot, "acme", "config.yml");
  for (const damage of [() => writeFileSync(config, "tun: ["), () => rmSync(config)]) {
    await world.crash(last);
    damage();
    last = world.open();
    expect(last.engines.status()[0]).toMatchObject({ pid, wanted: "up" });
    expect(last.followed).toEqual(["acme"]);
  }
});

test("a refused start answers with the reason and changes nothing", async () => {
  world.register("acme");
  const { engines } = world.open({ mayStart: false, engine: join(world.directory, "none") });
  expect(await codeOf(engines.start("acme"))).toBe("engine_missing");
  writeFileSync(
    join(world.configRoot, "acme", "auth-revoked.json"),
    JSON.stringify({ revoked_at: "2026-11-20T00:00:00Z", reason: "left", node_id: 77 }),
  );
  expect(await codeOf(engines.start("acme"))).toBe("access_revoked");
  expect(engines.status()[0]).toMatchObject({ state: "revoked", message: "Access was revoked: left" });
});

test("registering again gives a new connection and a new engine", async () => {
  world.register("acme");
  const { engines, followed } = world.open();
  await until(() => stateOf(engines, "acme") === "running");
  const before = engines.pid("acme");
  expect(engines.provision()).toEqual([]);
  world.register("acme", { registeredAt: "2026-11-21T00:00:00Z" });
  expect(engines.provision()).toEqual(["acme"]);
  await until(() => stateOf(engines, "acme") === "running" && engines.pid("acme") !== before);
  await until(() => followed.length === 1);
});

test("a warning appears fourteen days before the certificate ends", async () => {
  world.register("acme", { days: 10 });
  world.register("beta", { octet: 78, days: 20 });
  const { engines } = world.open({ mayStart: false });
  expect(engines.status().map(({ message }) => message)).toEqual([
    "The certificate ends in 9 days",
    undefined,
  ]);
  engines.tidy();
  engines.tidy();
  expect(world.logged.filter((line) => line.includes("certificate"))).toEqual([
    'The certificate ends in 9 days {"team":"acme"}',
  ]);
});

test("a log that cannot be rotated does not affect the other logs", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const { engines } = world.open({ mayStart: false });
  const logs = join(world.configRoot, "../logs");
  mkdirSync(logs, { recursive: true });
  symlinkSync("acme.log", join(logs, "acme.log"));
  writeFileSync(join(logs, "beta.log"), "x".repeat(maxLogBytes + 1));
  engines.tidy();
  expect(world.logged.join("\n")).toContain('Cannot rotate the log of an organization {"team":"acme"');
  expect(statSync(join(logs, "beta.log")).size).toBe(0);
});

test("a damaged directory affects only its own organization", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  writeFileSync(join(world.configRoot, "beta", "node-config.json"), "{");
  const { engines } = world.open();
  await until(() => stateOf(engines, "acme") === "running");
  expect(engines.slugs()).toEqual(["acme"]);
  expect(world.logged.join("\n")).toContain("Cannot load an organization");
});

test.skipIf(process.getuid?.() !== 0)("root's daemon does not run an engine of another user", async () => {
  world.register("acme");
  const { engines } = world.open({ mayStart: false });
  chownSync(join(world.directory, "engine"), 12_345, 0);
  expect(await codeOf(engines.start("acme"))).toBe("engine_failed");
  chownSync(join(world.directory, "engine"), 0, 0);
  await engines.start("acme");
});
