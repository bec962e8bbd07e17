// Finds nodes whose keys two machines use: a copied disk or virtual machine. Tunnels and configurations then alternate
// between both, and neither machine can know why. Kept in memory: of several servers, both machines must have met the same one.

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
/** A node counts as cloned for this time after the last such change: two machines that check in every minute alternate in two. */
const lastsMs = 150_000;
/**
 * Longer for a node whose changes come more slowly, by so many times its longest gap: a machine whose answers fail pauses for some
 * minutes, and the finding must not come and go between two of its check-ins.
 */
const gapsLasted = 2.5;
/** A node gets one event in this time at most. */
const eventEveryMs = 3_600_000;
const mostNodes = 200_000;
const mostChanged = 10_000;

type Sender = { orgId: number; nodeId: number; machine: string; address: string };
/**
 * The changes of a node's machine. Times are ms of the monotonic clock: after the clock was set back, a finding must not last until it
 * has caught up.
 */
type Changes = {
  /** The machine before the present one, and when the present one came. */
  former: string;
  changedAt: number;
  /** The last change back to a former machine. */
  clonedAt: number;
  /** The last event about it. */
  recordedAt: number;
  /** The longest time between two changes while both machines were there. */
  gapMs: number;
};

export type Clones = {
  /** Notes the machine of a check-in. True if this one shows that there are two machines, and it was not known already. */
  take(sender: Sender): boolean;
  /** Whether two machines use the node's keys now. */
  has(nodeId: number): boolean;
};

export function makeClones({ db, log, system }: Pick<ServerOptions, "db" | "log" | "system">): Clones {
  /** The present machine of each node, and the changes of those that had another one. By the id of the node. */
  const machines = new Map<number, string>();
  const changed = new Map<number, Changes>();
  const has = (nodeId: number) => {
    const { clonedAt = -Infinity, gapMs = 0 } = changed.get(nodeId) ?? {};
    return system.monotonic() - clonedAt < Math.max(lastsMs, gapsLasted * gapMs);
  };
  const recordClone = async ({ orgId, nodeId, address }: Sender) => {
    await db.writeFor({ org: orgId }, async (tx) => {
      const { name, state } = await findNode(tx, orgId, nodeId);
      if (state !== "active") return;
      await record(tx, {
        orgId,
        at: system.now(),
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
      const now = system.monotonic();
      const last = changed.get(nodeId);
      const isBack = last?.former === machine && now - last.changedAt <= backMs;
      const wasCloned = has(nodeId);
      const { changedAt = now, clonedAt = -Infinity, recordedAt = -Infinity, gapMs = 0 } = last ?? {};
      // The gaps of an earlier time, when two machines were there as well, do not count any more.
      const countedGapMs = now - clonedAt <= backMs ? gapMs : 0;
      const isEventDue = isBack && now - recordedAt >= eventEveryMs;
      const next: Changes = {
        former: present,
        changedAt: now,
        clonedAt: isBack ? now : clonedAt,
        gapMs: isBack ? Math.max(now - changedAt, countedGapMs) : gapMs,
        recordedAt: isEventDue ? now : recordedAt,
      };
      if (changed.size >= mostChanged) changed.clear();
      changed.set(nodeId, next);
      if (isEventDue)
        recordClone(sender).catch((error: unknown) => {
          // The next change back tries again.
          next.recordedAt = recordedAt;
          log.warn("A node whose keys two machines use cannot be recorded now", { reason: messageOf(error) });
        });
      return isBack && !wasCloned;
    },
  };
}
