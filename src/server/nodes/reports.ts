// What check-ins report: kept in memory, the last of each node, and written together within a second.

import type { CheckinRequest } from "../../protocol.ts";
import type { NodeRecord } from "./node-records.ts";
import type { Services } from "../services.ts";
import { writeSightings, type Sighting } from "../store/sightings.ts";

export type Reports = {
  /** `applied`: the version whose files the node has; unset where it did not say. */
  add(nodeId: number, at: number, request?: CheckinRequest, applied?: number): void;
  /** The node with what is not written yet. */
  onto(node: NodeRecord): NodeRecord;
};

const flushMs = 500;
/** A write of so many is short enough for everybody else's to wait behind it. */
const maxTogether = 256;

export function makeReports({ db, log, atStop }: Pick<Services, "db" | "log" | "atStop">): Reports {
  const waiting = new Map<number, Sighting>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const schedule = () => {
    // Half a second of check-ins may be lost with the process; nodes report again.
    timer ??= setTimeout(() => void flush(), flushMs).unref();
  };
  let running: Promise<void> | undefined;
  const flush = () => (running ??= write().finally(() => (running = undefined)));
  const write = async () => {
    // In the order of the table, so that a group touches few of its pages.
    const all = [...waiting.values()].sort((a, b) => a.nodeId - b.nodeId);
    waiting.clear();
    for (let first = 0; first < all.length; first += maxTogether) {
      const batch = all.slice(first, first + maxTogether);
      try {
        await db.write((tx) => writeSightings(tx, batch));
      } catch (error) {
        // The disk refuses: all is kept for the next time, but what came later wins over it.
        for (const each of all.slice(first)) if (!waiting.has(each.nodeId)) waiting.set(each.nodeId, each);
        log.warn("check-ins cannot be written now", { reason: String(error) });
        break;
      }
    }
    timer = undefined;
    if (waiting.size > 0) schedule();
  };
  atStop(async () => {
    await running;
    await flush();
    clearTimeout(timer);
  });
  return {
    add(nodeId, at, request, applied) {
      const before = waiting.get(nodeId);
      waiting.set(nodeId, {
        nodeId,
        at,
        version: request?.version ?? before?.version ?? null,
        uptime: request?.uptime ?? before?.uptime ?? null,
        overlayState: request?.overlay_state ?? before?.overlayState ?? null,
        applied: applied ?? before?.applied ?? null,
      });
      schedule();
    },
    onto(node) {
      const said = waiting.get(node.id);
      if (said === undefined) return node;
      return {
        ...node,
        lastCheckinAt: said.at,
        agentVersion: said.version ?? node.agentVersion,
        appliedConfigVersion: said.applied ?? node.appliedConfigVersion,
      };
    },
  };
}
