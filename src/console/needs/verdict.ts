// The verdict on top of Overview: whether all is well, in one sentence. Pure.

import type { Attention } from "../../api/paths/attention.ts";
import type { GroupPaths } from "../../api/paths/paths.ts";
import type { SignName } from "../ui/drawings.ts";
import { capitalized } from "../words/capitalized.ts";
import { plural } from "../words/numbers.ts";
import { isRed } from "./need-kinds.ts";
import { lighthousesLeft } from "./need-rows.ts";

export type Verdict = {
  sign: SignName;
  words: string;
  /** A lighthouse is away: what that means, for the panel whose line turns red. */
  alarm?: { id: number; name: string; facts: string };
};

/** `cut`: how many paths have no other way than a relay that is away. */
type Broken = Pick<GroupPaths["totals"], "broken" | "cut">;

/**
 * Whether all is well, in one sentence. `hubs_away`: lighthouses and relays that are away. `count`: of all needs. `totals`: of all
 * paths; undefined until they are read.
 */
export function verdictOf(attention: Attention, totals: Broken | undefined, count: number): Verdict {
  const { active, online, hubs_away, cloned, not_applied } = attention;
  if (active === 0) return { sign: "off", words: "No node is registered" };
  if (online === 0) return { sign: "need", words: `None of ${plural(active, "node")} is online` };
  const lighthouse = hubs_away.first.find(({ is_lighthouse }) => is_lighthouse);
  const relay = hubs_away.first.find(({ is_lighthouse }) => !is_lighthouse);
  const isRelayRed = isRed("relay", totals?.cut);
  const relayAway = relay && `relay ${relay.name} is away`;
  const broken = totals?.broken ?? 0;
  const lackingPeers = attention.broken_paths.count;
  const redFacts = textsIn([
    lighthouse && `Lighthouse ${lighthouse.name} is away`,
    online * 2 < active && `only ${online} of ${active} nodes are online`,
    broken > 0
      ? `${plural(broken, "path")} ${broken === 1 ? "is" : "are"} broken`
      : lackingPeers > 0 && `${plural(lackingPeers, "node")} lack peers`,
    isRelayRed && relayAway,
    cloned.count > 0 && `${plural(cloned.count, "node")} with copied keys`,
  ]);
  const amberFacts = textsIn([
    !isRelayRed && relayAway,
    not_applied.count > 0 && `${plural(not_applied.count, "node")} without the newest configuration`,
  ]);
  // Two facts can be read at a glance; the rows below have all.
  const [first, second] = [...redFacts, ...amberFacts];
  if (first === undefined) return { sign: "on", words: count === 0 ? "All is well" : "The network is well" };
  const words = `${capitalized(first)}${second === undefined ? "" : `, ${second}`}`;
  if (lighthouse === undefined) return { sign: redFacts.length > 0 ? "need" : "warn", words };
  const left = lighthousesLeft(attention);
  const found =
    left <= 0
      ? "Nodes that have not talked before do not find each other until it is back."
      : `New tunnels are found by ${left === 1 ? "the other lighthouse" : `the other ${left} lighthouses`} alone.`;
  const lost =
    lackingPeers === 0 ? "No node has lost a peer." : `${plural(lackingPeers, "node")} lost peers.`;
  return {
    sign: "need",
    words,
    alarm: {
      id: lighthouse.id,
      name: lighthouse.name,
      facts: `Tunnels that are up stay up. ${found} ${lost}`,
    },
  };
}

const textsIn = (all: readonly unknown[]) => all.filter((each) => typeof each === "string");
