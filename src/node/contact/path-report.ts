// Reports how this node reaches its peers, with its check-ins: only what changed, at most every 30 s. Never disturbs a
// check-in: the control plane says whether it stored a report. After a report without an answer, which may be stored or
// not, all paths are reported.

import * as v from "valibot";
import { given } from "../../base/given.ts";
import {
  maxHealings,
  maxPaths,
  PathState,
  type Healing,
  type PathsReport,
} from "../../protocol/path-report.ts";
import type { PeerReport } from "../health/shown-peer.ts";

export type PathReporter = {
  /** The report for the next check-in; undefined if there is nothing to report now. */
  report(): Partial<PathsReport> | undefined;
  /** The control plane's answer to the last report; undefined from one that knows no reports. */
  answered(how: string | undefined): void;
};

/** The paths that the control plane has, and when all of them were reported last, in ms. Server mode keeps them in a file. */
export const ReportedPaths = v.object({
  whole_at: v.number(),
  paths: v.pipe(v.array(PathState), v.maxLength(maxPaths)),
});
export type ReportedPaths = v.InferOutput<typeof ReportedPaths>;

type ReportStore = { read(): ReportedPaths | undefined; write(reported: ReportedPaths): void };

export const reportEveryMs = 30_000;
/** All paths are reported again after this time: a control plane may have lost some. */
const wholeEveryMs = 3_600_000;
/** Pause after an answer that no reports are wanted, or are not known. */
const unwantedMs = 600_000;

type ReportDeps = {
  /** Undefined while the state of the peers is not known. */
  peers(): readonly PeerReport[] | undefined;
  now(): number;
  /** For a node whose next process goes on from what this one reported. */
  store?: ReportStore;
  /** Those not yet reported. The reporter removes the first ones from this array as soon as the control plane has them. */
  healings: Healing[];
};

export function makePathReporter({ peers, now, store, healings }: ReportDeps): PathReporter {
  /** What the control plane has. Undefined: not known, so all paths are reported. */
  let reported = store?.read();
  let isWanted = reported !== undefined;
  /** The report that waits for its answer: what the control plane had `before` it, and has `after` it. */
  let sent: { before: ReportedPaths | undefined; after: ReportedPaths } | undefined;
  let sentHealings = 0;
  /** ms since 1970. */
  let nextAt = 0;
  const setReported = (paths: ReportedPaths | undefined) => {
    reported = paths;
    try {
      if (paths !== undefined) store?.write(paths);
    } catch {
      // The next process goes on from what was written before.
    }
  };
  return {
    report() {
      const at = now();
      // A clock that was set back must not end the reports.
      if (nextAt - at > unwantedMs) nextAt = at;
      if (at < nextAt) return undefined;
      // An empty report asks whether reports are wanted.
      if (!isWanted) return {};
      const states = peers();
      if (states === undefined) return undefined;
      const next = nextReport(reported, statesOf(states), at);
      const newHealings = healings.slice(0, maxHealings);
      if (next === undefined && newHealings.length === 0) return undefined;
      nextAt = at + reportEveryMs;
      sentHealings = newHealings.length;
      if (next !== undefined) {
        sent = { before: reported, after: next.after };
        // Until the answer, it is unknown what the control plane has. This time makes a report of all paths due if none comes.
        setReported(reported && { ...reported, whole_at: -wholeEveryMs });
      }
      return { ...next?.report, ...(newHealings.length === 0 ? {} : { healings: newHealings }) };
    },
    answered(how) {
      if (how === "taken") {
        isWanted = true;
        healings.splice(0, sentHealings);
        if (sent !== undefined) setReported(sent.after);
      } else if (how === "later") {
        nextAt = now() + reportEveryMs;
        if (sent !== undefined) setReported(sent.before);
      } else {
        isWanted = false;
        reported = undefined;
        nextAt = now() + unwantedMs;
      }
      sent = undefined;
      sentHealings = 0;
    },
  };
}

/**
 * What to report of the paths, and what the control plane has after it: all paths if that is due, else the changes.
 * Undefined: nothing. Pure.
 */
function nextReport(
  reported: ReportedPaths | undefined,
  paths: PathState[],
  at: number,
): { report: Partial<PathsReport>; after: ReportedPaths } | undefined {
  if (reported === undefined || Math.abs(at - reported.whole_at) >= wholeEveryMs)
    return { report: { whole: true, changed: paths }, after: { whole_at: at, paths } };
  const changes = changesOf(reported.paths, paths);
  return changes && { report: changes, after: { ...reported, paths: withChanges(reported.paths, changes) } };
}

/** The paths of the most important peers: broken ones, those that answer, then those with the youngest tunnels. */
function statesOf(peers: readonly PeerReport[]): PathState[] {
  const rank = ({ probe }: PeerReport) => ["broken", "answers", "not_probed"].indexOf(probe);
  const sorted = peers.toSorted(
    // The last 0: two peers of unknown age give no number.
    (a, b) => rank(a) - rank(b) || (a.age_s ?? Infinity) - (b.age_s ?? Infinity) || 0,
  );
  const states = sorted.flatMap(({ address, path, remote, relays, probe, rtt_ms, loss }) => {
    const state = { peer: address, path, remote, relays: relays?.slice(0, 4), probe, rtt_ms, loss };
    const parsed = v.safeParse(PathState, given(state));
    return parsed.success ? [parsed.output] : [];
  });
  return states.slice(0, maxPaths);
}

/** The differences to the paths that were reported last. Undefined: nothing worth a report. Pure. */
export function changesOf(
  reported: readonly PathState[],
  now: readonly PathState[],
): { changed: PathState[]; gone: string[] } | undefined {
  const reportedByPeer = new Map(reported.map((path) => [path.peer, path]));
  const peersNow = new Set(now.map(({ peer }) => peer));
  const changed = now.filter((path) => {
    const before = reportedByPeer.get(path.peer);
    return before === undefined || isNotable(before, path);
  });
  const gone = reported.flatMap(({ peer }) => (peersNow.has(peer) ? [] : [peer]));
  return changed.length === 0 && gone.length === 0 ? undefined : { changed, gone };
}

const notableRttMs = 5;
const notableRttShare = 0.25;
/** Loss is a share from 0 to 1. */
const notableLoss = 0.2;

/** Round trips and losses always move a little: only what an administrator would notice counts. */
function isNotable(before: PathState, now: PathState): boolean {
  const way = ({ path, remote, relays, probe }: PathState) => JSON.stringify([path, remote, relays, probe]);
  if (way(before) !== way(now)) return true;
  const rttBefore = before.rtt_ms ?? 0;
  const rttChange = Math.abs((now.rtt_ms ?? 0) - rttBefore);
  if (rttChange > Math.max(notableRttMs, rttBefore * notableRttShare)) return true;
  return Math.abs((now.loss ?? 0) - (before.loss ?? 0)) >= notableLoss;
}

function withChanges(
  before: readonly PathState[],
  { changed, gone }: { changed: readonly PathState[]; gone: readonly string[] },
): PathState[] {
  const paths = new Map(before.map((path) => [path.peer, path]));
  for (const peer of gone) paths.delete(peer);
  for (const path of changed) paths.set(path.peer, path);
  return [...paths.values()];
}
