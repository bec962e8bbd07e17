// Compares the clocks of nodes with that of this server, and warns. It decides nothing: what nodes say must not keep a server
// from signing. Kept in memory, of the nodes of each organization that checked in last.

import { inWords } from "../../../base/quantities.ts";
import { clocksMayDifferMs } from "../../../protocol/finding-kinds.ts";
import type { CheckinRequest } from "../../../protocol/checkin.ts";
import type { ServerOptions } from "../../options.ts";

const mostOrganizations = 256;
/** How many nodes of each organization are kept: no organization takes the room of another. */
const mostNodes = 32;
/** How long a node's clock counts: it checks in every minute. */
const lastsMs = 600_000;
/** Minimum number of nodes: fewer may all be wrong. */
const leastNodes = 3;

export const howToCompare =
  "Compare it with another clock. If this one is wrong, set it right (`timedatectl set-ntp true`); certificates are signed by it meanwhile.";

type Sender = { org: { id: number; slug: string }; nodeId: number };
/** How far the node's clock is ahead of this server's; negative: behind. `at`: when it said that, by the monotonic clock, ms. */
type Reading = { aheadMs: number; at: number };

export type NodeClocks = {
  /** Notes a node's clock. True: it is too far from this server's. */
  take(sender: Sender, request: Pick<CheckinRequest, "time">): boolean;
  /** One sentence, if most nodes of an organization agree that this server's clock is wrong. */
  doubt(): string | undefined;
};

export function makeNodeClocks({ system }: Pick<ServerOptions, "system">): NodeClocks {
  /** By the id of the organization; the readings by the id of the node. */
  const known = new Map<number, { slug: string; readings: Map<number, Reading> }>();
  return {
    take({ org, nodeId }, { time }) {
      if (time === undefined) return false;
      const aheadMs = time * 1000 - system.now();
      const { readings } = known.get(org.id) ?? { readings: new Map<number, Reading>() };
      // In the order of the readings, so that the oldest makes room for a new one.
      readings.delete(nodeId);
      const [oldest] = readings.keys();
      if (oldest !== undefined && readings.size >= mostNodes) readings.delete(oldest);
      readings.set(nodeId, { aheadMs, at: system.monotonic() });
      if (known.size >= mostOrganizations && !known.has(org.id)) known.clear();
      known.set(org.id, { slug: org.slug, readings });
      return Math.abs(aheadMs) >= clocksMayDifferMs;
    },
    doubt() {
      for (const { slug, readings } of known.values()) {
        const recent = [...readings.values()].filter(({ at }) => system.monotonic() - at < lastsMs);
        const nodesAhead = recent.filter(({ aheadMs }) => aheadMs >= clocksMayDifferMs);
        const nodesBehind = recent.filter(({ aheadMs }) => -aheadMs >= clocksMayDifferMs);
        for (const agreeing of [nodesAhead, nodesBehind]) {
          if (agreeing.length < leastNodes || agreeing.length * 2 <= recent.length) continue;
          const sorted = agreeing.map(({ aheadMs }) => aheadMs).sort((a, b) => a - b);
          const medianMs = sorted[sorted.length >> 1] ?? 0;
          const by = `${inWords(Math.abs(medianMs))} ${medianMs > 0 ? "behind" : "ahead of"}`;
          return `The clock of this server is ${by} those of ${agreeing.length} of the last ${recent.length} nodes of ${slug}.`;
        }
      }
      return undefined;
    },
  };
}
