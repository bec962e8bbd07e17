// Stays checked in with one organization's control plane: a long poll, what is new applied at once, orders carried
// out. A control plane that is away never stops a tunnel; one that comes back is not stampeded. Shared by the daemon,
// check-auth and the demo.

import { AppError, messageOf } from "../errors.ts";
import type { Log } from "../log.ts";
import { maxPollWaitS, type CheckinAnswer } from "../protocol.ts";
import type { System } from "../system.ts";
import { checkIn } from "./checkin.ts";
import type { WithClient } from "./connection.ts";
import { engineVersion, type EngineControl } from "./engine.ts";
import { carryOut, takeOrder } from "./orders.ts";
import { openOrganization, readRevokedNote, readSyncState, type Organization } from "./organizations.ts";
import { syncOrganization, type SyncResult } from "./sync.ts";

export type TeamControl = EngineControl & { start(): Promise<void>; stop(): Promise<void> };

export type FollowEdge = {
  configRoot: string;
  withClient: WithClient;
  control: TeamControl;
  /** The engine's path now; an update may move it. */
  engine(): string | undefined;
  command: string;
  log: Log;
  system: Pick<System, "now" | "sleep" | "run" | "random">;
  /** After each answer, with the server's time of it. */
  onCheckin?(answer: CheckinAnswer): void;
  onSync?(result: SyncResult): void;
};

/** What one turn met: `ok`, an order that stopped or started the organization, or nothing that can be relied on. */
export type Turn = {
  result: "ok" | "revoked" | "resumed";
  action: "none" | "stopped" | "started";
  /** The configuration was changed, or put back, in this turn. */
  sync?: SyncResult;
  answer?: CheckinAnswer;
};

const revokedPauseMs = 10_000;
const firstPauseMs = 1000;
const longestPauseMs = 60_000;

/** Follows until the signal ends it. Never rejects for what the network or the control plane does. */
export async function followOrganization(
  organization: Organization,
  edge: FollowEdge,
  signal: AbortSignal,
): Promise<void> {
  const memory = newMemory();
  let failures = 0;
  while (!signal.aborted) {
    const before = edge.system.now();
    try {
      const turn = await followOnce(organization, edge, memory, {
        waitS: failures > 0 ? 0 : maxPollWaitS,
        signal,
      });
      failures = turn.sync?.result === "returned" ? failures + 1 : 0;
      // What was put back is tried again, but ever more rarely.
      if (failures > 0) await pause(backoff(failures, edge), edge, signal);
      else if (turn.result === "revoked") await pause(jitter(revokedPauseMs, edge), edge, signal);
      // A server that holds nothing must not be asked in a loop.
      else if (turn.sync === undefined && edge.system.now() - before < 100)
        await pause(jitter(firstPauseMs, edge), edge, signal);
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      const log = failures === 1 ? edge.log.warn : edge.log.debug;
      log("The control plane gives no usable answer; the overlay goes on as it is", {
        team: organization.slug,
        reason: messageOf(error),
      });
      await pause(Math.max(retryAfterMs(error), backoff(failures, edge)), edge, signal);
    }
  }
}

export type Memory = {
  /** The organization's version that is in force here though it changed no file. */
  configVersion: number | undefined;
};

export function newMemory(): Memory {
  return { configVersion: undefined };
}

/** One check-in and what follows from it. Throws what is no order and no answer. */
export async function followOnce(
  { slug }: Organization,
  edge: FollowEdge,
  memory: Memory,
  options: { waitS: number; signal?: AbortSignal },
): Promise<Turn> {
  const organization = openOrganization(edge.configRoot, slug);
  const engine = edge.engine();
  const running = await edge.control.running();
  const report = {
    overlayVersion: engine === undefined ? undefined : await engineVersion(engine, edge.system),
    overlayState: running ? ("running" as const) : ("stopped" as const),
    configVersion: memory.configVersion,
    confirmed: running,
  };
  let answer: CheckinAnswer;
  try {
    answer = await edge.withClient((client) => checkIn(organization, client, report, options));
  } catch (error) {
    if (error instanceof AppError && error.code === "node_revoked") return revoked(error, organization, edge);
    throw error;
  }
  edge.onCheckin?.(answer);
  const action = answer.order === undefined ? "none" : await obey(answer.order, organization, edge);
  const sync = answer.config_changed ? await synchronize(organization, edge, memory) : undefined;
  return {
    result: action === "started" ? "resumed" : "ok",
    action,
    answer,
    ...(sync === undefined ? {} : { sync }),
  };
}

async function synchronize(
  organization: Organization,
  edge: FollowEdge,
  memory: Memory,
): Promise<SyncResult> {
  const { control, command, log, system } = edge;
  const result = await edge.withClient((client) =>
    syncOrganization(organization, { client, control, engine: edge.engine(), command, log, system }),
  );
  const inFiles = readSyncState(organization.directory)?.config_version;
  memory.configVersion = result.configVersion === inFiles ? undefined : result.configVersion;
  edge.onSync?.(result);
  return result;
}

/** A 403 says nothing by itself: only the signed order in it stops the organization. */
async function revoked(error: AppError, organization: Organization, edge: FollowEdge): Promise<Turn> {
  const { order } = error.details;
  if (order === undefined)
    throw new AppError(
      "untrusted_answer",
      "The control plane says that this node is revoked, but shows no order",
    );
  return { result: "revoked", action: await obey(order, organization, edge) };
}

async function obey(jws: string, organization: Organization, edge: FollowEdge): Promise<Turn["action"]> {
  const order = await takeOrder(jws, organization);
  return carryOut(order, organization, edge.control, { now: () => edge.system.now(), log: edge.log });
}

export function isStopped(organization: Organization): boolean {
  return readRevokedNote(organization.directory) !== undefined;
}

function retryAfterMs(error: unknown): number {
  return error instanceof AppError ? (error.details.retryAfter ?? 0) * 1000 : 0;
}

/** Doubles from a second to a minute, with jitter. */
function backoff(failures: number, edge: FollowEdge): number {
  return jitter(Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(failures - 1, 10)), edge);
}

/** Half to all of it. */
function jitter(ms: number, { system }: FollowEdge): number {
  return ms * (0.5 + (system.random(1)[0] ?? 0) / 510);
}

/** Ends early, and quietly, when the signal comes. */
async function pause(ms: number, { system }: FollowEdge, signal: AbortSignal): Promise<void> {
  await system.sleep(ms, signal).catch(() => undefined);
}
