// Finds nodes whose keys two machines use: a copied disk or virtual machine. Tunnels and configurations then alternate
// between both, and neither machine can know why. In memory, so with replicas both machines must have met the same one.

import { messageOf } from "../../../base/errors.ts";
import { separateCopy } from "../../../protocol/finding-kinds.ts";
import { record } from "../../audit/record.ts";
import type { ServerOptions } from "../../options.ts";
import { findNode } from "../../store/nodes.ts";

/**
 * A change of the machine that is reversed within this time shows two machines: a reboot never returns to a former
 * boot.
 */
const backMs = 600_000;
/** Two machines that each check in every minute alternate within two minutes. */
const lastsMs = 150_000;
/** A machine whose answers fail pauses longer, up to some minutes: the light must not change between two of its check-ins. */
const gapsLasted = 2.5;
const hourMs = 3_600_000;
const mostNodes = 200_000;
const mostChanged = 10_000;

type Sender = { orgId: number; nodeId: number; machine: string; address: string };
/**
 * `former`: the machine before the present one. `formerAt`, `clonedAt`, `recordedAt`: ms. `gapMs`: the longest time between two
 * changes while both were there.
 */
type Changed = { former: string; formerAt: number; clonedAt: number; recordedAt: number; gapMs: number };

export type Clones = {
  /** Notes the machine of a check-in. True if this one shows for the second time that there are two. */
  take(sender: Sender): boolean;
  /** Whether two machines use the node's keys now. */
  has(nodeId: number): boolean;
};

export function makeClones({ db, log, system }: Pick<ServerOptions, "db" | "log" | "system">): Clones {
  const machines = new Map<number, string>();
  const changed = new Map<number, Changed>();
  const has = (nodeId: number) => {
    const { clonedAt = -Infinity, gapMs = 0 } = changed.get(nodeId) ?? {};
    return system.now() - clonedAt < Math.max(lastsMs, gapsLasted * gapMs);
  };
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
      const { clonedAt = -Infinity, recordedAt = -Infinity, gapMs = 0 } = before ?? {};
      const awayMs = now - (before?.formerAt ?? now);
      const next: Changed = {
        former: present,
        formerAt: now,
        clonedAt: isBack ? now : clonedAt,
        gapMs: isBack ? Math.max(awayMs, now - clonedAt <= backMs ? gapMs : 0) : gapMs,
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
