// Everything that a user, or the holder of a token, can still use. One query finds it. It ends in the transaction that
// removes, disables or demotes the user, or revokes the token. The answer lists what keeps working.

import type { AccessItem, AccessReport } from "../../api/left-access.ts";
import { AppError } from "../../base/errors.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import type { ServerOptions } from "../options.ts";
import { record, type Actor } from "../audit/record.ts";
import { requireRole } from "../require-role.ts";
import { deleteWebhookInside } from "../webhooks/webhooks.ts";
import { revokeInside } from "../nodes/lifecycle/revoke.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { computed, integer, queryAll, queryOne, text, textOrNull, truth, word } from "../store/table.ts";
import { memberships } from "../store/tables/organizations.ts";
import { revokeTokenInside, type TokenKind } from "../users/revoke-token.ts";

const kinds = [
  "invitation",
  "node",
  "registration",
  "registration_token",
  "service_token",
  "webhook",
] as const;

/** Whose access: that of a user, or of what was made with a token. */
export type AccessOf = { kind: "person" | "service" | "registration_token"; id: number };
/** `left`: what keeps working. `revoked`: what ended. */
export type Access = { left: AccessItem[]; revoked: AccessItem[] };

/**
 * `own`: a registration with the user's own sign-in. `byToken`: a node of the organization that came by a token of the user.
 * `ifLeft`: the organization revokes nodes of users who leave.
 */
const foundRow = computed({
  orgSlug: text(),
  kind: word(kinds),
  id: integer(),
  name: textOrNull(),
  orgId: integer(),
  own: truth(0),
  byToken: truth(0),
  ifLeft: truth(0),
});
type Found = ReturnType<typeof foundRow.parse>;

const maxListed = 1000;
/**
 * The source and, of a user, the tokens that the user created. $1 and $2: kind and id of the source. $3: now, in ms. $4: the
 * organization, or null for all.
 */
const principals = `principals AS (
  SELECT CAST($1 AS TEXT) AS kind, CAST($2 AS BIGINT) AS id
  UNION ALL SELECT 'service', id FROM service_tokens WHERE $1 = 'person' AND created_by = $2
  UNION ALL SELECT 'registration_token', id FROM registration_tokens WHERE $1 = 'person' AND created_by = $2)`;
const principalNames = "SELECT kind || '/' || id FROM principals";
/** For rows of older versions, without a recorded creator: the subjects of events of this type by the principals. */
const subjects = (type: string) => `SELECT e.subject FROM events e JOIN principals p
  ON e.actor LIKE '{"kind":"' || p.kind || '","id":' || p.id || ',%'
  WHERE e.type = '${type}' AND e.org_id = coalesce($4, e.org_id)`;
/** Tokens that the user created and that may still be used. */
const liveTokens = (kind: TokenKind, isLive: string) =>
  `SELECT '${kind}' AS kind, t.id, t.name, t.org_id, 0 AS own, 0 AS by_token FROM ${kind}s t
   WHERE $1 = 'person' AND t.created_by = $2 AND t.revoked_at IS NULL AND ${isLive}`;
/**
 * Nodes of a user are those that the user owns. The registrant counts only for unfinished registrations, and for
 * nodes of earlier versions, which recorded no owner.
 */
const isByRegistrant = "($1 <> 'person' OR n.owner_known = 0 OR n.state = 'pending')";
/**
 * The creator may have kept the token, or know what was made with it. So its machines are listed with what the user
 * can still use.
 */
const isByToken = `($1 = 'person' AND n.owner_known = 1 AND n.owner_id IS NULL AND n.state <> 'pending')`;
/** SQL condition: the node came by a token of the principals. */
const ofTokens = `n.registered_with IN (SELECT id FROM principals WHERE kind = 'registration_token') OR n.id IN
  (SELECT r.node_id FROM registrants r WHERE r.principal IN (SELECT kind || '/' || id FROM principals WHERE kind <> 'person'))`;
// The parts of the query. Each gives the columns of `liveTokens`, in this order: kind, id, name, organization, `own`, `by_token`.

