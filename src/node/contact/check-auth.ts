// Whether this machine still belongs to an organization. Only a signed order stops or starts it; everything else that
// can happen on the way is "unsure" and changes nothing (decisions 6).

import { AppError, messageOf } from "../../errors.ts";
import { followOrganization, type FollowEdge, type Turn } from "./follow.ts";
import type { Organization } from "../files/organizations.ts";

export type AuthReport = {
  org_slug: string;
  result: "ok" | "revoked" | "resumed" | "unsure";
  action: "none" | "stopped" | "started";
  reason?: string;
};

/** `status` as decisions 2 and 6 say: 7 on the transition to revoked, 6 where nothing is sure, 1 for a bad configuration. */
export type AuthOutcome = { report: AuthReport; status: number };

/** systemd starts a run each minute, which waits for 50 s: packets to lighthouses go on until the next one. */
const restMs = 9000;

/** With waitS the check-in is held for news, which is applied, until that time is over. */
export async function checkAuth(
  organization: Organization,
  edge: FollowEdge,
  waitS: number,
): Promise<AuthOutcome> {
  const { slug } = organization;
  const end = edge.system.now() + waitS * 1000;
  let met: AuthOutcome | undefined;
  await followOrganization(organization, edge, {
    // The clock may be set back while we wait; the wait ends all the same.
    signal: AbortSignal.timeout((waitS + 60) * 1000),
    leftS: () => Math.max(0, (end - edge.system.now()) / 1000),
    restMs: waitS > 0 ? restMs : 0,
    onTurn(turn) {
      // What was known before the line broke still holds.
      if ("error" in turn) met ??= unsure(slug, turn.error);
      else met = conclude(slug, turn, met);
    },
  });
  return met ?? unsure(slug, new AppError("control_plane_unreachable", "There was no answer in time"));
}

export function unsure(slug: string, error: unknown): AuthOutcome {
  const isLocal = error instanceof AppError && localFailures.includes(error.code);
  return {
    report: { org_slug: slug, result: "unsure", action: "none", reason: messageOf(error) },
    status: isLocal ? error.exitStatus : 6,
  };
}

/** This machine's own affairs. A refusal by the server has the same exit statuses, but says nothing for sure. */
const localFailures: readonly string[] = [
  "bad_configuration",
  "os_permission",
  "credentials_missing",
  "not_registered",
  "disk_full",
];

function conclude(slug: string, turn: Turn, before: AuthOutcome | undefined): AuthOutcome {
  const earlier = before?.report.action ?? "none";
  const action = turn.action === "none" && turn.result !== "revoked" ? earlier : turn.action;
  const result = turn.result === "ok" && action === "started" ? "resumed" : turn.result;
  const stopped = turn.result === "revoked" && (action === "stopped" || earlier === "stopped");
  const reason =
    turn.reason ??
    turn.sync?.reason ??
    (turn.syncError === undefined ? undefined : messageOf(turn.syncError));
  return {
    report: {
      org_slug: slug,
      result,
      action: stopped ? "stopped" : action,
      ...(reason === undefined ? {} : { reason }),
    },
    status: stopped ? 7 : syncStatus(turn),
  };
}

/** A line that breaks between the check-in and the download is an outage, not a failure of this machine. */
function syncStatus({ sync, syncError }: Turn): number {
  if (syncError === undefined) return sync?.result === "returned" ? 1 : 0;
  return syncError instanceof AppError && syncError.exitStatus === 6 ? 6 : 1;
}
