// Drills with real engines: the lighthouse and relay of two nodes is away for a while, and comes back by itself although its agent and its
// engine are killed.

import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Drill } from "../../src/api/drills/drills.ts";
import { agentJson, buildAgent } from "../support/agent.ts";
import { enginesOf, startDaemon, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import { nodesOf, until } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";

buildAgent();

const drillsPath = "/api/org/acme/drills/";
type Scene = Awaited<ReturnType<typeof makeHealingScene>>;

async function begin({ organization }: Scene, body: object): Promise<Drill> {
  const ask = async () => {
    const answer = await organization.api("POST", drillsPath, body);
    return { status: answer.status, text: await answer.text() };
  };
  let { status, text } = await ask();
  // Its engine runs already, but its first report may be under way.
  for (let tries = 0; tries < 100 && text.includes("does not check in now"); tries++) {
    await Bun.sleep(200);
    ({ status, text } = await ask());
  }
  if (status !== 201) throw new Error(text);
  return v.parse(Drill, JSON.parse(text));
}

async function find({ organization }: Scene, id: number): Promise<Drill> {
  const answer = await organization.api("GET", `${drillsPath}?id=${id}`);
  const [shown] = v.parse(v.array(Drill), await answer.json());
  if (shown === undefined) throw new Error("There is no drill");
  return shown;
}

async function ended(scene: Scene, id: number): Promise<Drill> {
  await until("the report", async () => (await find(scene, id)).state === "ended", 100_000);
  return find(scene, id);
}

/** The processes that carry out a drill for the agent with these paths. */
const runnersOf = ({ places }: Scene["hub"]): number[] =>
  readdirSync("/proc").flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const argv = readFileSync(join("/proc", pid, "cmdline"), "utf8").split("\0");
      return argv.includes("drill-run") && argv.includes(places.configRoot) ? [Number(pid)] : [];
    } catch {
      return [];
    }
  });

const tables = ({ host }: Scene["hub"]) => host.run(["nft", "list", "ruleset"]);
const isDead = (hub: Scene["hub"]) => /elements = \{ 4242 /.test(tables(hub));

asRoot("an agent", () => {
  describeEngines(
    "in a drill",
    ({ nebula }) => {
      test("nodes that talk keep talking, and the lighthouse is back by itself", async () => {
        await using scene = await makeHealingScene(nebula);
        const { hub, a, b } = scene;
        const pings = [startPing(a.host, b.ip), startPing(a.host, hub.ip), startPing(b.host, hub.ip)];
        await Promise.all(pings.map((ping) => ping.reply(20_000)));

        const { id } = await begin(scene, { kind: "lighthouse-away", for_s: 15 });
        await until("a dead port", () => isDead(hub), 20_000);
        const shown = await ended(scene, id);
        await Promise.all(pings.map((ping) => ping.stop()));
        expect(shown).toMatchObject({
          nodes: [{ node_name: "hub", state: "began" }],
          reported: 3,
          silent: { count: 0 },
          too_old: { count: 0 },
        });
        const lost = shown.losses.map((each) => [each.node_name, each.peer_name].toSorted().join(" "));
        expect(lost.toSorted()).toEqual(["a hub", "b hub"]);
        for (const { from_s: from, until_s: back } of shown.losses) {
          expect(Math.abs(from)).toBeLessThan(4);
          expect((back ?? 0) - from).toBeGreaterThan(14);
          expect((back ?? 0) - from).toBeLessThan(25);
        }
        await until("no table", () => !tables(hub).includes("drill"), 20_000);

        const second = await begin(scene, { kind: "lighthouse-away", for_s: 10 });
        await until("a dead port", () => isDead(hub), 20_000);
        const killed = [hub.daemon.pid, ...enginesOf(hub.places), ...runnersOf(hub)];
        expect(killed.length).toBeGreaterThan(2);
        for (const pid of killed) process.kill(pid, "SIGKILL");
        await until("the end of the kernel's own timeout", () => !isDead(hub), 20_000);
        expect(tables(hub)).toContain("overlay-agent-drill-acme");
        hub.daemon = await startDaemon(hub.host, hub.places);
        await untilStatus(hub.places, "acme", ({ state }) => state === "running", 60_000);
        const back = startPing(a.host, hub.ip);
        await back.reply(30_000);
        await back.stop();
        await until("no table", () => !tables(hub).includes("drill"), 20_000);
        await until("the reports of both nodes", async () => {
          const { silent, losses } = await find(scene, second.id);
          return silent.first.join() === "hub" && losses.length === 2;
        });
      }, 300_000);

      test("without the control plane nobody loses anybody, and nodes are heard again after it", async () => {
        await using scene = await makeHealingScene(nebula);
        const { a, b } = scene;
        const ping = startPing(a.host, b.ip);
        await ping.reply(20_000);
        // Nodes watch the peers whose paths they know when the order comes.
        await until("the paths of all", async () => {
          const shown = [scene.hub, a, b].map(({ places }) => agentJson(["peers", "acme", ...places.flags]));
          return (await Promise.all(shown)).every(
            (each) => JSON.stringify(each).split('"direct"').length === 3,
          );
        });
        const { id } = await begin(scene, { kind: "control-plane-away", for_s: 10 });
        const running = async () => (await find(scene, id)).state === "running";
        let last: number[] = [];
        while (await running()) {
          last = (await nodesOf(scene.organization)).map((each) => Date.parse(each.last_checkin_at ?? ""));
          await Bun.sleep(500);
        }
        const shown = await ended(scene, id);
        await ping.stop();
        // Heard before the drill began, and not again in it.
        expect(last.length).toBe(3);
        for (const at of last) expect(at).toBeLessThanOrEqual(Date.parse(shown.begins_at));
        expect(shown).toMatchObject({ nodes: [], reported: 3, losses: [], silent: { count: 0 } });
        expect(shown.watched).toBeGreaterThan(3);
        await until("check-ins", async () => {
          const nodes = await nodesOf(scene.organization);
          return nodes.every((each) => Date.parse(each.last_checkin_at ?? "") >= Date.parse(shown.ends_at));
        });
      }, 120_000);
    },
    ["1.12"],
  );
});
