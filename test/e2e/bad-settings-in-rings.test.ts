// Settings of an organization that harm, with real engines in namespaces: they stop at the first node, which goes back by itself,
// also while the control plane is away. Long runs have four nodes and all settings. Otherwise two nodes have one: where no
// other nodes can be compared, the rollout stops 45 s sooner.

import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { buildAgent } from "../support/agent.ts";
import { enginesOf } from "../support/daemon.ts";
import { inCi } from "../support/debian.ts";
import { asRoot, engines, missing } from "../support/engines.ts";
import { fourNodes, isEnded, type RingNode, type RingNodes } from "../support/ring-nodes.ts";
import {
  configOf,
  former,
  overridesOf,
  startNarrowNodes,
  untilApplied,
  untilTunnels,
} from "../support/ring-settings.ts";
import { inFull } from "../support/soak.ts";

buildAgent();
const engine = engines.at(-1);
if (inCi && missing !== undefined) throw new Error(missing);

const watchS = 12;
const backWithinMs = 60_000;

/** `mark`: what config.yml has with them. */
type Bad = { settings: object; mark: string; probe: string };
const largeTunnel: Bad = {
  settings: { ...former, tun: { ...former.tun, mtu: 1400 } },
  mark: "mtu: 1400",
  probe: "large packets",
};
const bad: Record<string, Bad> = {
  "an MTU that breaks large packets": largeTunnel,
  "a list that allows no peer": {
    settings: { ...former, lighthouse: { remote_allow_list: { "0.0.0.0/0": false } } },
    mark: "remote_allow_list",
    probe: "packets of IPv4",
  },
  "offloads that the network breaks": { settings: {}, mark: "udp_offloads: true", probe: "large packets" },
  "no interface": {
    settings: { ...former, tun: { ...former.tun, disabled: true } },
    mark: "disabled: true",
    probe: "small packets of IPv4",
  },
};

let rings: RingNodes | undefined;

/** Waits until the node has the former settings, and a tunnel. */
async function untilBack(node: RingNode, mark: string): Promise<void> {
  const began = performance.now();
  for (; performance.now() - began < backWithinMs; await Bun.sleep(200)) {
    const ping = node.host.inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"]);
    if (!configOf(node).includes(mark) && Bun.spawnSync(ping).exitCode === 0) return;
  }
  throw new Error(`${node.name} is not back`);
}

/** Rolls them out, and ends when the rollout has stopped. `meanwhile`: when the first node has them; it ends when that is back. */
async function rollOut(
  { settings, mark, probe }: Bad,
  meanwhile: (rings: RingNodes, back: () => Promise<void>) => Promise<void>,
): Promise<void> {
  if (rings === undefined) throw new Error("No node has started");
  const { nodes } = rings;
  /** Of the nodes but one: the process of the engine, and whether config.yml has the mark. */
  const others = (than: RingNode) =>
    nodes
      .filter((node) => node !== than)
      .map((node) => [node.name, enginesOf(node.places), configOf(node).includes(mark)]);
  const before = new Map(nodes.map((node) => [node, others(node)]));
  const { id } = await rings.begin({ settings }, watchS);
  const node = await untilApplied(rings, id);
  expect(configOf(node)).toContain(mark);
  await meanwhile(rings, () => untilBack(node, mark));
  const shown = await rings.until(id, isEnded, 120_000);
  expect(shown).toMatchObject({ state: "stopped", ring: 1, failed_node: node.name });
  expect(shown.probe).toContain(probe);
  expect(await overridesOf(rings)).toEqual(former);
  expect(others(node)).toEqual(before.get(node) ?? []);
}

asRoot("bad settings in rings", () => {
  beforeAll(async () => {
    const names = inFull ? fourNodes : fourNodes.slice(0, 2);
    if (engine !== undefined) rings = await startNarrowNodes(names, engine.nebula);
  }, 120_000);
  afterAll(async () => rings?.[Symbol.asyncDispose]());
  beforeEach(async () => untilTunnels(rings?.nodes ?? []), 60_000);

  for (const [what, each] of inFull ? Object.entries(bad) : [])
    test.skipIf(engine === undefined)(
      `${what}: stops at the first node, which goes back`,
      () => rollOut(each, (_, back) => back()),
      200_000,
    );

  test.skipIf(engine === undefined)(
    "the node goes back while the control plane is away, which then stops the rollout",
    () =>
      rollOut(largeTunnel, async ({ killPlane, startPlane }, back) => {
        await killPlane();
        await back();
        await startPlane();
      }),
    240_000,
  );
});
