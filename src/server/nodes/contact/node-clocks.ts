// Compares the clocks of nodes with that of this server. It decides nothing: what nodes say must not keep a server from
// signing. In memory, of the last nodes of each organization.

import { inWords } from "../../../base/quantities.ts";
import { clocksMayDifferMs } from "../../../protocol/finding-kinds.ts";
import type { CheckinRequest } from "../../../protocol/checkin.ts";
import type { ServerOptions } from "../../options.ts";

const mostOrganizations = 256;
/** Nodes of each organization whose clocks are kept: none outweighs another organization. */
const mostNodes = 32;
/** How long a node's clock counts: it checks in every minute. */
const lastsMs = 600_000;
/** Minimum number of nodes: fewer may all be wrong. */
const leastNodes = 3;

export const howToCompare =
  "Compare it with another clock. If this one is wrong, set it right (`timedatectl set-ntp true`); certificates are signed by it meanwhile.";

type Sender = { org: { id: number; slug: string }; nodeId: number };
type Told = { aheadMs: number; at: number };

export type NodeClocks = {
  /** Notes a node's clock. True: it is too far from this server's. */
  take(sender: Sender, request: Pick<CheckinRequest, "time">): boolean;
  /** One sentence, if most nodes of an organization agree that this server's clock is wrong. */
  doubt(): string | undefined;
};

export function makeNodeClocks({ system }: Pick<ServerOptions, "system">): NodeClocks {
  const known = new Map<number, { slug: string; nodes: Map<number, Told> }>();
  return {
    take({ org, nodeId }, { time }) {
      if (time === undefined) return false;
      const aheadMs = time * 1000 - system.now();
      const { nodes } = known.get(org.id) ?? { nodes: new Map<number, Told>() };
      // Latest last: the first one is removed for a new one.
      nodes.delete(nodeId);
      for (const [first] of nodes.size >= mostNodes ? nodes : []) {
        nodes.delete(first);
        break;
      }
      nodes.set(nodeId, { aheadMs, at: system.monotonic() });
      if (known.size >= mostOrganizations && !known.has(org.id)) known.clear();
      known.set(org.id, { slug: org.slug, nodes });
      return Math.abs(aheadMs) >= clocksMayDifferMs;
    },
    doubt() {
      for (const { slug, nodes } of known.values()) {
        const lately = [...nodes.values()].filter(({ at }) => system.monotonic() - at < lastsMs);
        const sides = [1, -1].map((sign) =>
          lately.filter(({ aheadMs }) => sign * aheadMs >= clocksMayDifferMs),
        );
        for (const off of sides) {
          if (off.length < leastNodes || off.length * 2 <= lately.length) continue;
          const [middle = 0] = off
            .map(({ aheadMs }) => aheadMs)
            .sort((a, b) => a - b)
            .slice(off.length >> 1);
          const by = `${inWords(Math.abs(middle))} ${middle > 0 ? "behind" : "ahead of"}`;
          return `The clock of this server is ${by} those of ${off.length} of the last ${lately.length} nodes of ${slug}.`;
        }
      }
      return undefined;
    },
  };
}
