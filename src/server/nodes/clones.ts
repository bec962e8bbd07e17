// Finds nodes whose keys two machines use: a copied disk or virtual machine. Tunnels and configurations then alternate
// between both, and neither machine can know why. In memory, so with replicas both machines must have met the same one.

import { messageOf } from "../../errors.ts";
import { separateCopy } from "../../finding-kinds.ts";
import { record } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { findNode } from "../store/nodes.ts";

/** A machine that was another one for at most this time came back. A reboot never comes back to a former boot. */
const backMs = 600_000;
/** Two machines alternate within two minutes: each checks in every minute. */
const lastsMs = 150_000;
const hourMs = 3_600_000;
const mostNodes = 200_000;
const mostChanged = 10_000;

type Sender = { orgId: number; nodeId: number; machine: string; address: string };
/** `former`: the machine before the present one. `formerAt`, `clonedAt`, `recordedAt`: ms. */
type Changed = { former: string; formerAt: number; clonedAt: number; recordedAt: number };

export type Clones = {
  /** Takes what a check-in says of its machine. True: this one shows that there are two, and there was one before. */
  take(sender: Sender): boolean;
  /** Whether two machines use the node's keys now. */
  has(nodeId: number): boolean;
};

export function makeClones({ db, log, system }: Pick<ServerOptions, "db" | "log" | "system">): Clones {
  const machines = new Map<number, string>();
  const changed = new Map<number, Changed>();
  const has = (nodeId: number) => system.now() - (changed.get(nodeId)?.clonedAt ?? -Infinity) < lastsMs;
  const recordClone = async ({ orgId, nodeId, address }: Sender, at: number) => {
    await db.writeFor({ org: orgId }, async (tx) => {
      const { name, state } = await findNode(tx, orgId, nodeId);
      if (state !== "active") return;
      await record(tx, {
        orgId,
        at,
        type: "node.cloned",
        actor: { kind: "node", id: nodeId, ip: address },
        subject: `node/${nodeId}`,
        after: { name, cure: `On the copy alone: ${separateCopy}` },
      });
    });
  };
  return {
    has,
    take(sender) {
      const { nodeId, machine } = sender;
      const present = machines.get(nodeId);
      if (present === machine) return false;
      if (machines.size >= mostNodes) machines.clear();
      machines.set(nodeId, machine);
      if (present === undefined) return false;
      const now = system.now();
      const before = changed.get(nodeId);
      const isBack = before?.former === machine && now - before.formerAt <= backMs;
      const wasCloned = has(nodeId);
      const { clonedAt = -Infinity, recordedAt = -Infinity } = before ?? {};
      const next: Changed = {
        former: present,
        formerAt: now,
        clonedAt: isBack ? now : clonedAt,
        recordedAt: isBack && now - recordedAt >= hourMs ? now : recordedAt,
      };
      if (changed.size >= mostChanged) changed.clear();
      changed.set(nodeId, next);
      if (next.recordedAt !== recordedAt)
        recordClone(sender, now).catch((error: unknown) => {
          next.recordedAt = recordedAt;
          log.warn("A node whose keys two machines use cannot be recorded now", { reason: messageOf(error) });
        });
      return isBack && !wasCloned;
    },
  };
}
