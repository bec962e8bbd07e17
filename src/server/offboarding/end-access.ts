// Ends what a user, or the holder of a token, can still use (find-access.ts), in the transaction that removes, disables or demotes the
// user, or revokes the token. The answer lists what keeps working.

import type { AccessItem, AccessReport } from "../../api/left-access.ts";
import { AppError } from "../../base/errors.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import type { ServerOptions } from "../options.ts";
import { record, type Actor } from "../audit/record.ts";
import { requireRole } from "../require-role.ts";
import { deleteWebhookInside } from "../webhooks/webhooks.ts";
import { revokeInside } from "../nodes/lifecycle/revoke.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { memberships } from "../store/tables/organizations.ts";
import { revokeTokenInside, type TokenKind } from "../users/revoke-token.ts";
import { findAccess, accessKinds, type AccessOf, type Found } from "./find-access.ts";

/** `left`: what keeps working. `revoked`: what ended. */
export type Access = { left: AccessItem[]; revoked: AccessItem[] };

const maxListed = 1000;

/** The access that a user, or the holder of a token, still has. */
export async function accessOf(reader: Reader, source: AccessOf, now: number): Promise<Access> {
  return { left: (await findAccess(reader, source, now)).map(itemOf), revoked: [] };
}

const itemOf = ({ orgSlug, kind, id, name }: Found): AccessItem => ({ org_slug: orgSlug, kind, id, name });

export type Ending = {
  actor: Actor;
  now: number;
  /** Also ends incomplete registrations with these tokens. */
  revokeTokens?: boolean;
  revokeWebhooks?: boolean;
  /** Nodes of the organization that came by a user's tokens end only if these tokens end as well: they are often servers. */
  revokeNodes?: boolean;
  /** The user leaves: the user's nodes end where the organization wants that (`ifLeft`), also without `revokeNodes`. */
  isLeaving?: boolean;
  /** The reason that a revoked node stores. */
  reason: string;
};

/**
 * Ends access in the caller's transaction. Invitations always end, because the inviter may hold their links. So do incomplete
 * registrations whose credential ends. The caller runs `runDueUpkeep` after the commit if nodes were revoked.
 */
export async function endAccess(
  tx: Transaction,
  source: AccessOf,
  ending: Ending,
  org?: { id: number },
): Promise<Access> {
  const {
    revokeTokens = false,
    revokeWebhooks = false,
    revokeNodes = false,
    isLeaving = false,
    now,
  } = ending;
  // `own`, `byToken`, `ifLeft`: see find-access.ts. A registration ends with its credential: the user's own sign-in, the user's token
  // if tokens are revoked, or the token that is the source.
  const ends = ({ kind, own, byToken, ifLeft }: Found) => {
    const endsNodes = byToken ? revokeNodes && revokeTokens : revokeNodes || (isLeaving && ifLeft);
    if (kind === "node") return endsNodes;
    if (kind === "registration") return endsNodes || revokeTokens || own || source.kind !== "person";
    if (kind === "webhook") return revokeWebhooks;
    return kind === "invitation" || revokeTokens;
  };
  const found = await findAccess(tx, source, now, org);
  const ended = found.filter(ends);
  for (const [orgId, items] of Map.groupBy(ended, (each) => each.orgId))
    await endItems(tx, orgId, items, ending);
  return { left: found.filter((each) => !ends(each)).map(itemOf), revoked: ended.map(itemOf) };
}

async function endItems(
  tx: Transaction,
  orgId: number,
  items: readonly Found[],
  { actor, now, reason }: Ending,
): Promise<void> {
  const nodes: number[] = [];
  for (const { kind, id } of items) {
    if (kind === "node" || kind === "registration") nodes.push(id);
    else if (kind === "webhook") await deleteWebhookInside(tx, { id: orgId }, id, { actor, now });
    else if (kind === "invitation") await withdrawInvitation(tx, orgId, id, { actor, now });
    else await revokeTokenInside(tx, { orgId, kind, id }, actor, now);
  }
  await revokeInside(tx, orgId, nodes, { actor, reason, now });
}

async function withdrawInvitation(
  tx: Transaction,
  orgId: number,
  id: number,
  { actor, now }: { actor: Actor; now: number },
): Promise<void> {
  const deleted = await queryOne(
    tx,
    memberships.pick("email", "role"),
    "DELETE FROM memberships WHERE id = $1 AND user_id IS NULL RETURNING email, role",
    [id],
  );
  if (deleted === undefined) return;
  const { email, role } = deleted;
  const event = { orgId, at: now, actor, subject: `member/${email}`, before: { role } };
  await record(tx, { ...event, type: "member.deleted" });
}

/** An owner who becomes administrator could hold a link to an owner invitation, and become owner again with it. */
export async function withdrawOwnerInvitations(
  tx: Transaction,
  orgId: number,
  userId: number,
  by: { actor: Actor; now: number },
): Promise<void> {
  const invitedBy = `person/${userId}`;
  const open = await memberships.all(tx, { orgId, userId: null, role: "owner", invitedBy });
  for (const { id } of open) await withdrawInvitation(tx, orgId, id, by);
}

const isToken = ({ kind }: AccessItem) => kind === "registration_token" || kind === "service_token";

/** Tokens alone, under the JSON keys of earlier versions, which events keep. */
export function tokensOf({ left, revoked }: Access) {
  return { tokens_left: left.filter(isToken), tokens_revoked: revoked.filter(isToken) };
}

export function reportOf({ left, revoked }: Access): AccessReport {
  return {
    access_left: left.slice(0, maxListed),
    access_left_total: left.length,
    access_revoked: revoked.slice(0, maxListed),
    access_revoked_total: revoked.length,
  };
}

/** For the event: tokens by name, everything else by number, because each revoked node has an event of its own. */
export function accessForEvent(access: Access): { after?: Record<string, unknown> } {
  const tokens = tokensOf(access);
  const count = (items: readonly AccessItem[]) =>
    Object.fromEntries(
      accessKinds.flatMap((kind) => {
        const n = items.filter((each) => !isToken(each) && each.kind === kind).length;
        return n === 0 ? [] : [[kind, n]];
      }),
    );
  const [left, revoked] = [count(access.left), count(access.revoked)];
  const after = {
    ...(access.left.some(isToken) || access.revoked.some(isToken) ? tokens : {}),
    ...(Object.keys(left).length === 0 ? {} : { access_left: left }),
    ...(Object.keys(revoked).length === 0 ? {} : { access_revoked: revoked }),
  };
  return Object.keys(after).length === 0 ? {} : { after };
}

/** Revokes a token, and in the same transaction what was created with it. Throws not_found, permission_denied. */
export async function revokeToken(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: { id: number },
  kind: TokenKind,
  id: number,
  actor: Actor,
  ends: Pick<Ending, "revokeNodes" | "revokeWebhooks"> = {},
): Promise<Access> {
  const now = system.now();
  const access = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    const revoked = await revokeTokenInside(tx, { orgId: org.id, kind, id }, actor, now);
    if (!revoked) throw new AppError("not_found", "There is no such token.");
    const source: AccessOf = { kind: kind === "service_token" ? "service" : kind, id };
    const reason = `its ${kind.replace("_", " ")} was revoked`;
    return endAccess(tx, source, { ...ends, actor, now, reason }, org);
  });
  if (access.revoked.length > 0) await runDueUpkeep({ db, system }, org.id);
  return access;
}
