// Watches a node after its change (carry-out.ts): echoes to its peers, its engine, and the check-ins of its agent, each compared
// with the time before. The first one that is worse ends the watch.

import { join } from "node:path";
import { readTextIfThere } from "../../base/files.ts";
import { given } from "../../base/given.ts";
import { buildInfo } from "../../build-info.ts";
import { programProbes } from "../../protocol/updates/order.ts";
import { findEngineProcess } from "../engine/engine-process.ts";
import { readTrial } from "../files/config/data-plane.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import { lastSeen, readUpdateState, type UpdateState } from "../files/update-order.ts";
import { readFacts } from "../health/configured-facts.ts";
import { compareMemory, compareWithBefore, describeBefore, type Before } from "./compare-before.ts";
import {
  addressesOf,
  addressIn,
  judge,
  lostProbes,
  lostRounds,
  probeRound,
  probesOf,
  type ProbeKey,
  type Round,
  type Verdict,
} from "./echo-peers.ts";
import { makeRepeatedReport, makeReport, type CarryOutDeps, type Outcome } from "./report-update.ts";

/** Peers that are probed. */
const mostPeers = 8;
/** Addresses in each list of `before`: as many as the state file takes. */
const mostKept = 10_000;
const roundEveryMs = 2000;
/** A peer counts as one that answered if it did in any of these rounds before the change. */
const roundsBefore = 3;
/** After a change, tunnels have to be made again: lost echoes do not count until then. */
const settleMs = 10_000;
/** A turn of the watch takes some seconds. After a longer one the machine has slept. */
const sleptMs = 15_000;
/** After a sleep, the machine has to find its own network again first. */
const wakeMs = 30_000;
/** Rounds that are remembered: more than any rule looks at. */
const mostRounds = 60;
/** A new agent has to check in within this time after the change, as it does at its start. */
const firstSeenMs = 60_000;
/** The next check-in has to come within this time after the last one. */
const seenAgainMs = 200_000;
/** A control plane may be away for so long. After that, the node may have lost its way there by the change. */
const longestOutageMs = 600_000;
/** How often to compare what needs the engine's log. A tunnel that begins through a relay has become direct by then. */
const compareEveryMs = 60_000;
/** The engine's usual MTU. */
const usualMtu = 1300;

const addressesIn = (keys: readonly ProbeKey[]): string[] => [...new Set(keys.map(addressIn))];

/** How many peers have answered. One may have done so by an address of each family, so the larger family counts. */
function countPeers(keys: readonly ProbeKey[]): number {
  const families = Map.groupBy(addressesIn(keys), (address) => address.includes(":"));
  return Math.max(0, ...[...families.values()].map(({ length }) => length));
}

const tunnelsOf = (deps: CarryOutDeps) => deps.tunnels().catch(() => []);
const linesOf = (deps: CarryOutDeps) => deps.engineLines().catch(() => []);

/** How the node works before its change. */
export async function readBefore(deps: CarryOutDeps): Promise<Before> {
  const before = describeBefore(await tunnelsOf(deps), await linesOf(deps), deps.system.now());
  const { direct, failed } = before;
  const memory = given({ memory: readEngine(deps)?.kilobytes });
  return { ...before, direct: direct.slice(0, mostKept), failed: failed.slice(0, mostKept), ...memory };
}

/** The first lighthouses and peers with a tunnel, by all their addresses. */
async function findTargets(deps: CarryOutDeps) {
  const { own, lighthouses, mtu = usualMtu } = readFacts(deps);
  const tunnels = await tunnelsOf(deps);
  const all = new Set([...lighthouses, ...tunnels.map(({ address }) => address)]);
  const peers = [...all].filter((each) => !own.includes(each)).slice(0, mostPeers);
  const networks = overlayNetworks(deps.directory);
  const addresses = new Set(peers.flatMap((peer) => addressesOf(peer, networks)));
  return { own, probes: probesOf([...addresses], mtu) };
}

/** Probes that peers answer before the change. */
export async function probeBefore(deps: CarryOutDeps): Promise<ProbeKey[]> {
  const { own, probes } = await findTargets(deps);
  const answered = new Set<ProbeKey>();
  for (let round = 0; round < roundsBefore; round++)
    for (const key of (await probeRound(probes, own, deps)).answered) answered.add(key);
  return [...answered];
}

/**
 * Resolves when the watch of the order is over, or with the first failure; undefined: another order came. Reports `applied`
 * meanwhile, until the control plane has taken it: it judges a node that reports nothing for ten minutes as failed.
 */
