// What check-ins report: kept in memory, the last of each node, and written together within a second.

import type { CheckinRequest } from "../../protocol.ts";
import type { Live, LiveNode, Said } from "./live.ts";
import type { NodeRecord } from "../store/nodes.ts";
import type { ServerOptions } from "../options.ts";
import { writeSightings, type Sighting } from "../store/sightings.ts";
import { makeInterner } from "../store/intern.ts";

type Deps = Pick<ServerOptions, "db" | "log"> & { live: Live };

type Heard = Partial<Pick<CheckinRequest, "version" | "uptime" | "overlay_state" | "config_version">>;

export type Reports = {
  /** `at`, ms: when the node was heard of. `heard`: what it said of itself then; a check-in says all of it. */
  add(node: LiveNode, at: number, heard: Heard): void;
  /** The node with what is not written yet. */
  onto(node: NodeRecord): NodeRecord;
  /** Writes what is still in memory. */
  stop(): Promise<void>;
};

const flushMs = 500;
/**
 * How many are written together, so that a write is short enough for everybody else to wait for it: a few hundred that lie
 * far apart touch as many pages, of very many each page holds some.
 */
const together = (count: number) => Math.min(1024, Math.max(256, count >> 5));

export function makeReports({ db, log, live }: Deps): Reports {
  /** Those whose `at` is set. */
  let waiting: Said[] = [];
  const one = makeInterner();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const schedule = () => {
    // Half a second of check-ins may be lost with the process; nodes report again.
    timer ??= setTimeout(() => void flush(), flushMs).unref();
  };
  let running: Promise<void> | undefined;
  const flush = () => (running ??= write().finally(() => (running = undefined)));
  const write = async () => {
    // In the order of the table, so that a group touches few of its pages.
    const all = oncePerNode(waiting.sort((a, b) => a.nodeId - b.nodeId));
    waiting = [];
    const size = together(all.length);
    for (let first = 0; first < all.length; first += size) {
      const batch = all.slice(first, first + size).map((said) => ({ said, sighting: take(said) }));
      try {
        await db.write((tx) =>
          writeSightings(
            tx,
            batch.map(({ sighting }) => sighting),
          ),
        );
      } catch (error) {
        // The disk refuses: all is kept for the next time, but what came later wins over it.
        const kept = batch.filter(({ said, sighting }) => giveBack(said, sighting)).map(({ said }) => said);
        waiting = waiting.concat(kept, all.slice(first + size));
        log.warn("check-ins cannot be written now", { reason: String(error) });
        break;
      }
    }
    timer = undefined;
    if (waiting.length > 0) schedule();
  };
  return {
    async stop() {
      await running;
      await flush();
      clearTimeout(timer);
    },
    add(node, at, { version, uptime, overlay_state: state, config_version: applied }) {
      const { said } = node;
      if (said.at === 0) waiting.push(said);
      said.at = at;
      if (applied !== undefined) said.applied = node.applied = applied;
      if (uptime !== undefined) said.uptime = uptime;
      if (version !== undefined && said.version !== version) said.version = one(version);
      if (state !== undefined) {
        said.hasState = true;
        if (said.overlayState !== state) said.overlayState = one(state);
      }
      schedule();
    },
    onto(node) {
      const said = live.said(node.id);
      if (said === undefined || said.at === 0) return node;
      const { at, version, applied } = sightingOf(said);
      return {
        ...node,
        lastCheckinAt: at,
        agentVersion: version ?? node.agentVersion,
        appliedConfigVersion: applied ?? node.appliedConfigVersion,
      };
    },
  };
}

/** A node that was forgotten while it checked in has begun anew: PostgreSQL takes no two rows of one in a statement. */
function oncePerNode(sorted: Said[]): Said[] {
  return sorted.filter((said, at) => {
    const next = sorted[at + 1];
    if (next?.nodeId !== said.nodeId) return true;
    giveBack(next, take(said));
    return false;
  });
}

function sightingOf(said: Said): Sighting {
  const { nodeId, at, uptime, applied } = said;
  const version = uptime === null ? null : said.version;
  return { nodeId, at, version, uptime, overlayState: said.hasState ? said.overlayState : null, applied };
}

/** What is to be written: from now on it counts as that. */
function take(said: Said): Sighting {
  const sighting = sightingOf(said);
  said.at = 0;
  said.uptime = null;
  said.applied = null;
  said.hasState = false;
  return sighting;
}

/** It was not written after all; true where nothing else of the node waits. */
function giveBack(said: Said, { at, uptime, applied, version, overlayState }: Sighting): boolean {
  said.version ??= version;
  said.uptime ??= uptime;
  said.applied ??= applied;
  said.overlayState ??= overlayState;
  said.hasState ||= overlayState !== null;
  if (said.at !== 0) return false;
  said.at = at;
  return true;
}
