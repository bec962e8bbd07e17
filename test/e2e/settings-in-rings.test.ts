// Settings of an organization that suit its network, with real engines in namespaces: they go through all nodes in rings.
// bad-settings-in-rings.test.ts has those that harm.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { buildAgent } from "../support/agent.ts";
import { inCi } from "../support/debian.ts";
import { asRoot, engines, missing } from "../support/engines.ts";
import { startPing } from "../support/namespaces.ts";
import { fourNodes, isEnded, type RingNodes } from "../support/ring-nodes.ts";
import { configOf, former, overridesOf, startNarrowNodes, untilApplied } from "../support/ring-settings.ts";

buildAgent();
const engine = engines.at(-1);
if (inCi && missing !== undefined) throw new Error(missing);

const watchS = 12;
const pingEveryMs = 100;
const settings = { ...former, punchy: { target_all_remotes: true }, tun: { ...former.tun, mtu: 1290 } };

let rings: RingNodes | undefined;

asRoot("good settings in rings", () => {
  beforeAll(async () => {
    if (engine !== undefined) rings = await startNarrowNodes(fourNodes, engine.nebula);
  }, 120_000);
  afterAll(async () => rings?.[Symbol.asyncDispose]());

  test.skipIf(engine === undefined)(
    "go through all nodes, over a kill of the control plane, and cut off none for a second",
    async () => {
      if (rings === undefined) throw new Error("No node has started");
      const { nodes } = rings;
      const pings = nodes.slice(1).map(({ host }) => startPing(host, "10.77.0.1", pingEveryMs));
      for (const ping of pings) await ping.reply(20_000);
      const { id } = await rings.begin({ settings }, watchS);
      await untilApplied(rings, id);
      await rings.killPlane();
      await Bun.sleep(3000);
      await rings.startPlane();
      const shown = await rings.until(id, isEnded, 200_000);
      expect(shown).toMatchObject({ state: "passed", reason: "" });
      expect(shown.rings.map(({ passed }) => passed)).toEqual([1, 3]);
      expect(await overridesOf(rings)).toEqual(settings);
      for (const node of nodes) expect(configOf(node)).toContain("mtu: 1290");
      for (const ping of pings) {
        await ping.stop();
        const numbers = ping.replies.map(({ seq }) => seq);
        const sent = (numbers.at(-1) ?? 0) - (numbers[0] ?? 0) + 1;
        process.stderr.write(`${sent - numbers.length} of ${sent} pings lost\n`);
        // Its own engine starts again, and that of the lighthouse.
        expect((sent - numbers.length) * pingEveryMs).toBeLessThan(1000);
      }
      // The organization has them, and nodes keep them.
      await Bun.sleep(3000);
      for (const node of nodes) expect(configOf(node)).toContain("mtu: 1290");
    },
    300_000,
  );
});
