// Keeps the last report of each node in memory and writes the reports together within a second.
//
// A node has one `Report` object (live-nodes.ts), changed in place. `at` 0 means that all of it is written and that it is not
// in `waiting`. `uptime`, `applied`, `hasState` and `hasDataPlane` say what was reported since the last write: null or
// false for nothing. The version comes with `uptime`, which says it for both. Only that is written. The last version, state and data
// plane stay in the object, because they rarely change.

import { messageOf } from "../../../base/errors.ts";
import type { CheckinRequest } from "../../../protocol/checkin.ts";
import type { Live, LiveNode, Report } from "./live-nodes.ts";
import type { NodeRecord } from "../../store/nodes.ts";
import type { ServerOptions } from "../../options.ts";
import { writeSightings } from "../../store/sightings.ts";
import type { SightingRow } from "../../store/tables/nodes.ts";
import { makeInterner } from "../../store/intern.ts";

type Deps = Pick<ServerOptions, "db" | "log"> & { live: Live };

type Reported = Partial<
  Pick<CheckinRequest, "version" | "uptime" | "overlay_state" | "config_version" | "data_plane">
>;

/** A node was in contact: its id, when (ms), and the configuration version that it has applied. */
export type Contact = readonly [id: number, at: number, applied: number | null];

export type Reports = {
  /** Notes the contacts of an organization's nodes with this server. One watcher at a time for each organization. */
  watch(orgId: number): { take(): Contact[]; end(): void };
  /** `at`: the time of the contact, ms. A check-in reports all members, other contacts only some. */
  add(node: LiveNode, at: number, reported: Reported): void;
  /** The node with its unwritten report. */
  onto(node: NodeRecord): NodeRecord;
  /** Writes the reports that are still in memory. */
  stop(): Promise<void>;
};

const flushMs = 500;
/**
 * Rows in one transaction: a 32nd of all, within bounds. Few enough that other writers wait only briefly. A few hundred scattered
 * rows touch as many pages; of very many rows, several share a page.
 */
const batchSize = (count: number) => Math.min(1024, Math.max(256, count >> 5));

export function makeReports({ db, log, live }: Deps): Reports {
  /** The reports whose `at` is set. */
  let waiting: Report[] = [];
  /** The rows of the last write, by node. Until its row is committed, a node is shown with it. */
  let written = new Map<number, SightingRow>();
  const intern = makeInterner();
  /** Warn once, not twice a second. */
  let isFailing = false;
  const watches = makeWatches();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const schedule = () => {
    // A crash may lose half a second of reports; nodes report again.
    timer ??= setTimeout(() => void flush(), flushMs).unref();
  };
  let running: Promise<void> | undefined;
  const flush = () => (running ??= write().finally(() => (running = undefined)));
  const write = async () => {
    // In the order of the table, so that a batch touches few pages.
    const all = oncePerNode(waiting.sort((a, b) => a.nodeId - b.nodeId));
    waiting = [];
    written = new Map();
    const size = batchSize(all.length);
    for (let start = 0; start < all.length; start += size) {
      const batch = all
        .slice(start, start + size)
        .map((report) => ({ report, sighting: takeSighting(report) }));
      for (const { sighting } of batch) written.set(sighting.nodeId, sighting);
      try {
        await db.writeFor("rows", (tx) =>
          writeSightings(
            tx,
            batch.map(({ sighting }) => sighting),
          ),
        );
        isFailing = false;
      } catch (error) {
        // Keep everything for the next attempt; newer values win.
        const kept = batch
          .filter(({ report, sighting }) => putBack(report, sighting))
          .map(({ report }) => report);
        waiting = waiting.concat(kept, all.slice(start + size));
        if (!isFailing)
          log.warn("Check-in reports cannot be written now; retrying", { reason: messageOf(error) });
        isFailing = true;
        break;
      }
    }
    timer = undefined;
    if (waiting.length > 0) schedule();
  };
  return {
    watch: watches.watch,
    async stop() {
      await running;
      await flush();
      clearTimeout(timer);
    },
    add(node, at, { version, uptime, overlay_state: state, config_version: applied, data_plane: plane }) {
      const { report } = node;
      if (report.at === 0) waiting.push(report);
      report.at = at;
      if (applied !== undefined) report.applied = node.applied = applied;
      if (uptime !== undefined) report.uptime = uptime;
      if (version !== undefined && report.version !== version) report.version = intern(version);
      if (state !== undefined) {
        report.hasState = true;
        if (report.overlayState !== state) report.overlayState = intern(state);
      }
      if (plane !== undefined) {
        report.hasDataPlane = true;
        const text = JSON.stringify(plane);
        if (report.dataPlane !== text) report.dataPlane = intern(text);
      }
      watches.note(node, at);
      schedule();
    },
    onto(node) {
      const report = live.report(node.id);
      const unwritten = report === undefined || report.at === 0 ? undefined : sightingOf(report);
      return [written.get(node.id), unwritten].reduce(withSighting, node);
    },
  };
}

