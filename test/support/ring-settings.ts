// Settings of an organization that go through rings, on a network that only some settings suit.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { RolloutNode } from "../../src/api/rollouts.ts";
import { startPing } from "./namespaces.ts";
import { startRingNodes, type RingNode, type RingNodes } from "./ring-nodes.ts";

/** The settings before: the network takes no packets that are sent together, and no larger ones than those of a tunnel of 1300 bytes. */
export const former = { listen: { udp_offloads: false }, tun: { use_offloads: false } };

export const startNarrowNodes = (names: readonly string[], nebula: string): Promise<RingNodes> =>
  startRingNodes({
    names,
    nebula,
    overrides: former,
    prepare(host) {
      host.run(["nft", "add", "table", "inet", "way"]);
      host.run(["nft", "add chain inet way out { type filter hook output priority 0; }"]);
      host.run(["nft", "add rule inet way out meta l4proto udp meta length > 1400 drop"]);
    },
  });

/** All tunnels are there then, so that a change has something to break. */
export async function untilTunnels(nodes: readonly RingNode[]): Promise<void> {
  for (const { host } of nodes) {
    const ping = startPing(host, "10.77.0.1");
    await ping.reply(20_000);
    await ping.stop();
  }
}

export const configOf = ({ places }: RingNode): string =>
  readFileSync(join(places.configRoot, "acme/config.yml"), "utf8");

export async function overridesOf({ api }: RingNodes): Promise<unknown> {
  const answer = await api("GET", "/api/org/acme/");
  return v.parse(v.object({ config_overrides: v.unknown() }), await answer.json()).config_overrides;
}

/** The node that has changed. Throws with the members' states. */
export async function untilApplied({ api, nodes }: RingNodes, id: number): Promise<RingNode> {
  let members: RolloutNode[] = [];
  for (const giveUpAt = performance.now() + 60_000; performance.now() < giveUpAt; await Bun.sleep(200)) {
    const answer = await api("GET", `/api/org/acme/rollouts/${id}/nodes/`);
    members = v.parse(v.array(RolloutNode), await answer.json());
    const applied = members.find(({ state }) => state === "applied");
    const node = nodes.find(({ name }) => name === applied?.node_name);
    if (node !== undefined) return node;
  }
  throw new Error(`No node has changed: ${JSON.stringify(members)}`);
}
