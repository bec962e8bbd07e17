// Finds everything that a user, or the holder of a token, can still use: one query. end-access.ts ends it.

import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, text, textOrNull, truth, word } from "../store/table.ts";
import { isOpenToken } from "../store/tables/joining.ts";
import type { TokenKind } from "../users/revoke-token.ts";

export const accessKinds = [
  "invitation",
  "node",
  "registration",
  "registration_token",
  "service_token",
  "webhook",
] as const;

/** Whose access: that of a user, or of what was made with a token. */
export type AccessOf = { kind: "person" | "service" | "registration_token"; id: number };
/**
 * `own`: a registration with the user's own sign-in. `byToken`: a node of the organization that came by a token of the user.
 * `ifLeft`: the organization revokes nodes of users who leave.
 */
const foundRow = computed({
  orgSlug: text(),
  kind: word(accessKinds),
  id: integer(),
  name: textOrNull(),
  orgId: integer(),
  own: truth(0),
  byToken: truth(0),
  ifLeft: truth(0),
});
export type Found = ReturnType<typeof foundRow.parse>;

/**
 * The source and, of a user, the tokens that the user created. $1 and $2: kind and id of the source. $3: now, in ms. $4: the
 * organization, or null for all.
 */
const principals = `principals AS (
  SELECT CAST($1 AS TEXT) AS kind, CAST($2 AS BIGINT) AS id
  UNION ALL SELECT 'service', id FROM service_tokens WHERE $1 = 'person' AND created_by = $2
  UNION ALL SELECT 'registration_token', id FROM registration_tokens WHERE $1 = 'person' AND created_by = $2)`;
const principalNames = "SELECT kind || '/' || id FROM principals";
/**
 * For rows of older versions, without a recorded creator: the subjects of events of this type by the principals. The column `actor`
 * is JSON text that begins with kind and id.
 */
const subjects = (type: string) => `SELECT e.subject FROM events e JOIN principals p
  ON e.actor LIKE '{"kind":"' || p.kind || '","id":' || p.id || ',%'
  WHERE e.type = '${type}' AND e.org_id = coalesce($4, e.org_id)`;
/** Tokens that the user created and that may still be used. */
const liveTokens = (kind: TokenKind, isLive: string) =>
  `SELECT '${kind}' AS kind, t.id, t.name, t.org_id, 0 AS own, 0 AS by_token FROM ${kind}s t
   WHERE $1 = 'person' AND t.created_by = $2 AND ${isLive}`;
/**
 * SQL condition: whether the node counts for its registrant. Of a user, only unfinished registrations and nodes of earlier versions,
 * which recorded no owner: all other nodes count for their owner.
 */
const countsForRegistrant = "($1 <> 'person' OR n.owner_known = 0 OR n.state = 'pending')";
/**
 * SQL condition: whether the node, one of the organization, counts for the user who created its token. That user may have kept the
 * token, or know what was made with it.
 */
const countsForToken = `($1 = 'person' AND n.owner_known = 1 AND n.owner_id IS NULL AND n.state <> 'pending')`;
/** SQL condition: whether the node came by a token of the principals. */
const cameByToken = `n.registered_with IN (SELECT id FROM principals WHERE kind = 'registration_token') OR n.id IN
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
/** SQL condition: whether the principals registered the node. For rows without a recorded registrant, the event of the registration tells it. */
const isRegistered = `n.id IN (SELECT r.node_id FROM registrants r WHERE r.principal IN (${principalNames}))
  OR n.registered_with IN (SELECT id FROM principals WHERE kind = 'registration_token')
  OR (NOT EXISTS (SELECT 1 FROM registrants r WHERE r.node_id = n.id)
    AND 'node/' || n.id IN (${subjects("node.registered")}))`;
/**
 * A pending node is a registration that is not complete. Ephemeral nodes that ended may come back. A node of an
 * imported network has no `registered_at`, and is left out until its machine registers.
 */
const liveNodes = `SELECT CASE WHEN n.state = 'pending' THEN 'registration' ELSE 'node' END, n.id, n.name, n.org_id,
    CASE WHEN EXISTS (SELECT 1 FROM registrants r WHERE r.node_id = n.id AND r.principal = 'person/' || $2)
      AND $1 = 'person' THEN 1 ELSE 0 END, CASE WHEN ${countsForToken} THEN 1 ELSE 0 END
  FROM nodes n WHERE (n.state <> 'revoked' OR n.ended_at IS NOT NULL)
    AND (n.registered_at IS NOT NULL OR n.state = 'pending')
    AND (($1 = 'person' AND n.owner_id = $2) OR (${countsForToken} AND (${cameByToken}))
      OR (${countsForRegistrant} AND (${isRegistered})))`;
const allAccess = `WITH ${principals}
  SELECT a.kind, a.id, a.name, a.org_id, a.own, a.by_token, o.slug AS org_slug, o.revoke_leaver_nodes AS if_left FROM (
    ${liveTokens("registration_token", isOpenToken("$3", "t"))}
    UNION ALL ${liveTokens("service_token", "t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $3)")}
    UNION ALL ${openInvitations} UNION ALL ${liveWebhooks} UNION ALL ${liveNodes}
  ) a JOIN organizations o ON o.id = a.org_id AND o.deleted_at IS NULL
  WHERE a.org_id = coalesce($4, a.org_id) ORDER BY a.org_id, a.kind = 'node', a.kind, a.id`;

/** All that the source can still use, in one organization or in all. `now`: ms. */
export async function findAccess(
  reader: Reader,
  { kind, id }: AccessOf,
  now: number,
  org?: { id: number },
): Promise<Found[]> {
  return queryAll(reader, foundRow, allAccess, [kind, id, now, org?.id ?? null]);
}
