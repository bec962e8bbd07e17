// Follows one organization's control plane by long polls: applies news at once and carries out orders. An unreachable
// control plane never stops a tunnel. Used by the daemon, check-auth and the demo.

import { defer } from "../../base/defer.ts";
import { given } from "../../base/given.ts";
import { existsSync } from "node:fs";
import { release } from "node:os";
import { AppError, messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { relayedIn } from "../../protocol/traffic-reports.ts";
import { maxPollWaitS, type CheckinAnswer } from "../../protocol/checkin.ts";
import type { System } from "../../base/system.ts";
import {
  checkIn,
  endOutdated,
  machineMarks,
  Outdated,
  reportNow,
  type CheckInOptions,
  type HealthReporter,
} from "./checkin.ts";
import type { WithClient } from "./requests/connection.ts";
import type { EngineRunner, OverlayControl } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { makeNamesKeeper, type NamesKeeper } from "./fetch-names.ts";
import { makePace, type Pace } from "./checkin-pace.ts";
import type { PathReporter } from "./path-report.ts";
import { makeLighthousePackets } from "./requests/lighthouse-packets.ts";
import { makeLocalSync } from "./local-sync.ts";
import { isOutdated } from "../files/config/data-plane.ts";
import { withExitReport } from "../files/granted/exit-state.ts";
import { reportedDataPlane } from "../files/config/data-plane-in-force.ts";
import { isApplied, readSyncState, type SyncState } from "../files/generations.ts";
import type { Damage, Organization } from "../files/organizations.ts";
import { keepCopy, openForRevocations } from "../files/damaged-organization.ts";
import { updateOrderPath } from "../files/update-order.ts";
import { drillPath, planeAwayMs, readDrill } from "../files/drill-state.ts";
import { readRevokedNote } from "../files/revoked-notes.ts";
import { acceptAndCarryOut, handleRefusal, obeyOrder } from "./obey-orders.ts";
import type { SyncResult } from "./applying/apply-next.ts";
import { tcpListenersOf, tcpPortOf } from "../files/tcp-state.ts";
import { isHub } from "../../protocol/routing/roles.ts";

export type FollowDeps = {
  configRoot: string;
  withClient: WithClient;
  control: OverlayControl;
  /** The running engine, which an update may change. Costs a process (systemctl), or a search of all processes. */
  engine(): Promise<EngineInUse>;
  command: string;
  /** A user asks for it (sync.ts). */
  isAsked?: boolean;
  log: Log;
  system: EngineRunner &
    Pick<
      System,
      "fetch" | "now" | "sleep" | "random" | "lookup" | "sendDatagram" | "machineState" | "bootTime"
    >;
  /** Reports how this node reaches its peers. */
  paths?: PathReporter;
  /** What this machine found out about the organization, for check-ins; answers are given to it. */
  health?: HealthReporter;
  /** Called after each answer. */
  onCheckin?(answer: CheckinAnswer): void;
  onSync?(result: SyncResult): void;
  /** Starts the program that carries out an update of this organization. Undefined: its orders are not taken here. */
  startUpdate?(slug: string): Promise<void>;
  /** The same for a drill. */
  startDrill?(slug: string): Promise<void>;
};

/** The result of one turn: `ok`, or an order that stopped or started the overlay. */
export type Turn = {
  result: "ok" | "revoked" | "resumed";
  action: "none" | "stopped" | "started";
  /** The reason of a revocation. */
  reason?: string;
  /** Set if this turn changed or rolled back the configuration. */
  sync?: SyncResult;
  /** Why the new configuration was not applied. This says nothing about this node's access. */
  syncError?: unknown;
  answer?: CheckinAnswer;
};

type FollowOptions = {
  /** Ends the loop and cancels a held poll. */
  signal: AbortSignal;
  /** The remaining time in seconds; no poll is held longer. Unset: no limit. */
  leftS?: () => number;
  /** How long packets to lighthouses may continue after the last turn, if they are needed. Default 0. */
  restMs?: number;
  /** Called after each turn, or with the error that a turn threw. */
  onTurn?: (turn: Turn | { error: unknown }) => void;
  /** Called before a pause, with what ends it early, and with undefined after it. */
  onPause?: (endPause: (() => void) | undefined) => void;
};

/** Runs until the signal or the end of the time. Failures of network or control plane never reject it. */
export async function followOrganization(
  organization: Organization,
  deps: FollowDeps,
  options: FollowOptions,
): Promise<void> {
  const { signal, leftS = () => Number.POSITIVE_INFINITY, restMs = 0 } = options;
  const isLasting = options.leftS === undefined || leftS() >= 1;
  const packets = makeLighthousePackets(organization, deps, isLasting);
  await using _ = defer(() => packets.stop(signal.aborted ? 0 : restMs));
  await takeTurns({
    organization,
    deps,
    options: { ...options, leftS },
    pace: makePace(deps.system),
    names: makeNamesKeeper(organization, deps),
    syncLocally: makeLocalSync(organization, deps),
    refreshPackets: () => packets.refresh(),
  });
}

/** What all turns of one loop share. */
type Loop = {
  organization: Organization;
  deps: FollowDeps;
  options: FollowOptions & Required<Pick<FollowOptions, "leftS">>;
  pace: Pace;
  names: NamesKeeper;
  syncLocally: ReturnType<typeof makeLocalSync>;
  refreshPackets(): void;
};

/** `refused`: the version that could not be applied, so that a newer one ends the pause. */
type AfterTurn = { pauseMs: number; refused?: number };

async function takeTurns(loop: Loop): Promise<void> {
  const { organization, deps, options } = loop;
  const { signal, leftS, onPause } = options;
  await resumeOrders(organization, deps);
  do {
    // In a drill without the control plane, nothing is asked until its end. A user's commands ask all the same.
    const awayMs = planeAwayMs(
      organization.directory,
      organization.config.ephemeral === true,
      deps.system.now(),
    );
    const { pauseMs, refused } = awayMs > 0 ? { pauseMs: awayMs } : await takeTurn(loop);
    const ms = Math.min(pauseMs, leftS() * 1000);
    if (pauseMs > 0) await pauseAfterTurn(organization, deps, { ms, refused, signal, onPause });
  } while (!signal.aborted && leftS() >= 1);
}

/** Goes on with an update and a drill that an earlier process has accepted. */
async function resumeOrders(organization: Organization, deps: FollowDeps): Promise<void> {
  const { directory } = organization;
  if (deps.startUpdate !== undefined && existsSync(updateOrderPath(directory)))
    await (await import("./requests/update-orders.ts")).resumeUpdate(organization, deps);
  if (deps.startDrill !== undefined && existsSync(drillPath(directory)))
    await (await import("./requests/drill-orders.ts")).resumeDrill(organization, deps);
}

async function takeTurn(loop: Loop): Promise<AfterTurn> {
  const { organization, deps, options, pace, names, syncLocally, refreshPackets } = loop;
  const { signal, leftS, onTurn } = options;
  const state = await syncLocally();
  // Before the check-in: another process may have changed the configuration, and the control plane may be away.
  refreshPackets();
  const before = deps.system.now();
  try {
    const turn = await followOnce(organization, deps, { ...pace.next(leftS()), signal, names, state });
    refreshPackets();
    onTurn?.(turn);
    return afterAnswer(turn, deps.system.now() - before, loop);
  } catch (error) {
    // What was reported has changed meanwhile: report it at once.
    if (signal.aborted || error instanceof Outdated) return { pauseMs: 0 };
    return afterFailure(error, loop);
  }
}

function afterAnswer(turn: Turn, tookMs: number, { organization, deps, pace }: Loop): AfterTurn {
  const { answer, sync, syncError } = turn;
  const reason = syncError === undefined ? sync?.reason : messageOf(syncError);
  const pauseMs = pace.answered({
    isApplied: reason === undefined,
    isRevoked: turn.result === "revoked",
    hasChanged: sync?.result === "changed",
    tookMs,
  });
  if (pace.isFirstFailure())
    deps.log.warn("The new configuration is not applied", { team: organization.slug, reason });
  const refused = reason !== undefined && answer?.holds_refused === true ? answer.config_version : undefined;
  return { pauseMs, ...given({ refused }) };
}

function afterFailure(error: unknown, { organization, deps, options, pace }: Loop): AfterTurn {
  if (error instanceof AppError && error.code === "control_plane_unreachable") deps.health?.noteUnreachable();
  options.onTurn?.({ error });
  const pauseMs = pace.failed(error);
  const log = pace.isFirstFailure() ? deps.log.warn : deps.log.debug;
  log("The control plane gives no usable answer; the overlay keeps running unchanged", {
    team: organization.slug,
    reason: messageOf(error),
  });
  return { pauseMs };
}

/** Ends early on the signal, by `onPause`, and when the control plane has something newer than `refused`. */
async function pauseAfterTurn(
  organization: Organization,
  deps: FollowDeps,
  { ms, refused, signal, onPause }: Pick<FollowOptions, "signal"> & Pause,
): Promise<void> {
  const ended = new AbortController();
  const endPause = () => ended.abort(new Error("Asked again"));
  onPause?.(endPause);
  const anyEnd = AbortSignal.any([signal, ended.signal]);
  if (refused !== undefined)
    void untilNewer(organization, deps, { ms, refused, signal: anyEnd }).then(endPause);
  await pause(ms, deps, anyEnd);
  endPause();
  onPause?.(undefined);
}

type Pause = { ms: number; refused: number | undefined; onPause: FollowOptions["onPause"] };

/**
 * During the pause after a configuration that could not be applied: resolves when the control plane has something newer, or
 * refuses this node. A revocation, of this node or another, does not wait for the end of the pause.
 */
async function untilNewer(
  organization: Organization,
  deps: FollowDeps,
  { ms, refused, signal }: { ms: number; refused: number; signal: AbortSignal },
): Promise<void> {
  const waitS = Math.min(maxPollWaitS, Math.ceil(ms / 1000));
  const ask = async () => {
    const report = await reportNow(deps, await deps.engine());
    const marks = machineMarks(deps.system);
    return deps.withClient((client) =>
      checkIn(organization, client, report, { waitS, refused, signal, ...marks, repeatable: false }),
    );
  };
  const isNews = await ask().then(
    (answer) => answer.config_version !== refused,
    // Without a usable answer the pause goes on.
    (error: unknown) => error instanceof AppError && error.details.order !== undefined,
  );
  if (!isNews) await pause(ms, deps, signal);
}

/** The TCP port at which this agent passes datagrams to its engine; 0: none. */
function tcpFallbackPort(organization: Organization): number {
  const [listener] = tcpListenersOf(organization);
  return listener === undefined ? 0 : tcpPortOf(listener);
}

/** The number of the drill that was taken last; undefined: this program takes none. */
const lastDrillTaken = (directory: string, startDrill: FollowDeps["startDrill"]): number | undefined =>
  startDrill === undefined ? undefined : (readDrill(directory)?.order ?? 0);

/** The parts of a check-in that depend on this node's roles, or come from its reporters. */
async function roleReports(
  { config, ...organization }: Organization,
  { health, paths, system, startDrill }: FollowDeps,
): Promise<Pick<CheckInOptions, "paths" | "relayed" | "flows" | "others" | "addresses" | "tcp" | "drill">> {
  const { directory } = organization;
  const reported = paths?.report();
  const relayed = config.is_relay
    ? await (await import("./report-relayed.ts")).relayedReport({ ...organization, config }, system)
    : undefined;
  const flows =
    config.flows === true
      ? (await import("./report-flows.ts")).flowsReport({ ...organization, config }, system)
      : undefined;
  const addresses = health?.addressRequest();
  return {
    relayed,
    ...given({ addresses, flows, paths: reported, drill: lastDrillTaken(directory, startDrill) }),
    ...(health !== undefined && config.is_lighthouse ? { others: true as const } : {}),
    ...(isHub(config) ? { tcp: tcpFallbackPort({ ...organization, config }) } : {}),
  };
}

/**
 * One check-in and its consequences, in the order in which they must happen: orders, the move of the control plane, names, the
 * configuration, the limit of forwarding. Throws if there is neither an answer nor a valid order.
 */
export async function followOnce(
  { slug }: Organization,
  deps: FollowDeps,
  options: FollowOnceOptions,
): Promise<Turn> {
  const organization = openForRevocations(deps.configRoot, slug);
  const { damage, directory } = organization;
  if (damage === undefined) keepCopy(organization);
  const state = options.state ?? readSyncState(directory);
  let engine = await deps.engine();
  if (!engine.isRunning && (await deps.control.startLeftOut?.()) === true) engine = await deps.engine();
  const names = options.names ?? makeNamesKeeper(organization, deps);
  const asked = await askControlPlane(organization, deps, { ...options, state, names, engine });
  if ("error" in asked) return handleRefusal(asked.error, organization, deps);
  const { answer, askNames } = asked;
  if (damage !== undefined) return obeyRevocationsAlone(answer, { ...organization, damage }, deps);

  // At most once a turn: a restored engine needs it before its start, and news need it at the end.
  let synced: Promise<Synced> | undefined;
  const synchronizeOnce = () => (synced ??= synchronize(organization, deps));
  const { order, notStarted } = await obeyOrder(answer.order, organization, deps, synchronizeOnce);
  await obeyRequests(answer, organization, deps);
  await names.addAnswer(answer.names, askNames);
  const revoked = order?.isRevocation === true ? { reason: order.reason } : readRevokedNote(directory);
  const needsSync = synced !== undefined || (await hasNews(answer, { directory, state, engine }, deps));
  const sync = needsSync ? await synchronizeOnce() : {};
  if (relayedIn(answer)?.paused === true)
    await (await import("./report-relayed.ts")).endForwarding(organization, deps.system);
  // Names, the move and the configuration were taken in any case.
  if (notStarted !== undefined) throw notStarted;
  const accepted = order?.restored === true ? "resumed" : "ok";
  return {
    result: revoked === undefined ? accepted : "revoked",
    action: order?.action ?? "none",
    ...given({ reason: revoked?.reason }),
    answer,
    ...sync,
  };
}

/** Moves to another control plane, and starts updates and drills, as the answer says. */
async function obeyRequests(
  { move, update, drill }: CheckinAnswer,
  organization: Organization,
  deps: FollowDeps,
): Promise<void> {
  if (move !== undefined) await (await import("./move-control-plane.ts")).obeyMove(move, organization, deps);
  if (update !== undefined || existsSync(updateOrderPath(organization.directory)))
    await (await import("./requests/update-orders.ts")).takeUpdateOrder(update, organization, deps);
  if (drill !== undefined)
    await (await import("./requests/drill-orders.ts")).takeDrill(drill, organization, deps);
}

/** Whether the configuration in force is no longer what this node should have. */
async function hasNews(
  answer: CheckinAnswer,
  { directory, state, engine }: { directory: string; state: SyncState | undefined; engine: EngineInUse },
  deps: FollowDeps,
): Promise<boolean> {
  if (answer.config_changed || !isApplied(directory)) return true;
  if (state !== undefined && isOutdated(state.data_plane, engine.next, release())) return true;
  return namesChanged(state, directory, deps);
}

type FollowOnceOptions = Pick<CheckInOptions, "signal" | "state" | "repeatable"> & {
  waitS: number;
  names?: NamesKeeper;
};

/**
 * The poll. Gives the answer to those that wait for it, and a way to ask for more names at once. `error`: the control plane
 * refused, or gave no answer. Throws `Outdated` if what was reported has changed meanwhile.
 */
async function askControlPlane(
  organization: Organization,
  deps: FollowDeps,
  { names, engine, ...waiting }: FollowOnceOptions & { names: NamesKeeper; engine: EngineInUse },
) {
  const { state, signal } = waiting;
  const report = await reportNow(deps, engine);
  const marks = machineMarks(deps.system);
  const ask = (how: CheckInOptions, asked = names.request()) =>
    deps.withClient((client) =>
      checkIn(organization, client, report, { ...how, ...marks, state, names: asked }),
    );
  const about = await roleReports(organization, deps);
  const inForce = withExitReport(
    reportedDataPlane(state?.data_plane, report.startedAt),
    organization.directory,
  );
  const poll = new AbortController();
  if (waiting.waitS > 0) endOutdated(deps, report, poll).catch(() => undefined);
  const signals = [poll.signal, ...(signal === undefined ? [] : [signal])];
  let answer: CheckinAnswer;
  try {
    answer = await ask({ ...waiting, ...about, ...inForce, signal: AbortSignal.any(signals) });
  } catch (error) {
    if (poll.signal.aborted) throw poll.signal.reason;
    return { error };
  } finally {
    poll.abort(new Error("Answered"));
  }
  if (about.paths !== undefined) deps.paths?.answered(answer.paths);
  if (about.flows !== undefined)
    (await import("./report-flows.ts")).noteAnswer(organization, about.flows, answer.flows);
  deps.health?.noteAnswer(answer);
  deps.onCheckin?.(answer);
  const askNames = async (others: Parameters<typeof ask>[1]) =>
    (await ask({ ...waiting, waitS: 0 }, others)).names;
  return { answer, askNames };
}

/**
 * While node-config.json is damaged: orders to revoke this node, and the revocations of others. Not restores and not the
 * configuration, because the copy of node-config.json may have a former order key.
 */
async function obeyRevocationsAlone(
  answer: CheckinAnswer,
  organization: Organization & { damage: Damage },
  deps: FollowDeps,
): Promise<Turn> {
  const { error } = organization.damage;
  if (answer.order !== undefined) {
    const order = await acceptAndCarryOut(answer.order, organization, deps).catch((reason: unknown) => {
      if (reason === error) return undefined;
      throw reason;
    });
    if (order !== undefined) return { result: "revoked", action: order.action, reason: order.reason, answer };
  }
  let others = "";
  if (answer.config_changed) {
    const { fetchRevocations } = await import("./revocations-alone.ts");
    others = await fetchRevocations(organization, deps);
  }
  const syncError = new AppError(error.code, `${error.message}${others}`, error.details);
  const note = readRevokedNote(organization.directory);
  if (note === undefined) return { result: "ok", action: "none", answer, syncError };
  return { result: "revoked", action: "none", reason: note.reason, answer, syncError };
}

async function namesChanged(
  { host_names: known, unresolved }: Partial<SyncState> = {},
  directory: string,
  { system }: FollowDeps,
): Promise<boolean> {
  if (unresolved === undefined && known === undefined) return false;
  const { haveChanged, unresolvedOf } = await import("../files/granted/host-names.ts");
  if (unresolved !== undefined && (await unresolvedOf(unresolved, system)).length < unresolved.length)
    return true;
  if (known === undefined) return false;
  const { overlayNetworks } = await import("../files/granted/networks.ts");
  return haveChanged(known, system, overlayNetworks(directory));
}

type Synced = Pick<Turn, "sync" | "syncError">;

async function synchronize(organization: Organization, deps: FollowDeps): Promise<Synced> {
  const { control, command, log, system, isAsked = false } = deps;
  // Loaded on demand, like what orders and DNS names need: most check-ins have no news.
  const { syncOrganization } = await import("./sync.ts");
  try {
    const engine = await deps.engine();
    const sync = await deps.withClient((client) =>
      syncOrganization(organization, { client, control, engine, command, log, system, isAsked }),
    );
    deps.onSync?.(sync);
    return { sync };
  } catch (error) {
    return { syncError: error };
  }
}

/** Ends early, without an error, on the signal. */
async function pause(ms: number, { system }: FollowDeps, signal: AbortSignal): Promise<void> {
  await system.sleep(ms, signal).catch(() => undefined);
}
