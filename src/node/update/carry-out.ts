// Carries out an update that the control plane asked for, watches it with the program that ran before, and goes back by
// itself if the node works worse. It must not need the control plane, or anything of the new version, to go back.

import { basename, join } from "node:path";
import { AppError, messageOf } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Log } from "../../base/log.ts";
import { readTextIfThere } from "../../base/files.ts";
import { buildInfo } from "../../build-info.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import type { System } from "../../base/system.ts";
import { programProbes, type UpdateReport } from "../../protocol/updates/order.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import { findEngineProcess } from "../engine/engine-process.ts";
import { readFacts } from "../health/configured-facts.ts";
import { readTrial } from "../files/config/data-plane.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import {
  forgetSeen,
  lastSeen,
  permittedUpdates,
  readUpdateState,
  writeUpdateState,
  type UpdateState,
} from "../files/update-order.ts";
import {
  compareMemory,
  compareWithBefore,
  describeBefore,
  type Before,
  type Tunnel,
} from "./compare-before.ts";
import {
  addressesOf,
  judge,
  lostProbes,
  lostRounds,
  probeRound,
  probesOf,
  type ProbeKey,
  type Round,
  type Verdict,
} from "./echo-peers.ts";

/** What runs on this machine. Each change rejects with the reason if the former version is in its place again. */
type Updater = {
  /** Why the agent cannot be replaced by a release here; undefined if it can. */
  whyAgentStays(): Promise<string | undefined>;
  /** How often systemd has started the daemon again by itself; undefined if it does not run it. */
  agentRestarts(): Promise<number | undefined>;
  engineVersion(): Promise<string | null>;
  agentVersion(): Promise<string | null>;
  updateEngine(version: string): Promise<void>;
  updateAgent(version: string): Promise<void>;
  rollBackEngine(): Promise<void>;
  rollBackAgent(): Promise<void>;
  /** Puts the settings of the order into force, or the former ones, as the file says. */
  switchSettings(order: number): Promise<void>;
};

export type CarryOutDeps = {
  slug: string;
  directory: string;
  updater: Updater;
  /** Nodes that this one has a tunnel with. */
  tunnels(): Promise<readonly Tunnel[]>;
  /** The last lines of the engine's log. */
  engineLines(): Promise<readonly string[]>;
  /** The line that says most, in the log of what failed. */
  logLine(of: "agent" | "engine"): Promise<string | undefined>;
  report(report: UpdateReport): Promise<void>;
  openEcho: OpenEcho;
  system: Pick<System, "now" | "sleep" | "random" | "monotonic">;
  log: Log;
};

const mostPeers = 8;
/** Peers that the state keeps: as many as its file takes. */
const mostKept = 10_000;
const roundEveryMs = 2000;
/** A peer counts as one that answered if it did in any of these rounds before the change. */
const roundsBefore = 3;
/** After a change, tunnels are made anew. */
const settleMs = 10_000;
/** A new agent has to check in within this time after the change, as it does at its start, and then again and again. */
const firstSeenMs = 60_000;
const seenAgainMs = 200_000;
/** A control plane may be away for so long. After that, the node may have lost its way there by the change. */
const longestOutageMs = 600_000;
/** How often to compare what needs the engine's log. A tunnel that begins through a relay has become direct by then. */
const compareEveryMs = 60_000;
const reportEveryMs = 5000;
const reportTries = 60;
const neverTaken: readonly string[] = ["conflict", "not_found", "bad_request", "validation_failed"];
/** Longer than a ring that waits for the hours of its nodes. */
const longestBackMs = 30 * 86_400_000;

/** Until nothing is left to do. An order that comes meanwhile is found in the file. */
export async function carryOut(deps: CarryOutDeps): Promise<void> {
  const { directory, log } = deps;
  let tried: number | undefined;
  for (;;) {
    const state = readUpdateState(directory);
    if (state === undefined) return;
    const order = state.order.order;
    if (state.step === "done") {
      if (state.unsaid === undefined || tried === order) return;
      tried = order;
      await sayLast(deps, order, state.unsaid);
      continue;
    }
    tried = order;
    try {
      const last = state.order.back === true ? await goBackAsTold(state, deps) : await goForward(state, deps);
      if (last !== undefined) await finish(deps, order, last);
    } catch (error) {
      log.error(messageOf(error), { team: deps.slug });
      await finish(deps, order, { state: "failed", reason: messageOf(error) });
    }
  }
}

type Said = Omit<UpdateReport, "order">;

/** Does nothing to the file if another order came, which has to be carried out then. */
async function finish(deps: CarryOutDeps, order: number, said: Said): Promise<void> {
  const state = readUpdateState(deps.directory);
  if (state?.order.order !== order) return void (await say(deps, order, said));
  writeUpdateState(deps.directory, { ...state, step: "done", unsaid: said });
  await sayLast(deps, order, said);
}

