// `status --check` is 0 only while traffic passes: random faults and repairs, each told within 15 s, and not contradicted then.

import { expect, test } from "bun:test";
import { buildAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { dropFrom, makeHealingScene } from "../support/healing-scene.ts";
import { until } from "../support/members.ts";
import { instants, inFull } from "../support/soak.ts";

buildAgent();

/** Faults and repairs together. In full: 200 in four scenes. */
const scenes = inFull ? 4 : 1;
const perScene = inFull ? 25 : 4;

type Scene = Awaited<ReturnType<typeof makeHealingScene>>;
type Fault = { name: string; passes: boolean; make(scene: Scene): Promise<() => Promise<unknown> | void> };

const link = (who: "hub" | "a" | "b", passes = false): Fault => ({
  name: `the link of ${who} is down`,
  passes,
  make: async (scene) => {
    scene[who].host.link("down");
    return () => scene[who].host.link("up");
  },
});
const faults: Fault[] = [
  link("hub"),
  link("a"),
  // The network of a node works although a peer is gone.
  link("b", true),
  {
    name: "packets to the lighthouse are lost",
    passes: false,
    make: async ({ hub, a }) => dropFrom(hub.host, a.host.address).repair,
  },
  {
    name: "packets from the lighthouse are lost",
    passes: false,
    make: async ({ hub, a }) => dropFrom(a.host, hub.host.address).repair,
  },
  {
    name: "the lighthouse is stopped",
    passes: false,
    make: async ({ hub }) => {
      await command(hub.places, ["stop", "acme"]);
      return () => command(hub.places, ["start", "acme"]);
    },
  },
];

asRoot("agent status --check", () => {
  describeEngines(
    "tells the truth",
    ({ nebula }) => {
      test(`after ${2 * scenes * perScene} random faults and repairs, within 15 s each`, async () => {
        const order = instants(inFull ? scenes * perScene : 10 * perScene, faults.length).map(Math.floor);
        const seconds: number[] = [];
        const lane = async (at: number) => {
          await using scene = await makeHealingScene(nebula);
          const isPassing = async () => (await command(scene.a.places, ["status", "--check"])).status === 0;
          const told = async (what: string, passes: boolean) => {
            const from = performance.now();
            await until(what, async () => (await isPassing()) === passes, 15_000);
            seconds.push((performance.now() - from) / 1000);
            // Not by chance: the same is said twice more.
            for (let again = 0; again < 2; again++) expect([what, await isPassing()]).toEqual([what, passes]);
          };
          await until("traffic", isPassing, 30_000);
          for (const index of order.slice(at * perScene, (at + 1) * perScene)) {
            const fault = faults[index] ?? expect.unreachable();
            const repair = await fault.make(scene);
            await told(fault.name, fault.passes);
            await repair();
            await told(`repaired: ${fault.name}`, true);
          }
        };
        await Promise.all(Array.from({ length: scenes }, (_, at) => lane(at)));
        const sorted = seconds.toSorted((a, b) => a - b);
        const [median = 0, longest = 0] = [sorted[sorted.length >> 1], sorted.at(-1)];
        process.stderr.write(
          `${sorted.length} changes told after ${median.toFixed(1)} s (median), at most ${longest.toFixed(1)} s\n`,
        );
        expect(sorted).toHaveLength(2 * scenes * perScene);
      }, 1_200_000);
    },
    ["1.12"],
  );
});
