// Holds long polls by organization and node, and wakes them. Knows neither versions nor the database: a wake-up means
// "read again". Open a poll before the first read: then no change between the read and the wait is missed.

import type { System } from "../../base/system.ts";

/** Maximum open polls of one node. A further one ends the oldest. */
export const maxPollsPerNode = 32;

export type Poll = {
  /** True if something may have changed; false after `ms`, or when a newer poll of the node replaced this one. */
  wait(ms: number): Promise<boolean>;
  close(): void;
};

export type HeldPolls = {
  /** Opens a poll of the node, which its caller closes. */
  open(organizationId: number, nodeId: number): Poll;
  wakeOrganization(organizationId: number): void;
  wakeNode(organizationId: number, nodeId: number): void;
  /** Whether the node holds an open poll. */
  isHeld(organizationId: number, nodeId: number): boolean;
  /** The number of nodes of the organization that hold a poll. */
  heldIn(organizationId: number): number;
  /** The number of open polls. */
  waiting(): number;
  /** Answers all polls because the server stops. */
  close(): void;
};

/** `isWoken`: since the last wait. `isOver`: it waits no more. `wake`: ends the wait that goes on. */
type OpenPoll = { isWoken: boolean; isOver: boolean; wake: (() => void) | undefined };

export function makeHeldPolls(system: Pick<System, "sleep">): HeldPolls {
  /** The open polls by organization, then by node; of a node, the oldest first. */
  const open = new Map<number, Map<number, Set<OpenPoll>>>();
  let isClosed = false;

  const wakeAll = (polls: Iterable<OpenPoll>) => {
    for (const poll of polls) {
      poll.isWoken = true;
      poll.wake?.();
    }
  };

  return {
    open(organizationId, nodeId) {
      const nodes = open.getOrInsertComputed(organizationId, () => new Map());
      const own = nodes.getOrInsertComputed(nodeId, () => new Set());
      if (own.size >= maxPollsPerNode) endOldest(own);
      const poll: OpenPoll = { isWoken: false, isOver: isClosed, wake: undefined };
      own.add(poll);
      return {
        wait: (ms) => waitFor(poll, ms, system),
        close() {
          end(poll);
          own.delete(poll);
          // A later poll may have begun new sets.
          if (own.size === 0 && nodes.get(nodeId) === own) nodes.delete(nodeId);
          if (nodes.size === 0 && open.get(organizationId) === nodes) open.delete(organizationId);
        },
      };
    },
    wakeOrganization(organizationId) {
      for (const polls of open.get(organizationId)?.values() ?? []) wakeAll(polls);
    },
    wakeNode(organizationId, nodeId) {
      wakeAll(open.get(organizationId)?.get(nodeId) ?? []);
    },
    isHeld: (organizationId, nodeId) => open.get(organizationId)?.has(nodeId) === true,
    heldIn: (organizationId) => open.get(organizationId)?.size ?? 0,
    waiting() {
      let count = 0;
      for (const nodes of open.values()) {
        for (const polls of nodes.values()) count += polls.size;
      }
      return count;
    },
    close() {
      isClosed = true;
      for (const nodes of open.values()) {
        for (const polls of nodes.values()) polls.forEach(end);
      }
    },
  };
}

function endOldest(polls: Set<OpenPoll>): void {
  const [oldest] = polls;
  if (oldest === undefined) return;
  polls.delete(oldest);
  end(oldest);
}

function end(poll: OpenPoll): void {
  poll.isOver = true;
  poll.wake?.();
}

async function waitFor(poll: OpenPoll, ms: number, system: Pick<System, "sleep">): Promise<boolean> {
  if (!poll.isWoken && !poll.isOver && ms > 0) {
    const waiting = new AbortController();
    const woken = new Promise<void>((resolve) => {
      poll.wake = resolve;
    });
    // A wake-up aborts the timer; that is not a failure.
    const timer = system.sleep(ms, waiting.signal).catch(() => undefined);
    await Promise.race([woken, timer]);
    waiting.abort();
    poll.wake = undefined;
  }
  const wasWoken = poll.isWoken;
  poll.isWoken = false;
  return wasWoken;
}