/** If the control plane does not take the report, the file keeps it until the control plane answers a check-in. */
async function sayLast(deps: CarryOutDeps, order: number, said: Said): Promise<void> {
  if (!(await say(deps, order, said, reportTries))) return;
  const state = readUpdateState(deps.directory);
  if (state?.order.order !== order) return;
  const { unsaid: _, ...rest } = state;
  writeUpdateState(deps.directory, rest);
}

/** Whether the control plane has taken the report, or never will. */
async function say(deps: CarryOutDeps, order: number, said: Said, tries = 1): Promise<boolean> {
  const { updater, system, log } = deps;
  const [agent, engine] = await Promise.all([updater.agentVersion(), updater.engineVersion()]);
  const report = { order, ...said, ...given({ agent: agent ?? undefined, engine: engine ?? undefined }) };
  for (let left = tries; left > 0; left--) {
    try {
      await deps.report(report);
      return true;
    } catch (error) {
      log.debug(`The control plane does not take the report: ${messageOf(error)}`);
      // The control plane knows no such order, or will never take the report: sending it again is useless.
      if (error instanceof AppError && neverTaken.includes(error.code)) return true;
      if (left > 1) await system.sleep(reportEveryMs);
    }
  }
  return false;
}

/** Undefined: another order came. */
async function goForward(state: UpdateState, deps: CarryOutDeps): Promise<Said | undefined> {
  const { directory, updater } = deps;
  const { order } = state;
  const refused = await whyRefused(order, deps);
  if (state.step === "taken" && refused !== undefined) {
    // After a kill in the middle of the change, the engine may be the new one already.
    await restoreFormer(state, deps);
    return { state: "refused", reason: refused };
  }
  await say(deps, order.order, { state: "taken" });
  /** As the file has it. */
  let noted = state;
  if (noted.former === undefined) {
    const former = { agent: await updater.agentVersion(), engine: await updater.engineVersion() };
    const before = await readBefore(deps);
    const change = { at: deps.system.now(), agent: order.agent ?? null, engine: order.engine ?? null };
    noted = { ...noted, former, change, before, answered: await answeredBefore(deps) };
    writeUpdateState(directory, noted);
  }
  if (noted.step === "taken") {
    forgetSeen(directory);
    if (order.settings === true) {
      noted = { ...noted, settings: true };
      writeUpdateState(directory, noted);
    }
    const failure = await change(order, deps);
    if (failure !== undefined) {
      await restoreFormer(noted, deps);
      const of = order.agent === undefined ? "engine" : "agent";
      return { state: "failed", reason: failure, ...given({ log: await deps.logLine(of) }) };
    }
    if (readUpdateState(directory)?.order.order !== order.order) return undefined;
    writeUpdateState(directory, { ...noted, step: "applied" });
  }
  await say(deps, order.order, { state: "applied", answered: peersIn(noted.answered ?? []) });
  const outcome = await watch(deps, noted);
  if (outcome === undefined || outcome.state === "passed") return outcome;
  await restoreFormer(noted, deps);
  return outcome;
}

async function whyRefused(order: UpdateState["order"], deps: CarryOutDeps): Promise<string | undefined> {
  const { updater, directory } = deps;
  const may = permittedUpdates(directory);
  const asked = [
    { what: "agent", version: order.agent, installed: await updater.agentVersion() },
    { what: "engine", version: order.engine, installed: await updater.engineVersion() },
  ];
  for (const { what, version, installed } of asked) {
    if (version === undefined) continue;
    if (!may.includes(what)) return `Root of this machine does not permit updates of the ${what}`;
    if (installed !== null && compareVersions(version, installed) < 0)
      return `This machine has the ${what} ${installed}, which is higher`;
  }
  return order.agent === undefined ? undefined : updater.whyAgentStays();
}

