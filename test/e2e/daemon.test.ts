// The daemon with real engines: what it starts outlives it, comes back when it ends, and no packet is lost meanwhile.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { backoffMs } from "../../src/daemon/lifecycle.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
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
import { asRoot, describeEngines } from "../support/engines.ts";
import { lost, makeLan, startPing, type Lan } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine, type Organization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

/** On each of three engines. */
const daemonKills = inFull ? 200 : 10;
/** Kills while an engine starts or stops, spread over the same 48 ms. */
const kills = inFull ? 12 : 4;
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
      await ping.reply(20_000);
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
      for (let round = 0; round < kills; round++) {
        const daemon = await startDaemon(host, places);
        const asked = ask(places, { action: round % 2 === 0 ? "restart" : "stop", team: "acme" }).catch(
          () => undefined,
        );
        await Bun.sleep((round * 48) / kills);
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
    }, 240_000);

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
      // An engine tells that it runs a moment before its route is there.
      const isRouted = () => until(() => host.run(["ip", "route"]).includes("10.77.0.0/16"));
      let { pid } = await untilStatus(places, "acme", ({ state }) => state === "running");
      await isRouted();
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
      await isRouted();
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
    }, 240_000);
  });
});
