// Checks whether this machine still belongs to an organization. Only a signed order stops or starts the overlay. Every
// other failure is reported as "unsure" and changes nothing.

import { given } from "../../base/given.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { followOnce, type FollowDeps, type Turn } from "./follow-once.ts";
import { followOrganization } from "./follow.ts";
import type { Organization } from "../files/organizations.ts";
import { canNote, readRevokedNote, revokedError, startsWhenRestored } from "../files/revoked-notes.ts";

/** What `check-auth --json` prints. */
type AuthReport = {
  org_slug: string;
  result: "ok" | "revoked" | "resumed" | "unsure";
  action: "none" | "stopped" | "started";
  reason?: string;
};

/** `status` is the exit status: 7 when a revocation stopped the overlay, 6 if unsure, 1 for a bad configuration. */
export type AuthOutcome = { report: AuthReport; status: number };

const unsureStatus = 6;

/**
 * How long packets to lighthouses continue after the wait, in ms: 0.18 s for each second of the wait. systemd starts a run each minute, so
 * the run must end within 59 s: otherwise the unit would never be idle. After the `--wait 58` of units.ts one second is left.
 */
const restAfter = (waitS: number) => Math.max(0, Math.min(180 * waitS, 59_000 - 1000 * waitS));

/** Checks in and applies news for `waitS` seconds. */
export async function checkAuth(
  organization: Organization,
  deps: FollowDeps,
  waitS: number,
): Promise<AuthOutcome> {
  const { slug } = organization;
  const end = deps.system.now() + waitS * 1000;
  let latest: AuthOutcome | undefined;
  await followOrganization(organization, deps, {
    // The wait must end even if the clock is set back meanwhile.
    signal: AbortSignal.timeout((waitS + 60) * 1000),
    leftS: () => Math.max(0, (end - deps.system.now()) / 1000),
    restMs: restAfter(waitS),
    onTurn(turn) {
      // An earlier result stays valid after a network failure.
      if ("error" in turn) latest ??= unsure(slug, turn.error);
      else latest = conclude(slug, turn, latest);
    },
  });
  const late = new AppError("control_plane_unreachable", "The control plane did not answer in time");
  const outcome = orStillRevoked(organization, latest ?? unsure(slug, late));
  // A damaged organization obeys revocations only: anything else is unsure.
  const { damage } = organization;
  return damage === undefined || outcome.report.result === "revoked" ? outcome : unsure(slug, damage.error);
}

/** Without an answer, a revocation that this machine has noted stays in force. */
function orStillRevoked({ slug, directory }: Organization, outcome: AuthOutcome): AuthOutcome {
  const note = outcome.status === unsureStatus ? readRevokedNote(directory) : undefined;
  if (note === undefined) return outcome;
  const report = { org_slug: slug, result: "revoked", action: "none", reason: note.reason } as const;
  return { ...outcome, report };
}

/** How long a start waits for the control plane. */
const askMs = 5000;

/**
 * Before a start: where nothing can be written, this machine may not know that the node is revoked, so the control plane
 * is asked. Throws access_revoked. Without an answer the start goes on.
 */
export async function refuseUnnotedRevocation(organization: Organization, deps: FollowDeps): Promise<void> {
  if (canNote(organization.directory)) return;
  const signal = AbortSignal.timeout(askMs);
  const turn = await followOnce(organization, deps, { waitS: 0, signal }).catch(() => undefined);
  if (turn?.result !== "revoked") return;
  throw revokedError(organization.slug, turn.reason ?? "", startsWhenRestored);
}

export function unsure(slug: string, error: unknown): AuthOutcome {
  const isLocal = error instanceof AppError && localFailures.includes(error.code);
  return {
    report: { org_slug: slug, result: "unsure", action: "none", reason: messageOf(error) },
    status: isLocal ? error.exitStatus : unsureStatus,
  };
}

/** Failures of this machine. A refusal by the server has the same exit statuses, but proves nothing. */
const localFailures: readonly string[] = [
  "bad_configuration",
  "os_permission",
  "foreign_files",
  "credentials_missing",
  "not_registered",
  "disk_full",
];

/** The outcome of all turns so far: a stop or start of an earlier turn stays part of it, unless this turn did the reverse. */
function conclude(slug: string, turn: Turn, earlier: AuthOutcome | undefined): AuthOutcome {
  const earlierAction = earlier?.report.action ?? "none";
  // A turn that did nothing keeps what an earlier one did. Of a revoked node only a stop is kept, below: an earlier start is over.
  const action = turn.action === "none" && turn.result !== "revoked" ? earlierAction : turn.action;
  const result = turn.result === "ok" && action === "started" ? "resumed" : turn.result;
  const wasStopped = turn.result === "revoked" && (action === "stopped" || earlierAction === "stopped");
  const reason =
    turn.reason ??
    turn.sync?.reason ??
    (turn.syncError === undefined ? undefined : messageOf(turn.syncError));
  return {
    report: {
      org_slug: slug,
      result,
      action: wasStopped ? "stopped" : action,
      ...given({ reason }),
    },
    status: turn.result === "revoked" ? revokedStatus(wasStopped ? "stopped" : "none") : syncStatus(turn),
  };
}

/** Exit status of a revoked node: 7 only for the run that stopped the overlay, because later runs have no news. */
export function revokedStatus(action: AuthReport["action"]): number {
  return action === "stopped" ? 7 : 0;
}

/** A network failure between check-in and download is an outage, not a failure of this machine. */
function syncStatus({ sync, syncError }: Turn): number {
  if (syncError === undefined) return sync?.result === "returned" ? 1 : 0;
  return syncError instanceof AppError && syncError.exitStatus === unsureStatus ? unsureStatus : 1;
}
