// One turn with the control plane: a check-in and what follows from its answer. Used by the loop (follow.ts), and alone by
// commands that need an answer now.

import { existsSync } from "node:fs";
import { release } from "node:os";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { CheckinAnswer } from "../../protocol/checkin.ts";
import type { NamesRequest } from "../../protocol/names.ts";
import { isHub } from "../../protocol/routing/roles.ts";
import { relayedIn } from "../../protocol/traffic-reports.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import type { OverlayControl } from "../engine/control-engine.ts";
import type { EngineRunner } from "../engine/engine.ts";
import { reportedDataPlane } from "../files/config/data-plane-in-force.ts";
import { isOutdated } from "../files/config/data-plane.ts";
import { keepCopy, openForRevocations } from "../files/damaged-organization.ts";
import { readDrill } from "../files/drill-state.ts";
import { isApplied, readSyncState } from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { withExitReport } from "../files/granted/exit-state.ts";
import type { Damage, Organization } from "../files/organizations.ts";
import { readRevokedNote } from "../files/revoked-notes.ts";
import { tcpListenersOf, tcpPortOf } from "../files/tcp-state.ts";
import { updateOrderPath } from "../files/update-order.ts";
import type { SyncResult } from "./applying/apply-next.ts";
import {
  checkIn,
  endOutdated,
  machineMarks,
  reportNow,
  type CheckInOptions,
  type HealthReporter,
} from "./checkin.ts";
import { makeNamesKeeper, type NamesKeeper } from "./fetch-names.ts";
import { acceptAndCarryOut, handleRefusal, obeyOrder } from "./obey-orders.ts";
import type { PathReporter } from "./path-report.ts";
import type { WithClient } from "./requests/connection.ts";

