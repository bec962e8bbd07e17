// One check-in: the report of this node and the answer of the control plane.

import { existsSync } from "node:fs";
import { uptime } from "node:os";
import { join } from "node:path";
import { given } from "../../base/given.ts";
import { buildInfo } from "../../build-info.ts";
import type { CheckinAnswer, CheckinRequest } from "../../protocol/checkin.ts";
import type { NamesRequest } from "../../protocol/names.ts";
import { refusedOf } from "../../protocol/seals/refused.ts";
import type { PathsReport } from "../../protocol/path-report.ts";
import type { DataPlaneReport } from "../../protocol/values.ts";
import type { FlowsReport, RelayedReport } from "../../protocol/traffic-reports.ts";
import type { OverlayControl } from "../engine/control-engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import type { FindingKind } from "../../protocol/finding-kinds.ts";
import { ageOf } from "../../platform/process-identity.ts";
import type { System } from "../../base/system.ts";
import type { Client } from "./requests/client.ts";
import { isApplied, readSyncState, versionInForce } from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import type { Organization } from "../files/organizations.ts";
import { sha256Hex } from "../../base/sha256.ts";

export type Report = {
  /** The version that runs or would run; undefined if unknown: then the control plane keeps the one reported before. */
  overlayVersion: string | undefined;
  overlayState: "running" | "stopped" | FindingKind | undefined;
  /** Start of the running engine, ms since 1970. */
  startedAt?: number | undefined;
};

/** The engine part of the report. */
export function reportOf({ version, isRunning }: EngineInUse, finding?: FindingKind): Report {
  // `not_running` is of an engine that should run. Without it, an engine that is off was stopped, and other findings do not count.
  const isDown = !isRunning && finding !== "not_running";
  return { overlayVersion: version, overlayState: isDown ? "stopped" : (finding ?? "running") };
}

/** What the health of this node gives to check-ins, and takes from their answers. */
export type HealthReporter = {
  /** The gravest finding; undefined if there is none. */
  findingKind(): FindingKind | undefined;
  /** Whether there is traffic with a node that is no lighthouse. True if the engine is too old to tell. */
  isBusy(): boolean;
  noteAnswer(answer: CheckinAnswer): void;
  /** Asks the control plane for the addresses of peers; undefined: not now. */
  addressRequest(): CheckinRequest["addresses"];
  /** The control plane cannot be reached. */
  noteUnreachable(): void;
  /** Resolves when the findings change; rejects at the signal. */
  untilChanged(signal: AbortSignal): Promise<void>;
};

type ReportDeps = {
  control: Pick<OverlayControl, "process" | "wanted">;
  engine(): Promise<EngineInUse>;
  health?: HealthReporter;
  system: Pick<System, "now" | "random" | "sleep">;
};

/** The poll was cancelled because its report is outdated. */
export class Outdated extends Error {}

/** A state that changes often is reported at most this often. */
const reportEveryMs = 5000;
/** When a lighthouse ends, all nodes have a new state at the same moment: each waits for a random part of this time. */
const spreadMs = 3000;

/** The engine as it is, and what of it is reported to the control plane. */
export async function reportNow(
  { control, health, system }: ReportDeps,
  inUse: EngineInUse,
): Promise<Report> {
  const process = await control.process();
  const shouldRun = process === undefined && (await control.wanted?.()) === true;
  const report = reportOf(inUse, shouldRun ? "not_running" : health?.findingKind());
  return { ...report, startedAt: process && system.now() - ageOf(process) };
}

/** Aborts a held poll when the engine's state is no longer the one that was reported with it. Rejects when the poll ends. */
export async function endOutdated(deps: ReportDeps, reported: Report, poll: AbortController): Promise<void> {
  const { health, system } = deps;
  if (health === undefined) return;
  const reportedAt = system.now();
  const [randomByte = 0] = system.random(1);
  while (!poll.signal.aborted) {
    await health.untilChanged(poll.signal);
    const leftMs = Math.max(0, reportEveryMs - Math.abs(system.now() - reportedAt));
    const waitMs = leftMs + (spreadMs * randomByte) / 256;
    await system.sleep(waitMs, poll.signal);
    if ((await reportNow(deps, await deps.engine())).overlayState !== reported.overlayState)
      poll.abort(new Outdated());
  }
}

