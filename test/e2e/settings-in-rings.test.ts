// Settings of an organization that go through rings, with real engines in namespaces: harmful ones stop at the first node, which
// goes back by itself, also while the control plane is away; good ones reach all nodes.

import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Rollout, RolloutNode } from "../../src/api/rollouts.ts";
import { buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import {
  enginesOf,
  placesBelow,
  registerDesktop,
  startDaemon,
  untilStatus,
  type Places,
} from "../support/daemon.ts";
import { inCi } from "../support/debian.ts";
import { asRoot, engines, missing } from "../support/engines.ts";
import { makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, signIn, type Organization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const engine = engines.at(-1);
if (inCi && missing !== undefined) throw new Error(missing);

const names = ["lighthouse", "desk", "porch", "attic"];
const watchS = 12;
const backWithinMs = 60_000;
const pingEveryMs = 100;
/** The way of this network takes no packets that are sent together, and no larger ones than those of a tunnel of 1300 bytes. */
const former = { listen: { udp_offloads: false }, tun: { use_offloads: false } };

type Node = { name: string; host: Host; places: Places };

let stack: AsyncDisposableStack;
let plane: ControlPlane;
let acme: Organization;
let nodes: Node[];

async function start(nebula: string): Promise<void> {
  stack = new AsyncDisposableStack();
  const directory = stack.use(temporaryDirectory());
  const lan = stack.use(makeLan(names));
  plane = await startControlPlane(join(directory.path, "server"));
  stack.defer(async () => void (await plane.stop()));
  acme = await makeOrganization(plane);
  const changed = await acme.api("PATCH", "/api/org/acme/", { config_overrides: former });
  expect(changed.status).toBe(200);
  const token = await acme.makeToken(["--uses", "10", "--lighthouse"]);
  nodes = [];
  for (const name of names) {
    const host = lan.host(name);
    const overlay = join(directory.path, `${name}-engine`);
    copyFileSync(nebula, overlay);
    const places = placesBelow(join(directory.path, name), overlay);
    const flags = name === "lighthouse" ? ["--is-lighthouse", "--public-ip", host.address] : [];
    await registerDesktop(acme, places, token, name, flags);
    stack.use(await bridgePort(host, join(directory.path, name), Number(new URL(plane.url).port)));
    const daemon = await startDaemon(host, places);
    stack.defer(() => daemon.signal("SIGTERM"));
    nodes.push({ name, host, places });
    host.run(["nft", "add", "table", "inet", "way"]);
    host.run(["nft", "add chain inet way out { type filter hook output priority 0; }"]);
    host.run(["nft", "add rule inet way out meta l4proto udp meta length > 1400 drop"]);
  }
  for (const { places } of nodes) await untilStatus(places, "acme", ({ state }) => state === "running");
}

async function killPlane(): Promise<void> {
  process.kill(plane.pid, "SIGKILL");
  await plane.stop();
}
async function startPlane(): Promise<void> {
  const { port } = new URL(plane.url);
  plane = await startControlPlane(plane.dataDirectory, [], Number(port));
  acme = await signIn(plane, "acme");
}

const configOf = ({ places }: Node) => readFileSync(join(places.configRoot, "acme/config.yml"), "utf8");
/** Of the nodes but one: the process of the engine, and whether config.yml has this text. */
const others = (than: Node, mark: string) =>
  nodes
    .filter((node) => node !== than)
    .map((node) => [node.name, enginesOf(node.places), configOf(node).includes(mark)]);

async function begin(settings: object): Promise<Rollout> {
  for (let tries = 0; tries < 60; tries++) {
    const answer = await acme.api("POST", "/api/org/acme/rollouts/", { settings, watch_s: watchS });
    if (answer.status === 201) return v.parse(Rollout, await answer.json());
    // Nodes say with their next check-in that they can.
    await Bun.sleep(1000);
  }
  throw new Error("No rollout could be created");
}

async function until(id: number, isIt: (shown: Rollout) => boolean, ms: number): Promise<Rollout> {
  for (const giveUpAt = performance.now() + ms; ; await Bun.sleep(300)) {
    const answer = await acme.api("GET", `/api/org/acme/rollouts/${id}/`);
    const shown = v.parse(Rollout, await answer.json());
    if (isIt(shown)) return shown;
    if (performance.now() > giveUpAt) throw new Error(`It does not come about: ${JSON.stringify(shown)}`);
  }
}
const isEnded = ({ ended_at }: Rollout) => ended_at !== null;

async function stateOfMembers(id: number) {
  const answer = await acme.api("GET", `/api/org/acme/rollouts/${id}/nodes/`);
  return v.parse(v.array(RolloutNode), await answer.json());
}
/** The node that has changed. */
async function untilApplied(id: number): Promise<Node> {
  for (const giveUpAt = performance.now() + 60_000; performance.now() < giveUpAt; await Bun.sleep(200)) {
    const applied = (await stateOfMembers(id)).find(({ state }) => state === "applied");
    const node = nodes.find(({ name }) => name === applied?.node_name);
    if (node !== undefined) return node;
  }
  throw new Error("No node has changed");
}
async function untilBack(node: Node, mark: string): Promise<number> {
  const began = performance.now();
  for (; performance.now() - began < backWithinMs; await Bun.sleep(200)) {
    const ping = node.host.inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"]);
    if (!configOf(node).includes(mark) && Bun.spawnSync(ping).exitCode === 0)
      return performance.now() - began;
  }
  throw new Error(`${node.name} is not back`);
}
const overrides = async () => {
  const answer = await acme.api("GET", "/api/org/acme/");
  return v.parse(v.object({ config_overrides: v.unknown() }), await answer.json()).config_overrides;
};

asRoot("settings in rings", () => {
  beforeAll(async () => {
    if (engine !== undefined) await start(engine.nebula);
  }, 120_000);
  afterAll(async () => stack?.disposeAsync());
  beforeEach(async () => {
    // All tunnels are there, so that a change has something to break.
    for (const { host } of nodes ?? []) {
      const ping = startPing(host, "10.77.0.1");
      await ping.reply(20_000);
      await ping.stop();
    }
  }, 60_000);

  /** `mark`: what config.yml has with them. */
  const bad: Record<string, { settings: object; mark: string; probe: string }> = {
    "an MTU that breaks large packets": {
      settings: { ...former, tun: { ...former.tun, mtu: 1400 } },
      mark: "mtu: 1400",
      probe: "large packets",
    },
    "a list that allows no peer": {
      settings: { ...former, lighthouse: { remote_allow_list: { "0.0.0.0/0": false } } },
      mark: "remote_allow_list",
      probe: "packets of IPv4",
    },
    "offloads that the network breaks": {
      settings: {},
      mark: "udp_offloads: true",
      probe: "large packets",
    },
    "no interface": {
      settings: { ...former, tun: { ...former.tun, disabled: true } },
      mark: "disabled: true",
      probe: "small packets of IPv4",
    },
  };
  // The others take minutes: in long runs.
  const tried = Object.entries(bad).filter(([, { mark }]) => inFull || mark === "mtu: 1400");
  for (const [what, { settings, mark, probe }] of tried)
    test.skipIf(engine === undefined)(
      `${what}: stops at the first node, which goes back`,
      async () => {
        const before = new Map(nodes.map((node) => [node, others(node, mark)]));
        const { id } = await begin(settings);
        const node = await untilApplied(id);
        expect(configOf(node)).toContain(mark);
        const backMs = await untilBack(node, mark);
        const shown = await until(id, isEnded, 60_000);
        expect(shown).toMatchObject({ state: "stopped", ring: 1, failed_node: node.name });
        expect(shown.probe).toContain(probe);
        expect(backMs).toBeLessThan(backWithinMs);
        expect(await overrides()).toEqual(former);
        expect(others(node, mark)).toEqual(before.get(node) ?? []);
      },
      150_000,
    );

  test.skipIf(engine === undefined)(
    "the node goes back while the control plane is away, which then stops the rollout",
    async () => {
      const { id } = await begin({ ...former, tun: { ...former.tun, mtu: 1400 } });
      const node = await untilApplied(id);
      await killPlane();
      await untilBack(node, "mtu: 1400");
      await startPlane();
      const shown = await until(id, isEnded, 120_000);
      expect(shown).toMatchObject({ state: "stopped", ring: 1, failed_node: node.name });
      expect(shown.probe).toContain("large packets");
      expect(await overrides()).toEqual(former);
    },
    240_000,
  );

  test.skipIf(engine === undefined)(
    "good ones go through all nodes, over a kill of the control plane, and cut off none for a second",
    async () => {
      const settings = { ...former, punchy: { target_all_remotes: true }, tun: { ...former.tun, mtu: 1290 } };
      const lighthouse = nodes[0];
      if (lighthouse === undefined) return;
      const pings = nodes.slice(1).map(({ host }) => startPing(host, "10.77.0.1", pingEveryMs));
      for (const ping of pings) await ping.reply(20_000);
      const { id } = await begin(settings);
      await untilApplied(id);
      await killPlane();
      await Bun.sleep(3000);
      await startPlane();
      const shown = await until(id, isEnded, 200_000);
      expect(shown).toMatchObject({ state: "passed", reason: "" });
      expect(shown.rings.map(({ passed }) => passed)).toEqual([1, 3]);
      expect(await overrides()).toEqual(settings);
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