export type FollowDeps = {
  configRoot: string;
  withClient: WithClient;
  control: OverlayControl;
  /** The running engine, which an update may change. Costs a process (systemctl), or a search of all processes. */
  engine(): Promise<EngineInUse>;
  command: string;
  /** A user asks for it: downloads all files, and tries again what the engine refused a short time ago. */
  isAsked?: boolean;
  log: Log;
  system: EngineRunner &
    Pick<
      System,
      "fetch" | "now" | "sleep" | "random" | "lookup" | "sendDatagram" | "machineState" | "bootTime"
    >;
  /** Reports how this node reaches its peers. */
  paths?: PathReporter;
  /** Reports the health of the organization on this machine, and learns from answers. */
  health?: HealthReporter;
  /** Called after each answer. */
  onCheckin?(answer: CheckinAnswer): void;
  onSync?(result: SyncResult): void;
  /** Starts the program that carries out an update of this organization. Undefined: this process takes no such orders. */
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

type FollowOnceOptions = Pick<CheckInOptions, "signal" | "state" | "repeatable"> & {
  waitS: number;
  names?: NamesKeeper;
};

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
  // systemd may have skipped the start while the configuration was gone.
  if (!engine.isRunning && (await deps.control.startLeftOut?.()) === true) engine = await deps.engine();
  const names = options.names ?? makeNamesKeeper(organization, deps);
  const polled = await poll(organization, deps, { ...options, state, names, engine });
  if ("error" in polled) return handleRefusal(polled.error, organization, deps);
  const { answer, askNames } = polled;
  if (damage !== undefined) return obeyRevocationsAlone(answer, { ...organization, damage }, deps);

  // At most once a turn: a restored engine needs the new certificate before its start; for other news it comes last.
  let synced: Promise<Synced> | undefined;
  const synchronizeOnce = () => (synced ??= synchronize(organization, deps));
  const { order, notStarted } = await obeyOrder(answer.order, organization, deps, synchronizeOnce);
  await obeyRequests(answer, organization, deps);
  await names.addAnswer(answer.names, askNames);
  const revoked = order?.isRevocation === true ? { reason: order.reason } : readRevokedNote(directory);
  const needsSync = synced !== undefined || (await hasNews(answer, { directory, state, engine }, deps));
  const sync = needsSync ? await synchronizeOnce() : {};
  // The relay has forwarded its maximum of this month: no node may use it before the next one.
  if (relayedIn(answer)?.paused === true)
    await (await import("./report-relayed.ts")).endForwarding(organization, deps.system);
  // Only now: names, the move and the configuration are taken although a restored engine did not start.
  if (notStarted !== undefined) throw notStarted;
  const unlessRevoked = order?.restored === true ? "resumed" : "ok";
  return {
    result: revoked === undefined ? unlessRevoked : "revoked",
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
  // Without a new order, too: an update that is under way learns of the check-in, and its last report may still have to be sent.
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

/**
 * Checks in, and passes the answer to the reporters. `askNames` checks in again for more names. `error`: the control plane
 * refused, or gave no answer. Throws `Outdated` if what was reported has changed meanwhile.
 */
async function poll(
  organization: Organization,
  deps: FollowDeps,
  { names, engine, ...waiting }: FollowOnceOptions & { names: NamesKeeper; engine: EngineInUse },
) {
  const { state, signal } = waiting;
  const report = await reportNow(deps, engine);
  const marks = machineMarks(deps.system);
  const ask = (how: CheckInOptions, namesRequest: NamesRequest | undefined) =>
    deps.withClient((client) =>
      checkIn(organization, client, report, { ...how, ...marks, state, names: namesRequest }),
    );
  const reports = await roleReports(organization, deps);
  const dataPlane = withExitReport(
    reportedDataPlane(state?.data_plane, report.startedAt),
    organization.directory,
  );
  const ended = new AbortController();
  // Its rejection at the end of the poll says nothing.
  if (waiting.waitS > 0) endOutdated(deps, report, ended).catch(() => undefined);
  const signals = [ended.signal, ...(signal === undefined ? [] : [signal])];
  let answer: CheckinAnswer;
  try {
    const how = { ...waiting, ...reports, ...dataPlane, signal: AbortSignal.any(signals) };
    answer = await ask(how, names.request());
  } catch (error) {
    // The poll did not fail: endOutdated has aborted it.
    if (ended.signal.aborted) throw ended.signal.reason;
    return { error };
  } finally {
    // Ends endOutdated.
    ended.abort(new Error("Answered"));
  }
  if (reports.paths !== undefined) deps.paths?.answered(answer.paths);
  if (reports.flows !== undefined)
    (await import("./flows-in-checkins.ts")).noteAnswer(organization, reports.flows, answer.flows);
  deps.health?.noteAnswer(answer);
  deps.onCheckin?.(answer);
  const askNames = async (namesRequest: NamesRequest) =>
    (await ask({ ...waiting, waitS: 0 }, namesRequest)).names;
  return { answer, askNames };
}

/** The TCP port at which this agent passes datagrams to its engine; 0: none. */
function tcpFallbackPort(organization: Organization): number {
  const [listener] = tcpListenersOf(organization);
  return listener === undefined ? 0 : tcpPortOf(listener);
}

/** The number of the drill that was taken last; 0: none was; undefined: this process takes none. */
const lastDrillTaken = (directory: string, startDrill: FollowDeps["startDrill"]): number | undefined =>
  startDrill === undefined ? undefined : (readDrill(directory)?.order ?? 0);

/** The parts of a check-in that depend on this node's roles, or come from its reporters. */
async function roleReports(
  organization: Organization,
  { health, paths, system, startDrill }: FollowDeps,
): Promise<Pick<CheckInOptions, "paths" | "relayed" | "flows" | "others" | "addresses" | "tcp" | "drill">> {
  const { config, directory } = organization;
  const pathsReport = paths?.report();
  const relayed = config.is_relay
    ? await (await import("./report-relayed.ts")).relayedReport(organization, system)
    : undefined;
  const flows =
    config.flows === true
      ? (await import("./flows-in-checkins.ts")).flowsReport(organization, system)
      : undefined;
  const addresses = health?.addressRequest();
  return {
    relayed,
    ...given({ addresses, flows, paths: pathsReport, drill: lastDrillTaken(directory, startDrill) }),
    // A lighthouse asks whether any other node is online: if one is and it hears none, it is cut off.
    ...(health !== undefined && config.is_lighthouse ? { others: true as const } : {}),
    ...(isHub(config) ? { tcp: tcpFallbackPort(organization) } : {}),
  };
}

/**
 * While node-config.json is damaged: accepts orders to revoke this node, and the revocations of others. No restore and no
 * configuration, because the copy of node-config.json that stands in for it may have a former order key.
 */
async function obeyRevocationsAlone(
  answer: CheckinAnswer,
  organization: Organization & { damage: Damage },
  deps: FollowDeps,
): Promise<Turn> {
  const { error } = organization.damage;
  if (answer.order !== undefined) {
    const order = await acceptAndCarryOut(answer.order, organization, deps).catch((thrown: unknown) => {
      // A restore is refused with the damage itself.
      if (thrown === error) return undefined;
      throw thrown;
    });
    if (order !== undefined) return { result: "revoked", action: order.action, reason: order.reason, answer };
  }
  let ofRevocations = "";
  if (answer.config_changed) {
    const { fetchRevocations } = await import("./revocations-alone.ts");
    ofRevocations = await fetchRevocations(organization, deps);
  }
  const syncError = new AppError(error.code, `${error.message}${ofRevocations}`, error.details);
  const note = readRevokedNote(organization.directory);
  if (note === undefined) return { result: "ok", action: "none", answer, syncError };
  return { result: "revoked", action: "none", reason: note.reason, answer, syncError };
}

/** Whether a name has an address now that had none, or has other addresses than config.yml. */
async function namesChanged(
  { host_names: hostNames, unresolved }: Partial<SyncState> = {},
  directory: string,
  { system }: FollowDeps,
): Promise<boolean> {
  if (unresolved === undefined && hostNames === undefined) return false;
  const { haveChanged, lookUpUnresolved } = await import("../files/granted/host-names.ts");
  if (unresolved !== undefined && (await lookUpUnresolved(unresolved, system)).length < unresolved.length)
    return true;
  if (hostNames === undefined) return false;
  const { overlayNetworks } = await import("../files/granted/networks.ts");
  return haveChanged(hostNames, system, overlayNetworks(directory));
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