/** Sent by the principals, or to the user. */
const openInvitations = `SELECT 'invitation', m.id, m.email, m.org_id, 0, 0 FROM memberships m
  WHERE m.user_id IS NULL AND m.expires_at > $3 AND (m.invited_by IN (${principalNames})
    OR (m.invited_by IS NULL AND 'member/' || m.email IN (${subjects("member.invited")}))
    OR m.email = (SELECT email FROM users WHERE $1 = 'person' AND id = $2))`;
const liveWebhooks = `SELECT 'webhook', w.id, NULL, w.org_id, 0, 0 FROM webhooks w
  WHERE w.deleted_at IS NULL AND (w.created_by IN (${principalNames})
    OR (w.created_by IS NULL AND 'webhook/' || w.id IN (${subjects("webhook.created")})))`;
/** The principals registered the node. For rows without a recorded registrant, the event of the registration tells it. */
const isRegistered = `n.id IN (SELECT r.node_id FROM registrants r WHERE r.principal IN (${principalNames}))
  OR n.registered_with IN (SELECT id FROM principals WHERE kind = 'registration_token')
  OR (NOT EXISTS (SELECT 1 FROM registrants r WHERE r.node_id = n.id)
    AND 'node/' || n.id IN (${subjects("node.registered")}))`;
/** A pending node is a registration that is not complete. Ephemeral nodes that ended may come back. */
const liveNodes = `SELECT CASE WHEN n.state = 'pending' THEN 'registration' ELSE 'node' END, n.id, n.name, n.org_id,
    CASE WHEN EXISTS (SELECT 1 FROM registrants r WHERE r.node_id = n.id AND r.principal = 'person/' || $2)
      AND $1 = 'person' THEN 1 ELSE 0 END, CASE WHEN ${isByToken} THEN 1 ELSE 0 END
  FROM nodes n WHERE (n.state <> 'revoked' OR n.ended_at IS NOT NULL)
    AND (n.registered_at IS NOT NULL OR n.state = 'pending')
    AND (($1 = 'person' AND n.owner_id = $2) OR (${isByToken} AND (${ofTokens}))
      OR (${isByRegistrant} AND (${isRegistered})))`;
const allAccess = `WITH ${principals}
  SELECT a.kind, a.id, a.name, a.org_id, a.own, a.by_token, o.slug AS org_slug, o.revoke_leaver_nodes AS if_left FROM (
    ${liveTokens("registration_token", "t.used < t.uses AND t.expires_at > $3")}
    UNION ALL ${liveTokens("service_token", "(t.expires_at IS NULL OR t.expires_at > $3)")}
    UNION ALL ${openInvitations} UNION ALL ${liveWebhooks} UNION ALL ${liveNodes}
  ) a JOIN organizations o ON o.id = a.org_id AND o.deleted_at IS NULL
  WHERE a.org_id = coalesce($4, a.org_id) ORDER BY a.org_id, a.kind = 'node', a.kind, a.id`;

async function findAccess(
  reader: Pick<Reader, "all">,
  { kind, id }: AccessOf,
  now: number,
  org?: { id: number },
): Promise<Found[]> {
  return queryAll(reader, foundRow, allAccess, [kind, id, now, org?.id ?? null]);
}

/** The access that a user, or the holder of a token, still has. */
export async function accessOf(reader: Pick<Reader, "all">, source: AccessOf, now: number): Promise<Access> {
  return { left: (await findAccess(reader, source, now)).map(itemOf), revoked: [] };
}

const itemOf = ({ orgSlug, kind, id, name }: Found): AccessItem => ({ org_slug: orgSlug, kind, id, name });

export type Ending = {
  actor: Actor;
  now: number;
  /** Also ends incomplete registrations with these tokens. */
  revokeTokens?: boolean;
  revokeWebhooks?: boolean;
  revokeNodes?: boolean;
  /**
   * Nodes of the organization that came by a user's tokens end only together with these tokens: they are often servers.
   */
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

/** Tokens alone, under the JSON keys of earlier versions. */
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
      kinds.flatMap((kind) => {
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
