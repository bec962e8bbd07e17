// The teams of a machine, with real files, a real store and real processes: a script stands in for the engine. Only the
// control plane is played.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { maxLogBytes } from "../../src/daemon/engine-logs.ts";
import { codeOf, makeTeamsWorld, stateOf, until, type TeamsWorld } from "../support/teams.ts";

let world: TeamsWorld;

beforeEach(() => {
  world = makeTeamsWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

test("desktop teams found in the config root are started, stay connected, and are taken over by the next daemon", async () => {
  world.register("acme");
  world.register("server", { octet: 78, mode: "server" });
  mkdirSync(join(world.configRoot, ".beta.pending"));
  const first = world.open();
  await until(() => stateOf(first.teams, "acme") === "running");
  expect(first.teams.slugs()).toEqual(["acme"]);
  expect(first.followed).toEqual(["acme"]);
  first.told[0]?.restartPending(["tun.dev"]);
  first.told[0]?.restartPending([]);
  first.told[0]?.restartPending(["listen.port", "tun.dev"]);
  const [status] = first.teams.status();
  expect(status).toMatchObject({
    team: "acme",
    state: "running",
    wanted: "up",
    ip_address: "10.77.0.5",
    last_checkin_at: "2026-11-20T12:00:00Z",
    restart_pending: ["tun.dev", "listen.port"],
  });
  await world.crash(first);
  const second = world.open();
  expect(second.teams.status()[0]).toMatchObject({
    pid: status?.pid,
    wanted: "up",
    restart_pending: ["tun.dev", "listen.port"],
  });
  await second.teams.restart("acme");
  expect(second.teams.status()[0]?.pid).not.toBe(status?.pid);
  expect(second.teams.status()[0]?.restart_pending).toBeUndefined();
});

test("a stopped team stays stopped and a forgotten one forgotten, across daemons, until somebody asks", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const first = world.open();
  await until(() => first.teams.status().every(({ state }) => state === "running"));
  await first.teams.stop("acme");
  await first.teams.forget("beta");
  await until(() => first.followed.length === 0);
  expect(first.notices.at(-1)).toEqual({ event: "gone", team: "beta" });
  await world.crash(first);

  const second = world.open();
  expect(second.teams.slugs()).toEqual(["acme"]);
  expect(stateOf(second.teams, "acme")).toBe("stopped");
  expect(second.teams.provision()).toEqual(["beta"]);
  await until(() => stateOf(second.teams, "beta") === "running");
  await second.teams.forget("beta");
  await second.teams.start("beta");
  expect(second.teams.slugs()).toEqual(["acme", "beta"]);
  expect(await codeOf(second.teams.start("gamma"))).toBe("not_registered");
  expect(await codeOf(second.teams.stop("gamma"))).toBe("unknown_team");
});

test("without autostart nothing is started, and what runs is kept", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const first = world.open();
  await until(() => first.teams.status().every(({ state }) => state === "running"));
  await first.teams.stop("beta");
  await world.crash(first);
  const second = world.open({ mayStart: false });
  await until(() => stateOf(second.teams, "acme") === "running");
  await second.teams.shutDown();
  await world.crash(second);
  const third = world.open({ mayStart: false });
  expect(third.teams.status().map(({ state }) => state)).toEqual(["stopped", "stopped"]);
});

test("teams that collide are refused before the second starts, in any order; switch changes places", async () => {
  world.register("acme");
  world.register("beta");
  const { teams } = world.open();
  await until(() => teams.status().filter(({ state }) => state === "running").length === 1);
  const [winner = "", loser = ""] =
    stateOf(teams, "acme") === "running" ? ["acme", "beta"] : ["beta", "acme"];
  expect(teams.status(loser)[0]?.message).toContain(`${loser} cannot run beside ${winner}: their networks`);
  expect(await codeOf(teams.start(loser))).toBe("collision");
  expect(teams.pid(loser)).toBeUndefined();
  await teams.switch(loser);
  expect(teams.status(loser)[0]).toMatchObject({ state: "running", active: true });
  expect(stateOf(teams, winner)).toBe("stopped");
});

test("an IPv6 network beside the other counts too", async () => {
  world.register("acme", { network6: "fd77::5/64" });
  world.register("beta", { octet: 78, network6: "fd77::9/64" });
  const { teams } = world.open({ mayStart: false });
  await teams.start("acme");
  expect(await codeOf(teams.start("beta"))).toBe("collision");
});

test("however many ask at once, a team gets one engine, and the last switch wins", async () => {
  world.register("acme");
  world.register("beta");
  const { teams } = world.open({ mayStart: false });
  await teams.forget("acme");
  await Promise.all([teams.start("acme"), teams.start("acme"), teams.start("acme")]);
  // Each leads a session of its own; what the script starts belongs to it.
  const engines = () =>
    Bun.spawnSync(["ps", "-eo", "pid=,sid=,args="])
      .stdout.toString()
      .split("\n")
      .filter((line) => line.includes(`-config ${world.configRoot}/`))
      .map((line) => line.trim().split(/ +/))
      .flatMap(([pid = "", session]) => (pid === session ? [pid] : []));
  expect(engines()).toEqual([String(teams.pid("acme"))]);
  await Promise.all([teams.switch("beta"), teams.switch("acme"), teams.switch("beta")]);
  expect(teams.status().map(({ team, state, active }) => [team, state, active])).toEqual([
    ["acme", "stopped", undefined],
    ["beta", "running", true],
  ]);
  expect(engines()).toEqual([String(teams.pid("beta"))]);
});