function makeWatches(): Pick<Reports, "watch"> & { note(node: LiveNode, at: number): void } {
  /** The nodes that were in contact since the last look, for each watched organization. */
  const watched = new Map<number, Map<number, Contact>>();
  return {
    note({ id, orgId, applied }, at) {
      if (watched.size > 0) watched.get(orgId)?.set(id, [id, at, applied]);
    },
    watch(orgId) {
      const contacts = new Map<number, Contact>();
      watched.set(orgId, contacts);
      return {
        take() {
          const taken = [...contacts.values()];
          contacts.clear();
          return taken;
        },
        // The next watcher may already have started: do not remove its list.
        end: () => void (watched.get(orgId) === contacts && watched.delete(orgId)),
      };
    },
  };
}

/**
 * One report per node: PostgreSQL refuses two rows of one node in a statement. A node has a second Report object if the cache
 * of nodes was full and was emptied (live-nodes.ts).
 */
function oncePerNode(sorted: Report[]): Report[] {
  return sorted.filter((report, index) => {
    const next = sorted[index + 1];
    if (next?.nodeId !== report.nodeId) return true;
    // The next object of this node takes over what this one has.
    putBack(next, takeSighting(report));
    return false;
  });
}

function sightingOf(report: Report): SightingRow {
  return {
    nodeId: report.nodeId,
    lastCheckinAt: report.at,
    reportedVersion: report.uptime === null ? null : report.version,
    uptime: report.uptime,
    overlayState: report.hasState ? report.overlayState : null,
    appliedConfigVersion: report.applied,
    dataPlane: report.hasDataPlane ? report.dataPlane : null,
  };
}

/** The node as of the newer of both: another replica may have written a later report. */
function withSighting(node: NodeRecord, sighting: SightingRow | undefined): NodeRecord {
  if (sighting === undefined || sighting.lastCheckinAt < (node.lastCheckinAt ?? 0)) return node;
  const { lastCheckinAt, reportedVersion, appliedConfigVersion, overlayState, dataPlane } = sighting;
  return {
    ...node,
    lastCheckinAt,
    agentVersion: reportedVersion ?? node.agentVersion,
    appliedConfigVersion: appliedConfigVersion ?? node.appliedConfigVersion,
    overlayState: overlayState ?? node.overlayState,
    dataPlane: dataPlane ?? node.dataPlane,
  };
}

/** The row to write. The report then counts as written. */
function takeSighting(report: Report): SightingRow {
  const sighting = sightingOf(report);
  report.at = 0;
  report.uptime = null;
  report.applied = null;
  report.hasState = report.hasDataPlane = false;
  return sighting;
}

/** Adds a row that was not written to the node's report, where newer values stay. True if the node has reported nothing since. */
function putBack(report: Report, row: SightingRow): boolean {
  report.version ??= row.reportedVersion;
  report.uptime ??= row.uptime;
  report.applied ??= row.appliedConfigVersion;
  report.overlayState ??= row.overlayState;
  report.hasState ||= row.overlayState !== null;
  report.dataPlane ??= row.dataPlane;
  report.hasDataPlane ||= row.dataPlane !== null;
  if (report.at !== 0) return false;
  report.at = row.lastCheckinAt;
  return true;
}
