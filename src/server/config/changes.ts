// Long polls, parked by organization and node, and what wakes them. Knows nothing of versions or of the database: a
// wake only says "look again". A poll is opened before its caller looks, so that no news can slip in between.

import type { System } from "../../system.ts";

/** Polls that one node may hold; beyond it the oldest is answered. */
export const maxPollsPerNode = 32;

export type Poll = {
  /** True when there may be news, false when `ms` are over or a newer poll of the node has pushed this one out. */
  wait(ms: number): Promise<boolean>;
  close(): void;
};

export type Changes = {
  open(organizationId: number, nodeId: number): Poll;
  wakeOrganization(organizationId: number): void;
  wakeNode(organizationId: number, nodeId: number): void;
  /** Whether the node holds a poll now. */
  isHeld(organizationId: number, nodeId: number): boolean;
  /** How many polls are open. */
  waiting(): number;
  /** Answers all polls, for a server that stops. */
  close(): void;
};

type Parked = { hasNews: boolean; isOver: boolean; ring: (() => void) | undefined };

export function makeChanges(system: Pick<System, "sleep">): Changes {
  const parked = new Map<number, Map<number, Set<Parked>>>();
  let closed = false;

  const ringAll = (polls: Iterable<Parked>) => {
    for (const poll of polls) {
      poll.hasNews = true;
      poll.ring?.();
    }
  };

  return {
    open(organizationId, nodeId) {
      const nodes = parked.get(organizationId) ?? new Map<number, Set<Parked>>();
      parked.set(organizationId, nodes);
      const own = nodes.get(nodeId) ?? new Set<Parked>();
      nodes.set(nodeId, own);
      if (own.size >= maxPollsPerNode) endOldest(own);
      const poll: Parked = { hasNews: false, isOver: closed, ring: undefined };
      own.add(poll);
      return {
        wait: (ms) => waitFor(poll, ms, system),
        close() {
          end(poll);
          own.delete(poll);
          if (own.size === 0 && nodes.get(nodeId) === own) nodes.delete(nodeId);
          if (nodes.size === 0 && parked.get(organizationId) === nodes) parked.delete(organizationId);
        },
      };
    },
    wakeOrganization(organizationId) {
      for (const polls of parked.get(organizationId)?.values() ?? []) ringAll(polls);
    },
    wakeNode(organizationId, nodeId) {
      ringAll(parked.get(organizationId)?.get(nodeId) ?? []);
    },
    isHeld: (organizationId, nodeId) => parked.get(organizationId)?.has(nodeId) === true,
    waiting() {
      let count = 0;
      for (const nodes of parked.values()) {
        for (const polls of nodes.values()) count += polls.size;
      }
      return count;
    },
    close() {
      closed = true;
      for (const nodes of parked.values()) {
        for (const polls of nodes.values()) polls.forEach(end);
      }
    },
  };
}

function endOldest(polls: Set<Parked>): void {
  for (const oldest of polls) {
    polls.delete(oldest);
    return end(oldest);
  }
}

function end(poll: Parked): void {
  poll.isOver = true;
  poll.ring?.();
}

async function waitFor(poll: Parked, ms: number, system: Pick<System, "sleep">): Promise<boolean> {
  if (!poll.hasNews && !poll.isOver && ms > 0) {
    const over = new AbortController();
    const rung = new Promise<void>((resolve) => {
      poll.ring = resolve;
    });
    // The timer ends by abort when the poll is rung; that is no failure.
    const timer = system.sleep(ms, over.signal).catch(() => undefined);
    await Promise.race([rung, timer]);
    over.abort();
    poll.ring = undefined;
  }
  const hadNews = poll.hasNews;
  poll.hasNews = false;
  return hadNews;
}
