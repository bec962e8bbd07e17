// What a rollout that is being begun would do, in words. Pure.

import { ringEnds } from "../../protocol/updates/rings.ts";
import { compareVersions, isVersion } from "../../protocol/updates/version.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { plural } from "../words/numbers.ts";

type Versions = Record<"agent" | "engine", string>;
type Known = Pick<ListedNode, "agent_version" | "overlay_version">;

/** "1.12.0 on 12 nodes, 1.10.1 on 3", the highest first. */
export function runningWords(nodes: readonly Known[], key: keyof Known): string {
  const known = Map.groupBy(nodes, (node) => node[key] ?? "");
  return [...known]
    .filter(([version]) => isVersion(version))
    .toSorted(([a], [b]) => compareVersions(b, a))
    .map(([version, { length }]) => `${version} on ${plural(length, "node")}`)
    .join(", ");
}

/** The nodes whose agent or engine is known to be older. "": the rollout does not change that part. */
export const olderThan = <N extends Known>(nodes: readonly N[], { agent, engine }: Versions): N[] => {
  const isOlder = (wanted: string, has: string | null) =>
    isVersion(wanted) && has !== null && isVersion(has) && compareVersions(has, wanted) < 0;
  return nodes.filter((node) => isOlder(agent, node.agent_version) || isOlder(engine, node.overlay_version));
};

type EngineSettings = Record<string, unknown>;

/** The MTU in settings of the engine; "" if they have none. */
export const mtuOf = (settings: EngineSettings = {}): string => `${Object(settings["tun"]).mtu ?? ""}`;

/** The settings with another MTU; "": without one. */
export function withMtu({ tun, ...others }: EngineSettings = {}, mtu: string): EngineSettings {
  const { mtu: _, ...ofTun } = Object(tun);
  const next = mtu === "" ? ofTun : { ...ofTun, mtu: Number(mtu) };
  return Object.keys(next).length === 0 ? others : { ...others, tun: next };
}

type Plan = { count: number; watchMinutes: number; hours: readonly string[]; isSettings: boolean };

/** What a rollout of so many nodes does, in its order. */
export function planOf({ count, watchMinutes, hours, isSettings }: Plan): string[] {
  const ends = ringEnds(count);
  const when = hours.length === 0 ? "" : ` at ${hours.join(" ")}, each node's own time`;
  return [
    ...ends.map((end, at) => {
      const size = end - (ends[at - 1] ?? 0);
      const last =
        at > 0 && at === ends.length - 1 ? ", lighthouses, relays, routers and exits at the end" : "";
      return `Ring ${at + 1}: ${plural(size, "node")}${last}${when}, watched for ${plural(watchMinutes, "minute")}.`;
    }),
    isSettings
      ? "If a node does not work with them, all nodes go back. At the end they are the organization's."
      : "If a node does not work with it, its ring goes back, and no other begins.",
  ];
}
