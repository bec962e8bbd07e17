// Reports how this node reaches its peers, with its check-ins: only what changed, at most every 30 s. Never disturbs a
// check-in: the control plane says whether it stored a report. After a report without an answer, which may be stored or
// not, all paths are reported.

import * as v from "valibot";
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

/** Kept between the processes of a node in server mode. */
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

type Reported = {
  /** Undefined while the state of the peers is not known. */
  peers(): readonly PeerReport[] | undefined;
  now(): number;
  /** For a node whose next process goes on from what this one reported. */
  store?: ReportStore;
  /** Those not yet reported. The reporter removes the first ones from this array as soon as the control plane has them. */
  healings: Healing[];
};

export function makePathReporter({ peers, now, store, healings }: Reported): PathReporter {
  let reported = store?.read();
  let isWanted = reported !== undefined;
  let sent: { before: ReportedPaths | undefined; after: ReportedPaths } | undefined;
  let sentHealings = 0;
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
      const news = healings.slice(0, maxHealings);
      if (next === undefined && news.length === 0) return undefined;
      nextAt = at + reportEveryMs;
      sentHealings = news.length;
      if (next !== undefined) {
        sent = { before: reported, after: next.after };
        // Until the answer, it is unknown what the control plane has.
        setReported(reported && { ...reported, whole_at: -wholeEveryMs });
      }
      return { ...next?.report, ...(news.length === 0 ? {} : { healings: news }) };
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
        [isWanted, reported] = [false, undefined];
        nextAt = now() + unwantedMs;
      }
      [sent, sentHealings] = [undefined, 0];
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
    (a, b) => rank(a) - rank(b) || (a.age_s ?? Infinity) - (b.age_s ?? Infinity) || 0,
  );
  const states = sorted.flatMap(({ address, path, remote, relays, probe, rtt_ms, loss }) => {
    const state = { peer: address, path, remote, relays: relays?.slice(0, 4), probe, rtt_ms, loss };
    const known = Object.fromEntries(Object.entries(state).filter(([, value]) => value !== undefined));
    const parsed = v.safeParse(PathState, known);
    return parsed.success ? [parsed.output] : [];
  });
  return states.slice(0, maxPaths);
}

/** The difference between the present paths and those reported last. Undefined: nothing worth a report. Pure. */
export function changesOf(
  reported: readonly PathState[],
  now: readonly PathState[],
): { changed: PathState[]; gone: string[] } | undefined {
  const before = new Map(reported.map((each) => [each.peer, each]));
  const present = new Set(now.map(({ peer }) => peer));
  const changed = now.filter((each) => {
    const former = before.get(each.peer);
    return former === undefined || isNotable(former, each);
  });
  const gone = reported.flatMap(({ peer }) => (present.has(peer) ? [] : [peer]));
  return changed.length === 0 && gone.length === 0 ? undefined : { changed, gone };
}

/** Round trips and losses always move a little: only what an administrator would notice counts. */
function isNotable(before: PathState, now: PathState): boolean {
  const way = ({ path, remote, relays, probe }: PathState) => JSON.stringify([path, remote, relays, probe]);
  if (way(before) !== way(now)) return true;
  const [former = 0, present = 0] = [before.rtt_ms, now.rtt_ms];
  if (Math.abs(present - former) > Math.max(5, former / 4)) return true;
  return Math.abs((now.loss ?? 0) - (before.loss ?? 0)) >= 0.2;
}

function withChanges(
  before: readonly PathState[],
  { changed, gone }: { changed: readonly PathState[]; gone: readonly string[] },
): PathState[] {
  const paths = new Map(before.map((each) => [each.peer, each]));
  for (const peer of gone) paths.delete(peer);
  for (const each of changed) paths.set(each.peer, each);
  return [...paths.values()];
}