/** Resolves with the reason if it failed. The engine first: then the program that runs now is still the installed one. */
async function change({ order, agent, engine, settings }: UpdateState["order"], deps: CarryOutDeps) {
  const { updater } = deps;
  try {
    if (settings === true) await updater.switchSettings(order);
    if (engine !== undefined && engine !== (await updater.engineVersion()))
      await updater.updateEngine(engine);
    if (agent !== undefined && agent !== (await updater.agentVersion())) await updater.updateAgent(agent);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * The agent first: its former version then brings the former engine back. What root has installed since stays: the version
 * kept beside it is another one, and may be lower.
 */
async function restoreFormer(
  { order: { order }, former, change }: UpdateState,
  { updater, log, slug, directory }: CarryOutDeps,
): Promise<void> {
  const noted = readUpdateState(directory);
  if (noted?.settings === true) {
    writeUpdateState(directory, { ...noted, settings: false });
    await updater.switchSettings(order);
    log.warn("The former settings are back", { team: slug });
  }
  const steps = {
    agent: { now: () => updater.agentVersion(), back: () => updater.rollBackAgent() },
    engine: { now: () => updater.engineVersion(), back: () => updater.rollBackEngine() },
  };
  for (const what of ["agent", "engine"] as const) {
    const formerVersion = former?.[what] ?? null;
    if (formerVersion === null) continue;
    const version = await steps[what].now();
    const isOurs = change === undefined || version === null || version === change[what];
    if (version === formerVersion || !isOurs) continue;
    await steps[what].back();
    log.warn(`The former version ${formerVersion} is back`, { team: slug });
  }
}

/** A stolen control plane must not bring back a version that has long been replaced, for a known defect of it. */
async function goBackAsTold(state: UpdateState, deps: CarryOutDeps): Promise<Said> {
  const { at = Number.POSITIVE_INFINITY } = state.change ?? {};
  if (deps.system.now() - at > longestBackMs)
    return {
      state: "failed",
      reason: "It was updated more than 30 days ago: root alone brings the former version back",
    };
  await restoreFormer(state, deps);
  return { state: "returned" };
}

/** A peer may have answered by an address of each family. */
function peersIn(keys: readonly ProbeKey[]): number {
  const families = Map.groupBy(new Set(keys.map((key) => key.replace(/ \w+/, ""))), (each) => each[0]);
  return Math.max(0, ...[...families.values()].map(({ length }) => length));
}

const tunnelsOf = (deps: CarryOutDeps) => deps.tunnels().catch(() => []);
const linesOf = (deps: CarryOutDeps) => deps.engineLines().catch(() => []);

async function readBefore(deps: CarryOutDeps): Promise<Before> {
  const before = describeBefore(await tunnelsOf(deps), await linesOf(deps), deps.system.now());
  const { direct, failed } = before;
  const memory = given({ memory: readEngine(deps)?.kilobytes });
  return { ...before, direct: direct.slice(0, mostKept), failed: failed.slice(0, mostKept), ...memory };
}

async function targetsOf(deps: CarryOutDeps) {
  const { own, lighthouses, mtu = 1300 } = readFacts(deps);
  const tunnels = await tunnelsOf(deps);
  const all = new Set([...lighthouses, ...tunnels.map(({ address }) => address)]);
  const peers = [...all].filter((each) => !own.includes(each)).slice(0, mostPeers);
  const networks = overlayNetworks(deps.directory);
  const addresses = new Set(peers.flatMap((peer) => addressesOf(peer, networks)));
  return { own, probes: probesOf([...addresses], mtu) };
}

async function answeredBefore(deps: CarryOutDeps): Promise<ProbeKey[]> {
  const { own, probes } = await targetsOf(deps);
  const answered = new Set<ProbeKey>();
  for (let round = 0; round < roundsBefore; round++)
    for (const key of (await probeRound(probes, own, deps)).answered) answered.add(key);
  return [...answered];
}

/** Undefined: another order came. */
async function watch(
  deps: CarryOutDeps,
  { order, answered = [], before }: UpdateState,
): Promise<Said | undefined> {
  const { directory, system } = deps;
  const addresses = [...new Set(answered.map((key) => key.split(" ")[2] ?? ""))];
  const { own, mtu = 1300 } = readFacts(deps);
  const probes = probesOf(addresses, mtu);
  const engineFailure = makeEngineWatch(deps, before?.memory);
  const agentFailure = await makeAgentWatch(deps, order);
  const end = system.monotonic() + order.watch_s * 1000;
  const settled = system.monotonic() + settleMs;
  let rounds: Round[] = [];
  let compareAt = settled + compareEveryMs;
  const compare = async () => {
    if (before === undefined || system.monotonic() < compareAt) return undefined;
    compareAt += compareEveryMs;
    return compareWithBefore(before, await tunnelsOf(deps), await linesOf(deps), system.now());
  };
  // A short watch, too, has to see a lost peer, and the first check-in of a new agent.
  while (system.monotonic() < end || rounds.length <= lostRounds || !isSeen(deps, order)) {
    const round = await probeRound(probes, own, deps);
    if (system.monotonic() > settled) rounds = [...rounds, round].slice(-60);
    if (readUpdateState(directory)?.order.order !== order.order) return undefined;
    const ofAgent = await agentFailure();
    const verdict = ofAgent ?? judge(answered, rounds, before?.loss) ?? engineFailure() ?? (await compare());
    if (verdict !== undefined) {
      const log = await deps.logLine(ofAgent === undefined ? "engine" : "agent");
      return { state: "failed", ...verdict, ...given({ log }) };
    }
    const left = end - system.monotonic();
    await system.sleep(left > 0 ? Math.min(left, roundEveryMs) : roundEveryMs);
  }
  const lost = [...new Set(lostProbes(answered, rounds).map((key) => key.split(" ")[2] ?? ""))];
  return { state: "passed", answered: peersIn(answered), lost };
}

function readEngine({ directory }: CarryOutDeps): { pid: number; kilobytes: number } | undefined {
  const process = findEngineProcess(join(directory, "config.yml"));
  if (process === undefined) return undefined;
  const status = readTextIfThere(`/proc/${process.pid}/status`) ?? "";
  return { pid: process.pid, kilobytes: Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0) };
}

/** The agent itself has restarted the engine, because large packets were lost (offload-trial.ts). */
function lostTogether({ directory }: CarryOutDeps, since: number): Verdict {
  const trial = readTrial(directory);
  if (trial === undefined || trial.state === "passed" || Date.parse(trial.at) < since) return undefined;
  return { probe: "large packets that are sent together", reason: trial.reason };
}

/** An engine that ends, or grows without end. `formerKb`: the memory of the former engine, in kilobytes. */
function makeEngineWatch(deps: CarryOutDeps, formerKb?: number) {
  const began = deps.system.now();
  const watched = readEngine(deps);
  const usualKb = formerKb ?? watched?.kilobytes ?? 0;
  return () => {
    const running = readEngine(deps);
    if (watched === undefined) return undefined;
    if (running?.pid !== watched.pid)
      return (
        lostTogether(deps, began) ?? {
          probe: programProbes.engine,
          reason: "The engine ended by itself, or was started again",
        }
      );
    return compareMemory(usualKb, running.kilobytes);
  };
}

/** An engine alone changes nothing of how the agent checks in. */
const isSeen = ({ directory }: CarryOutDeps, { agent }: UpdateState["order"]): boolean =>
  agent === undefined || lastSeen(directory)?.agent === agent;

/** A daemon that ends by itself, and a version that does not check in. */
async function makeAgentWatch(deps: CarryOutDeps, { order, agent: changed }: UpdateState["order"]) {
  const { directory, system, updater } = deps;
  const began = system.monotonic();
  // The clock may jump meanwhile: what counts is that the file is written again and again.
  let fileAt = 0;
  // By the time that never goes back, in ms:
  let heardAt = began;
  let patientUntil = 0;
  const agent = changed ?? buildInfo.version;
  // An agent that did not change may just pause, because the control plane was away a moment ago.
  const firstMs = changed === undefined ? seenAgainMs : firstSeenMs;
  const restartsBefore = await updater.agentRestarts();
  return async () => {
    const restarts = await updater.agentRestarts();
    if (restartsBefore !== undefined && restarts !== undefined && restarts > restartsBefore)
      return { probe: programProbes.agent, reason: "The agent ended by itself since the change" };
    const seen = lastSeen(directory);
    if (seen !== undefined && seen.at !== fileAt) [fileAt, heardAt] = [seen.at, system.monotonic()];
    const patience = seen?.agent === agent ? heardAt + seenAgainMs : began + firstMs;
    if (system.monotonic() < Math.max(patience, patientUntil)) return undefined;
    if (system.monotonic() < heardAt + longestOutageMs && !(await isReached(deps, order))) {
      patientUntil = system.monotonic() + seenAgainMs;
      return undefined;
    }
    return { probe: programProbes.checkin, reason: "The agent does not check in since the change" };
  };
}

/** Whether this program, which ran before, reaches the control plane: else its absence is no fault of the new version. */
const isReached = (deps: CarryOutDeps, order: number): Promise<boolean> =>
  say(deps, order, { state: "applied" });

/** The commands that carry out the order, unless that is done, for --dry-run. */
export function planCarryOut(directory: string, executable: string): Step[] {
  const { order, step } = readUpdateState(directory) ?? { step: "done" };
  if (order === undefined || step === "done") return [];
  const argv = (words: string[], version: string) => [
    executable,
    ...words,
    ...(order.back === true ? ["--rollback"] : ["--version", version]),
  ];
  return [
    ...(order.agent === undefined ? [] : [argv(["self-update"], order.agent)]),
    ...(order.engine === undefined ? [] : [argv(["overlay", "update"], order.engine)]),
    ...(order.settings === true ? [[executable, "sync-config", "--org-slug", basename(directory)]] : []),
  ].map((each) => ({ step: "run", argv: each }));
}
