// The daemon with real engines: what it starts outlives it, what it is told happens, and no packet is lost meanwhile.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { backoffMs } from "../../src/daemon/lifecycle.ts";
import { Node, paths } from "../../src/protocol.ts";
import { buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import {
  ask,
  command,
  enginesOf,
  placesBelow,
  registerDesktop,
  startDaemon,
  statusOf,
  untilStatus,
} from "../support/daemon.ts";
import { bridgePort } from "../support/bridge.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { lost, makeLan, startPing, type Lan } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine, type Organization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const daemonKills = inFull ? 200 : 20;
/** Their delays add up: 7 s for three, a minute and more for six. */
const engineKills = inFull ? 6 : 3;

/** A lighthouse that runs, and a desktop node whose team the daemon is to hold. */
async function makeScene(directory: string, lan: Lan, nebula: string, acme: Organization) {
  const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
  const there = [
    "--is-lighthouse",
    "--public-ip",
    lan.host("lighthouse").address,
    "--overlay-binary",
    nebula,
  ];
  const lighthouse = await registerNode(acme, join(directory, "lighthouse"), "lighthouse", token, there);
  const places = placesBelow(join(directory, "desk"), nebula);
  await registerDesktop(acme, places, token, "desk");
  const engine = await startEngine(lan.host("lighthouse"), nebula, lighthouse.directory);
  return { lighthouse, places, engine };
}

asRoot("daemon", () => {
  describeEngines("the network outlives its daemon", ({ nebula }) => {
    test(`${daemonKills} times SIGKILL, and a hand-over: one engine, no packet lost; SIGTERM leaves nothing`, async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "desk"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const scene = await makeScene(directory.path, lan, nebula, await makeOrganization(plane));
      using lighthouseEngine = scene.engine;
      expect(lighthouseEngine.log()).toContain("is active");
      const { places, lighthouse } = scene;
      const host = lan.host("desk");
      let daemon = await startDaemon(host, places);
      const { pid } = await untilStatus(places, "acme", ({ state }) => state === "running");
      const ping = startPing(host, lighthouse.ip_address);
      await ping.reply(10_000);
      for (let round = 0; round < daemonKills; round++) {
        await Bun.sleep(round % 3 === 0 ? 250 : 20);
        daemon.signal("SIGKILL");
        await daemon.exited;
        daemon = await startDaemon(host, places);
        expect(await statusOf(places, "acme")).toMatchObject({ wanted: "up", pid });
        expect(enginesOf(places)).toEqual([pid ?? 0]);
      }
      daemon.signal("SIGUSR2");
      expect(await daemon.exited).toBe(0);
      expect(enginesOf(places)).toEqual([pid ?? 0]);
      daemon = await startDaemon(host, places);
      expect(await statusOf(places, "acme")).toMatchObject({ wanted: "up", pid });
      await ping.reply(1000);
      await ping.stop();
      expect(lost(ping)).toEqual([]);

      daemon.signal("SIGTERM");
      expect(await daemon.exited).toBe(0);
      expect(enginesOf(places)).toEqual([]);
      expect(host.run(["ip", "-o", "link"])).not.toContain("tun");
    }, 900_000);

    test("a daemon that is killed while its engine starts or stops leaves no second engine and no orphan", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "desk"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const scene = await makeScene(directory.path, lan, nebula, await makeOrganization(plane));
      using lighthouseEngine = scene.engine;
      expect(lighthouseEngine.log()).toContain("is active");
      const { places } = scene;
      const host = lan.host("desk");
      for (let round = 0; round < 12; round++) {
        const daemon = await startDaemon(host, places);
        const asked = ask(places, { action: round % 2 === 0 ? "restart" : "stop", team: "acme" }).catch(
          () => undefined,
        );
        await Bun.sleep(round * 4);
        daemon.signal("SIGKILL");
        await Promise.all([daemon.exited, asked]);
        const next = await startDaemon(host, places);
        const { wanted } = await statusOf(places, "acme");
        const goal = wanted === "up" ? "running" : "stopped";
        const { pid } = await untilStatus(places, "acme", ({ state }) => state === goal);
        expect(enginesOf(places)).toEqual(pid === undefined ? [] : [pid]);
        await ask(places, { action: "start", team: "acme" });
        next.signal("SIGKILL");
        await next.exited;
      }
      const last = await startDaemon(host, places);
      await ask(places, { action: "shutdown" });
      expect(await last.exited).toBe(0);
      expect(enginesOf(places)).toEqual([]);
    }, 120_000);

    test(`an engine that is killed ${engineKills} times comes back, without a leak of descriptors, routes or interfaces`, async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "desk"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const scene = await makeScene(directory.path, lan, nebula, await makeOrganization(plane));
      using lighthouseEngine = scene.engine;
      expect(lighthouseEngine.log()).toContain("is active");
      const { places } = scene;
      const host = lan.host("desk");
      const daemon = await startDaemon(host, places);
      const open = () =>
        Bun.spawnSync(["ls", `/proc/${daemon.pid}/fd`])
          .stdout.toString()
          .split("\n").length;
      const count = (...argv: string[]) => host.run(argv).split("\n").length;
      const taken = () => ({ links: count("ip", "-o", "link"), routes: count("ip", "route") });
      let { pid } = await untilStatus(places, "acme", ({ state }) => state === "running");
      const before = { open: open(), ...taken() };
      for (let round = 0; round < engineKills; round++) {
        process.kill(pid ?? 0, "SIGKILL");
        const killed = pid;
        const from = performance.now();
        ({ pid } = await untilStatus(
          places,
          "acme",
          (status) => status.state === "running" && status.pid !== killed,
          120_000,
        ));
        // Not before its delay. How long after it depends on the machine: at most half of it, and its start.
        expect(performance.now() - from).toBeGreaterThan(backoffMs(round, 0));
        expect(enginesOf(places)).toEqual([pid ?? 0]);
      }
      expect(taken()).toEqual({ links: before.links, routes: before.routes });
      expect(open()).toBeLessThanOrEqual(before.open + 1);
      daemon.signal("SIGTERM");
      await daemon.exited;
    }, 300_000);
  });

  describeEngines("an engine whose metrics are turned on", ({ nebula }) => {
    test("tells its peers", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "desk"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const scene = await makeScene(directory.path, lan, nebula, await makeOrganization(plane));
      using lighthouseEngine = scene.engine;
      expect(lighthouseEngine.log()).toContain("is active");
      const { places, lighthouse } = scene;
      const stats = "{type: prometheus, listen: '127.0.0.1:9100', path: /metrics, interval: 1s}";
      writeFileSync(join(places.configRoot, "acme", "overrides.yml"), `stats: ${stats}\n`);
      expect((await command(places, ["sync-config"])).status).toBe(0);
      const daemon = await startDaemon(lan.host("desk"), places);
      await untilStatus(
        places,
        "acme",
        ({ state, peers }) => state === "running" && peers !== undefined,
        30_000,
      );
      const ping = startPing(lan.host("desk"), lighthouse.ip_address);
      await ping.reply(20_000);
      await untilStatus(places, "acme", ({ peers }) => peers === 1, 30_000);
      expect((await command(places, ["status"])).stdout).toMatch(/PEERS .*\n.* 1 /);
      await ping.stop();
      daemon.signal("SIGTERM");
      expect(await daemon.exited).toBe(0);
    }, 120_000);
  });

  describeEngines("what changes on the control plane", ({ nebula }) => {
    test("is in force on the node at once, a revocation stops it, a restoration starts it again", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      const places = placesBelow(join(directory.path, "desk"), nebula);
      await registerDesktop(acme, places, await acme.makeToken(), "desk");
      using lan = makeLan(["desk"]);
      using bridge = await bridgePort(lan.host("desk"), directory.path, Number(new URL(plane.url).port));
      expect(bridge).toBeDefined();
      const daemon = await startDaemon(lan.host("desk"), places);
      const first = await untilStatus(
        places,
        "acme",
        ({ state, last_checkin_at }) => state === "running" && last_checkin_at !== undefined,
      );
      await Bun.sleep(300);

      const log = join(places.stateDb, "../logs/acme.log");
      const reloads = () => readFileSync(log, "utf8").match(/refreshed from disk/g)?.length ?? 0;
      const list = await (await acme.api("GET", paths.nodes("acme"))).json();
      const id = v.parse(v.array(Node), list).find(({ name }) => name === "desk")?.id ?? 0;
      const changed = await acme.api("PATCH", paths.node("acme", id), { groups: ["laptops"] });
      expect(changed.status).toBe(200);
      const from = performance.now();
      while (reloads() === 0 && performance.now() - from < 10_000) await Bun.sleep(5);
      expect(reloads()).toBeGreaterThan(0);
      expect((await statusOf(places, "acme")).pid).toBe(first.pid ?? 0);

      expect((await acme.api("DELETE", paths.node("acme", id))).status).toBe(204);
      await untilStatus(places, "acme", ({ state }) => state === "revoked");
      expect(enginesOf(places)).toEqual([]);
      const refused = await command(places, ["start", "acme"]);
      expect(refused.status).toBe(7);
      expect((await acme.api("POST", paths.restore("acme", id), {})).status).toBe(200);
      await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);
      daemon.signal("SIGTERM");
      expect(await daemon.exited).toBe(0);
    }, 120_000);
  });

  describeEngines("commands", ({ nebula }) => {
    test("status, start, stop, switch, logs do and say what they should; what collides is refused", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"));
      const places = placesBelow(join(directory.path, "desk"), nebula);
      const none = await command(places, ["status", "--json"]);
      expect([none.status, JSON.parse(none.stdout)]).toEqual([0, { daemon: { running: false }, teams: [] }]);
      for (const [slug, network] of [
        ["acme", "10.77.0.0/16"],
        ["beta", "10.77.128.0/17"],
      ] as const) {
        const organization = await makeOrganization(plane, slug, network);
        await registerDesktop(organization, places, await organization.makeToken(), "desk");
      }
      expect((await command(places, ["status"])).status).toBe(3);
      expect((await command(places, ["stop", "acme"])).status).toBe(3);
      using lan = makeLan(["desk"]);
      const daemon = await startDaemon(lan.host("desk"), places);
      await untilStatus(places, "acme", ({ state }) => state === "running");
      const beta = await statusOf(places, "beta");
      expect(beta).toMatchObject({ state: "waiting", wanted: "up" });
      expect(beta.message).toContain("beta cannot run beside acme: ");

      await command(places, ["stop", "beta"]);
      const refused = await command(places, ["start", "beta", "--json"]);
      expect([refused.status, JSON.parse(refused.stdout).error.code]).toEqual([1, "collision"]);
      expect((await statusOf(places, "beta")).wanted).toBe("down");

      const switched = await command(places, ["switch", "beta", "--json"]);
      expect(JSON.parse(switched.stdout)).toMatchObject({ team: "beta", pid: expect.any(Number) });
      expect(await statusOf(places, "beta")).toMatchObject({ state: "running", active: true });
      expect((await statusOf(places, "acme")).state).toBe("stopped");
      const status = await command(places, ["status"]);
      expect(status.status).toBe(0);
      expect(status.stdout.split("\n")[0]).toBe("1 of 2 teams running");
      const logs = await command(places, ["logs", "-n", "1", "beta"]);
      expect(logs.stdout.trim().split("\n")).toHaveLength(1);
      const plan = await command(places, ["stop", "beta", "--dry-run"]);
      expect(plan.stdout).toContain("stop beta");
      expect((await statusOf(places, "beta")).state).toBe("running");

      const other = await makeOrganization(plane, "delta", "10.77.0.0/24");
      await registerNode(other, places.configRoot, "srv", await other.makeToken());
      await ask(places, { action: "stop", team: "beta" });
      using engine = await startEngine(lan.host("desk"), nebula, join(places.configRoot, "delta"));
      expect(engine.log()).toContain("is active");
      const beside = await command(places, ["start", "acme", "--json"]);
      expect(JSON.parse(beside.stdout).error.message).toContain("acme cannot run beside delta: ");
      engine[Symbol.dispose]();
      await ask(places, { action: "start", team: "beta" });

      await ask(places, { action: "delete", team: "beta" });
      expect((await ask(places, { action: "teams" })).teams).toEqual(["acme"]);
      expect((await ask(places, { action: "provision" })).teams).toEqual(["beta"]);
      await untilStatus(places, "beta", ({ state }) => state === "running");
      const unknown = await runAgent(["start", "gamma", ...places.flags]);
      expect(unknown.status).toBe(4);
      daemon.signal("SIGTERM");
      expect(await daemon.exited).toBe(0);
    }, 120_000);
  });
});
