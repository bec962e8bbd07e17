// Whether this machine still belongs to an organization. Only a signed order stops or starts it; everything else that
// can happen on the way is "unsure" and changes nothing (decisions 6).

import { messageOf } from "../errors.ts";
import { followOrganization, type FollowEdge } from "./follow.ts";
import type { Organization } from "./organizations.ts";

export type AuthResult = {
  org_slug: string;
  result: "ok" | "revoked" | "resumed" | "unsure";
  action: "none" | "stopped" | "started";
  reason?: string;
};

/** With waitS the check-in is held for news, which is applied, until that time is over. */
export async function checkAuth(
  organization: Organization,
  edge: FollowEdge,
  waitS: number,
): Promise<AuthResult> {
  const { slug } = organization;
  const end = edge.system.now() + waitS * 1000;
  let met: AuthResult = { org_slug: slug, result: "unsure", action: "none" };
  await followOrganization(organization, edge, {
    signal: new AbortController().signal,
    leftS: () => Math.max(0, (end - edge.system.now()) / 1000),
    onTurn(turn) {
      if ("error" in turn) {
        // What was known before the line broke still holds.
        if (met.result === "unsure") met = { ...met, reason: messageOf(turn.error) };
        return;
      }
      const action = turn.action === "none" ? met.action : turn.action;
      met = {
        org_slug: slug,
        result: turn.result,
        action,
        ...(turn.sync?.reason === undefined ? {} : { reason: turn.sync.reason }),
      };
    },
  });
  return met;
}