test("what many ask at once costs the machine and the control plane once", async () => {
  world.register("acme");
  const { teams, synced } = world.open({ mayStart: false });
  const outcomes = Array.from({ length: 50 }, () => teams.sync("acme"));
  await Bun.sleep(5);
  outcomes.push(...Array.from({ length: 50 }, () => teams.sync("acme")));
  const versions = (await Promise.all(outcomes)).map(({ configVersion }) => configVersion);
  expect([new Set(versions.slice(0, 50)), new Set(versions.slice(50))]).toEqual([new Set([1]), new Set([2])]);
  expect(synced).toEqual(["acme", "acme"]);
  await Promise.all(Array.from({ length: 50 }, () => teams.start("acme")));
  // Before it is granted, and before it is done.
  expect(readFileSync(join(world.directory, "engine.tests"), "utf8")).toBe("once\nonce\n");
});

test("a daemon that ends stops what is about to start, and refuses every change", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const { teams } = world.open({ mayStart: false });
  const asked = [codeOf(teams.start("acme")), codeOf(teams.start("beta"))];
  await Bun.sleep(1);
  const ended = teams.shutDown();
  const late = [teams.start("acme"), teams.stop("beta"), teams.switch("beta"), teams.restart("acme")];
  expect(await Promise.all(late.map(codeOf))).toEqual(["busy", "busy", "busy", "busy"]);
  expect(teams.provision()).toEqual([]);
  await ended;
  await Promise.all(asked);
  expect(teams.status().map(({ state, pid }) => [state, pid])).toEqual([
    ["stopped", undefined],
    ["stopped", undefined],
  ]);
});

test("an engine that runs is not stopped for one that would not start", async () => {
  world.register("acme");
  const { teams } = world.open();
  await until(() => stateOf(teams, "acme") === "running");
  const pid = teams.pid("acme");
  writeFileSync(join(world.configRoot, "acme", "config.yml"), "tun: [");
  expect(await codeOf(teams.restart("acme"))).toBe("bad_configuration");
  expect(teams.pid("acme")).toBe(pid);
  expect(stateOf(teams, "acme")).toBe("running");
});

test("an engine that runs is taken over and connected even where its configuration is damaged", async () => {
  world.register("acme");
  const first = world.open();
  await until(() => stateOf(first.teams, "acme") === "running");
  const pid = first.teams.pid("acme");
  let last = first;
  const config = join(world.configRoot, "acme", "config.yml");
  for (const damage of [() => writeFileSync(config, "tun: ["), () => rmSync(config)]) {
    await world.crash(last);
    damage();
    last = world.open();
    expect(last.teams.status()[0]).toMatchObject({ pid, wanted: "up" });
    expect(last.followed).toEqual(["acme"]);
  }
});

test("what forbids a start is the answer, and leaves things as they were", async () => {
  world.register("acme");
  const { teams } = world.open({ mayStart: false, engine: join(world.directory, "none") });
  expect(await codeOf(teams.start("acme"))).toBe("engine_missing");
  writeFileSync(
    join(world.configRoot, "acme", "auth-revoked.json"),
    JSON.stringify({ revoked_at: "2026-11-20T00:00:00Z", reason: "left", node_id: 77 }),
  );
  expect(await codeOf(teams.start("acme"))).toBe("access_revoked");
  expect(teams.status()[0]).toMatchObject({ state: "revoked", message: "Access was revoked: left" });
});

test("a team that is registered anew gets a new connection and a new engine", async () => {
  world.register("acme");
  const { teams, followed } = world.open();
  await until(() => stateOf(teams, "acme") === "running");
  const before = teams.pid("acme");
  expect(teams.provision()).toEqual([]);
  world.register("acme", { registeredAt: "2026-11-21T00:00:00Z" });
  expect(teams.provision()).toEqual(["acme"]);
  await until(() => stateOf(teams, "acme") === "running" && teams.pid("acme") !== before);
  await until(() => followed.length === 1);
});

test("a certificate that ends soon is said from fourteen days before", async () => {
  world.register("acme", { days: 10 });
  world.register("beta", { octet: 78, days: 20 });
  const { teams } = world.open({ mayStart: false });
  expect(teams.status().map(({ message }) => message)).toEqual(["The certificate ends in 9 days", undefined]);
  teams.tidy();
  teams.tidy();
  expect(world.said.filter((line) => line.includes("certificate"))).toEqual([
    'The certificate ends in 9 days {"team":"acme"}',
  ]);
});

test("a log that cannot be kept short costs nobody else's", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  const { teams } = world.open({ mayStart: false });
  const logs = join(world.configRoot, "../logs");
  mkdirSync(logs, { recursive: true });
  symlinkSync("acme.log", join(logs, "acme.log"));
  writeFileSync(join(logs, "beta.log"), "x".repeat(maxLogBytes + 1));
  teams.tidy();
  expect(world.said.join("\n")).toContain('A team cannot be tidied up {"team":"acme"');
  expect(statSync(join(logs, "beta.log")).size).toBe(0);
});

test("a damaged directory costs only its own team", async () => {
  world.register("acme");
  world.register("beta", { octet: 78 });
  writeFileSync(join(world.configRoot, "beta", "node-config.json"), "{");
  const { teams } = world.open();
  await until(() => stateOf(teams, "acme") === "running");
  expect(teams.slugs()).toEqual(["acme"]);
  expect(world.said.join("\n")).toContain("is left out");
});