export async function watchUpdate(
  deps: CarryOutDeps,
  { order, answered = [], before }: UpdateState,
): Promise<Outcome | undefined> {
  const { directory, system } = deps;
  const { own, mtu = usualMtu } = readFacts(deps);
  const probes = probesOf(addressesIn(answered), mtu);
  const sendApplied = makeReport(deps, order.order, { state: "applied", answered: countPeers(answered) });
  const reportApplied = makeRepeatedReport(sendApplied, system);
  const findEngineFailure = makeEngineWatch(deps, before?.memory);
  const findAgentFailure = await makeAgentWatch(deps, order, sendApplied);
  const end = system.monotonic() + order.watch_s * 1000;
  let settled = system.monotonic() + settleMs;
  /** When the last round ended, ms since 1970: the monotonic clock of Linux stands still while the machine sleeps. */
  let roundAt = system.now();
  let rounds: Round[] = [];
  let compareAt = settled + compareEveryMs;
  const compare = async () => {
    if (before === undefined || system.monotonic() < compareAt) return undefined;
    compareAt += compareEveryMs;
    return compareWithBefore(before, await tunnelsOf(deps), await linesOf(deps), system.now());
  };
  // A short watch, too, has to see a lost peer, and the first check-in of a new agent.
  while (system.monotonic() < end || rounds.length <= lostRounds || !isSeen(deps, order)) {
    reportApplied();
    const round = await probeRound(probes, own, deps);
    if (round.at - roundAt > sleptMs) {
      rounds = [];
      settled = system.monotonic() + wakeMs;
      compareAt = Math.max(compareAt, settled + compareEveryMs);
    }
    roundAt = round.at;
    if (system.monotonic() > settled) rounds = [...rounds, round].slice(-mostRounds);
    if (readUpdateState(directory)?.order.order !== order.order) return undefined;
    const ofAgent = await findAgentFailure();
    const verdict =
      ofAgent ?? judge(answered, rounds, before?.loss) ?? findEngineFailure() ?? (await compare());
    if (verdict !== undefined) {
      const log = await deps.logLine(ofAgent === undefined ? "engine" : "agent");
      return { state: "failed", ...verdict, ...given({ log }) };
    }
    const leftMs = end - system.monotonic();
    await system.sleep(leftMs > 0 ? Math.min(leftMs, roundEveryMs) : roundEveryMs);
  }
  return { state: "passed", answered: countPeers(answered), lost: addressesIn(lostProbes(answered, rounds)) };
}

/** The engine's process, and its memory in kilobytes. */
function readEngine({ directory }: CarryOutDeps): { pid: number; kilobytes: number } | undefined {
  const process = findEngineProcess(join(directory, "config.yml"));
  if (process === undefined) return undefined;
  const status = readTextIfThere(`/proc/${process.pid}/status`) ?? "";
  return { pid: process.pid, kilobytes: Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0) };
}

/** Why the agent itself has restarted the engine: large packets were lost (offload-trial.ts). `since`: ms since 1970. */
function failedOffloads({ directory }: CarryOutDeps, since: number): Verdict {
  const trial = readTrial(directory);
  if (trial === undefined || trial.state === "passed" || Date.parse(trial.at) < since) return undefined;
  return { probe: "large packets that are sent together", reason: trial.reason };
}

/**
 * Finds an engine that ends, or grows without end. `formerKb`: the memory of the former engine, in kilobytes. An engine that did
 * not run at the beginning of the watch is not judged.
 */
function makeEngineWatch(deps: CarryOutDeps, formerKb: number | undefined): () => Verdict {
  const began = deps.system.now();
  const watched = readEngine(deps);
  const usualKb = formerKb ?? watched?.kilobytes ?? 0;
  return () => {
    const running = readEngine(deps);
    if (watched === undefined) return undefined;
    if (running?.pid !== watched.pid)
      return (
        failedOffloads(deps, began) ?? {
          probe: programProbes.engine,
          reason: "The engine ended by itself, or was started again",
        }
      );
    return compareMemory(usualKb, running.kilobytes);
  };
}

/** Whether the new agent has checked in. An update of the engine alone changes nothing of how the agent does. */
const isSeen = ({ directory }: CarryOutDeps, { agent }: UpdateState["order"]): boolean =>
  agent === undefined || lastSeen(directory)?.agent === agent;

/**
 * Finds a daemon that ends by itself, and a version that does not check in. `isReached`: whether this program, which ran before,
 * reaches the control plane: else the silence is no fault of the new version.
 */
async function makeAgentWatch(
  { directory, system, updater }: CarryOutDeps,
  { agent: newAgent }: UpdateState["order"],
  isReached: () => Promise<boolean>,
): Promise<() => Promise<Verdict>> {
  const began = system.monotonic();
  /** When the note of the last check-in was written, by the clock, which may jump. It only shows that there is a new note. */
  let notedAt = 0;
  /** When that note was found, in the time of `monotonic`, ms. */
  let foundAt = began;
  /** Until then silence counts for nothing, in the same time. */
  let patientUntil = 0;
  const expectedAgent = newAgent ?? buildInfo.version;
  // An agent that did not change may just pause, because the control plane was away a moment ago.
  const firstMs = newAgent === undefined ? seenAgainMs : firstSeenMs;
  // Undefined: systemd does not run the daemon, so nothing counts its restarts.
  const restartsBefore = await updater.agentRestarts();
  return async () => {
    const restarts = await updater.agentRestarts();
    if (restartsBefore !== undefined && restarts !== undefined && restarts > restartsBefore)
      return { probe: programProbes.agent, reason: "The agent ended by itself since the change" };
    const seen = lastSeen(directory);
    if (seen !== undefined && seen.at !== notedAt) {
      notedAt = seen.at;
      foundAt = system.monotonic();
    }
    const nextBy = seen?.agent === expectedAgent ? foundAt + seenAgainMs : began + firstMs;
    if (system.monotonic() < Math.max(nextBy, patientUntil)) return undefined;
    if (system.monotonic() < foundAt + longestOutageMs && !(await isReached())) {
      patientUntil = system.monotonic() + seenAgainMs;
      return undefined;
    }
    return { probe: programProbes.checkin, reason: "The agent does not check in since the change" };
  };
}