/**
 * The control plane notices copies of a node by `machine`, and wrong clocks by `time` (s since 1970). `machine` stays the same
 * until the next boot: a copy of this machine has another mark, a container has that of its host. It is undefined if not all
 * processes of this machine see the same boot: the control plane would take them for two machines.
 */
export function machineMarks({ bootTime, now }: Pick<System, "bootTime" | "now">) {
  const { id, isShared } = bootTime();
  const machine = id === undefined || !isShared ? undefined : sha256Hex(id).slice(0, 16);
  return { machine, time: Math.max(0, Math.floor(now() / 1000)) };
}

export type CheckInOptions = {
  /** The server may hold the request for as many seconds, until there is news. */
  waitS?: number;
  signal?: AbortSignal;
  /** Whether the client repeats a request that broke. Default: yes, unless the server may hold it. */
  repeatable?: boolean;
  /** The version of a configuration that could not be applied: with `waitS`, the server waits for a newer one. */
  refusedVersion?: number;
  probe?: CheckinRequest["probe"];
  /** Set by callers that apply the names of the answer. */
  names?: NamesRequest | undefined;
  /** Set by callers that pass the answer to the path reporter. */
  paths?: Partial<PathsReport>;
  relayed?: RelayedReport | undefined;
  /** Set by callers that note the answer. */
  flows?: FlowsReport;
  data_plane?: DataPlaneReport | undefined;
  /** Set by callers that pass the answer to the health reporter. */
  addresses?: CheckinRequest["addresses"];
  machine?: string | undefined;
  time?: number;
  leaving?: true;
  /** The port of the TCP fallback of a lighthouse or relay; 0: none. */
  tcp?: number;
  /** The number of the last drill that was taken; 0: none. */
  drill?: number;
  /** A lighthouse asks whether another node is online. */
  others?: true;
  /** The content of sync.json, if the caller has read it. */
  state?: SyncState | undefined;
};

/** Sends it. Throws the errors of the client. */
export async function checkIn(
  organization: Organization,
  client: Pick<Client, "checkin">,
  report: Report,
  options: CheckInOptions = {},
): Promise<CheckinAnswer> {
  const { slug, config, directory, damage } = organization;
  const state = options.state ?? readSyncState(directory);
  const version = versionInForce(organization, state);
  // Confirmed: the engine has shown that it runs with these files, or it is off and reads them at its next start.
  const confirmed = damage === undefined && isApplied(directory);
  const { advertised, updates } = damage === undefined ? await permitted(directory) : {};
  const request: CheckinRequest = {
    version: buildInfo.version,
    uptime: Math.floor(uptime()),
    // A damaged directory does not prove which version runs.
    ...(damage === undefined ? { config_version: version } : {}),
    ...(confirmed ? { confirmed_config_version: version } : {}),
    ...given({
      overlay_version: report.overlayVersion,
      overlay_state: report.overlayState,
      refused_config_version: options.refusedVersion,
      probe: options.probe,
      names: options.names,
      paths: options.paths,
      relayed: options.relayed,
      flows: options.flows,
      data_plane: options.data_plane,
      addresses: options.addresses,
      advertised,
      updates,
      seal_refused: damage === undefined ? refusedOf(state?.seal) : undefined,
      others: options.others,
      machine: options.machine,
      time: options.time,
      leaving: options.leaving,
      tcp: options.tcp,
      drill: options.drill,
    }),
  };
  return client.checkin(slug, config.node_id, request, options);
}

/**
 * The networks that root lets this machine route for others, and what the control plane may update. Every check-in says both,
 * except with a damaged directory. One that says nothing ends the offer of networks; if it names an engine, it ends the
 * permission to update, too.
 */
async function permitted(directory: string): Promise<Pick<CheckinRequest, "advertised" | "updates">> {
  const { mayUpdateOf } = await import("../files/update-order.ts");
  const updates = mayUpdateOf(directory);
  if (!existsSync(join(directory, "permissions.json"))) return given({ updates });
  // Loaded on demand: it decodes certificates, and few machines are routers.
  const { advertisedNow } = await import("../routing/offers.ts");
  return given({ advertised: advertisedNow(directory), updates });
}
