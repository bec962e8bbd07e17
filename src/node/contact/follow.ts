// Follows one organization's control plane by long polls, turn after turn (follow-once.ts), with pauses after failures. An
// unreachable control plane never stops a tunnel. Used by the daemon, check-auth and the demo.

import { existsSync } from "node:fs";
import { defer } from "../../base/defer.ts";
import { AppError, because, hasCode, messageOf } from "../../base/errors.ts";
import { maxPollWaitS } from "../../protocol/checkin.ts";
import { drillPath, planeAwayMs } from "../files/drill-state.ts";
import type { Organization } from "../files/organizations.ts";
import { updateOrderPath } from "../files/update-order.ts";
import { makePace, type Pace } from "./checkin-pace.ts";
import { checkIn, machineMarks, Outdated, reportNow } from "./checkin.ts";
import { makeNamesKeeper, type NamesKeeper } from "./fetch-names.ts";
import { followOnce, type FollowDeps, type Turn } from "./follow-once.ts";
import { makeLocalSync } from "./local-sync.ts";
import { makeLighthousePackets } from "./requests/lighthouse-packets.ts";

type FollowOptions = {
  /** Ends the loop, and cancels a poll that the control plane holds. */
  signal: AbortSignal;
  /** The remaining time in seconds; no poll is held longer. Unset: no limit. */
  leftS?: () => number;
  /** How long packets to lighthouses may continue after the last turn, if they are needed. Default 0. */
  restMs?: number;
  /** Called after each turn, or with the error that a turn threw. */
  onTurn?: (turn: Turn | { error: unknown }) => void;
  /** Called before a pause with a function that ends it early, and after the pause with undefined. */
  onPause?: (endPause: (() => void) | undefined) => void;
};

/** Runs until the signal or the end of the time. Failures of network or control plane never reject it. */
export async function followOrganization(
  organization: Organization,
  deps: FollowDeps,
  options: FollowOptions,
): Promise<void> {
  const { signal, leftS = () => Number.POSITIVE_INFINITY, restMs = 0 } = options;
  // A run without time to wait ends after one turn.
  const isLasting = options.leftS === undefined || leftS() >= 1;
  // Packets by which lighthouses learn of this node sooner, after changes of certificates or a restart of theirs.
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

/** `refusedVersion`: of the configuration that could not be applied: a newer one ends the pause. */
type AfterTurn = { pauseMs: number; refusedVersion?: number };

async function takeTurns(loop: Loop): Promise<void> {
  const { organization, deps, options } = loop;
  const { signal, leftS, onPause } = options;
  await resumeOrders(organization, deps);
  do {
    // In a drill without the control plane, this loop is silent until its end. Commands of a user still check in.
    const awayMs = planeAwayMs(
      organization.directory,
      organization.config.ephemeral === true,
      deps.system.now(),
    );
    const { pauseMs, refusedVersion }: AfterTurn = awayMs > 0 ? { pauseMs: awayMs } : await takeTurn(loop);
    const ms = Math.min(pauseMs, leftS() * 1000);
    if (pauseMs > 0) await pauseAfterTurn(organization, deps, { ms, refusedVersion, signal, onPause });
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
  // sync.json as it was read just now; undefined if it has changed since, or is not there: followOnce reads it again.
  const state = await syncLocally();
  // Also before the check-in: another process may have changed the configuration, and the control plane may be away.
  refreshPackets();
  const startedAt = deps.system.now();
  try {
    const turn = await followOnce(organization, deps, { ...pace.next(leftS()), signal, names, state });
    refreshPackets();
    onTurn?.(turn);
    return afterAnswer(turn, deps.system.now() - startedAt, loop);
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
  // Only a control plane that says so holds a poll until there is something newer than a refused version.
  const isHeld = reason !== undefined && answer?.holds_refused === true;
  return { pauseMs, ...(isHeld ? { refusedVersion: answer.config_version } : {}) };
}

function afterFailure(error: unknown, { organization, deps, options, pace }: Loop): AfterTurn {
  if (hasCode(error, "control_plane_unreachable")) deps.health?.noteUnreachable();
  options.onTurn?.({ error });
  const pauseMs = pace.failed(error);
  const log = pace.isFirstFailure() ? deps.log.warn : deps.log.debug;
  log(
    "The control plane gives no usable answer; the overlay keeps running unchanged",
    because(organization.slug, error),
  );
  return { pauseMs };
}

type Pause = Pick<FollowOptions, "signal"> & {
  ms: number;
  refusedVersion: number | undefined;
  onPause: FollowOptions["onPause"];
};

/** Ends early on the signal, by `onPause`, and when the control plane has something newer than the refused version. */
async function pauseAfterTurn(
  organization: Organization,
  deps: FollowDeps,
  { ms, refusedVersion, signal, onPause }: Pause,
): Promise<void> {
  const ended = new AbortController();
  const endPause = () => ended.abort(new Error("Asked again"));
  onPause?.(endPause);
  const anyEnd = AbortSignal.any([signal, ended.signal]);
  if (refusedVersion !== undefined)
    void untilNewer(organization, deps, { ms, refusedVersion, signal: anyEnd }).then(endPause);
  await pause(ms, deps, anyEnd);
  // Cancels the poll of `untilNewer`.
  endPause();
  onPause?.(undefined);
}

/**
 * During the pause after a configuration that could not be applied: resolves when the control plane has something newer, or
 * refuses this node. A revocation, of this node or another, does not wait for the end of the pause.
 */
async function untilNewer(
  organization: Organization,
  deps: FollowDeps,
  { ms, refusedVersion, signal }: { ms: number; refusedVersion: number; signal: AbortSignal },
): Promise<void> {
  const waitS = Math.min(maxPollWaitS, Math.ceil(ms / 1000));
  const ask = async () => {
    const report = await reportNow(deps, await deps.engine());
    const marks = machineMarks(deps.system);
    return deps.withClient((client) =>
      checkIn(organization, client, report, { waitS, refusedVersion, signal, ...marks, repeatable: false }),
    );
  };
  const isNews = await ask().then(
    (answer) => answer.config_version !== refusedVersion,
    // A signed order is news. Without a usable answer the pause goes on.
    (error: unknown) => error instanceof AppError && error.details.order !== undefined,
  );
  if (!isNews) await pause(ms, deps, signal);
}

/** Ends early, without an error, on the signal. */
async function pause(ms: number, { system }: FollowDeps, signal: AbortSignal): Promise<void> {
  await system.sleep(ms, signal).catch(() => undefined);
}
