// The daemon as its clients meet it, with real engines: commands, and what changes on the control plane.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Node } from "../../src/protocol/node.ts";
import { paths } from "../support/paths.ts";
import { agent, buildAgent, cleanEnvironment, runAgent, startControlPlane } from "../support/agent.ts";
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
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

/** A command that goes on until Ctrl-C, and what it has printed. */
function watch(words: string[]) {
  const child = Bun.spawn([agent, ...words], {
    env: cleanEnvironment(),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  let text = "";
  const reading = (async () => {
    for await (const chunk of child.stdout) text += new TextDecoder().decode(chunk);
  })();
  return {
    async until(pattern: string) {
      for (let waited = 0; !new RegExp(pattern).test(text); waited += 20) {
        if (waited > 30_000) throw new Error(`Waited in vain for ${pattern} in:\n${text}`);
        await Bun.sleep(20);
      }
    },
    async stop() {
      child.kill("SIGINT");
      await reading;
    },
  };
}

asRoot("the daemon's clients", () => {
  describeEngines("what changes on the control plane", ({ nebula }) => {
    test("is in force on the node at once; away, it stops nothing; a revocation does, a restoration starts it again", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      const places = placesBelow(join(directory.path, "desk"), nebula);
      await registerDesktop(acme, places, await acme.makeToken(), "desk");
      using lan = makeLan(["desk"]);
      const connect = () => bridgePort(lan.host("desk"), directory.path, Number(new URL(plane.url).port));
      const bridge = await connect();
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

      // Away, the control plane stops nothing; back, it is found again.
      bridge[Symbol.dispose]();
      const away = "The control plane gives no usable answer";
      for (let waited = 0; !daemon.log().includes(away); waited += 50) {
        expect(waited).toBeLessThan(30_000);
        await Bun.sleep(50);
      }
      const alone = await statusOf(places, "acme");
      expect(alone).toMatchObject({ state: "running", pid: first.pid });
      using again = await connect();
      expect(again).toBeDefined();
      await untilStatus(places, "acme", (now) => now.last_checkin_at !== alone.last_checkin_at, 60_000);
      expect((await statusOf(places, "acme")).pid).toBe(first.pid ?? 0);

      expect((await acme.api("PATCH", paths.organization("acme"), { alive_interval: 7 })).status).toBe(200);
      const pending = "timers.connection_alive_interval";
      const waits = await untilStatus(places, "acme", ({ restart_pending: keys }) => keys !== undefined);
      expect([waits.restart_pending, waits.pid]).toEqual([[pending], first.pid]);
      expect((await command(places, ["status"])).stdout).toContain(`acme: ${pending} will apply after`);
      await ask(places, { action: "restart", team: "acme" });
      expect((await statusOf(places, "acme")).restart_pending).toBeUndefined();

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
      expect(status.stdout).toStartWith("1 of 2 organizations running");
      const logs = await command(places, ["logs", "-n", "1", "beta"]);
      expect(logs.stdout.trim().split("\n")).toHaveLength(1);
      const watching = watch(["status", "--watch", "--json", ...places.flags]);
      const following = watch(["logs", "-f", "-n", "0", "beta", ...places.flags]);
      await watching.until('"state":"running"');
      await command(places, ["restart", "beta"]);
      await following.until("Nebula interface is active");
      await command(places, ["stop", "beta"]);
      await watching.until('"state":"stopped".*"state":"stopped"');
      await command(places, ["start", "beta"]);
      await Promise.all([watching.stop(), following.stop()]);
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
