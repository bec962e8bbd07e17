// The sessions of a user, of browsers and of command lines, as one list. The user ends them; administrators end those of
// members, staff those of all users. Browsers are ended by removing the row, command lines by their family of tokens.

import type { Session } from "../../../api/sessions.ts";
import { AppError } from "../../../base/errors.ts";
import { formatTime } from "../../../base/quantities.ts";
import { record, type Actor } from "../../audit/record.ts";
import { pageOf, searchPattern, type Page } from "../../http/lists.ts";
import type { ListQuery } from "../../../api/values.ts";
import type { OrganizationAccess, SignIn, Org } from "../../http/route.ts";
import type { Store } from "../../options.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { computed, integer, queryAll, queryNumber, text } from "../../store/table.ts";
import { browserSessions, type SessionRow } from "../../store/tables/sessions.ts";
import { idleMs } from "../../../api/sessions.ts";
import { isLive } from "./browser-sessions.ts";
import { endFamily } from "./families.ts";
import { requireRole, requireStaff } from "../../require-role.ts";
import { findMembership, memberEvent } from "../members.ts";
import { userById, userEvent } from "../users.ts";
import { endSessions } from "./sessions.ts";

/**
 * The sessions of a user that have not ended. `current`: the sign-in of the request, if it is the user's. `org`: of the machines on
 * which sessions are, only nodes of this organization are shown.
 */
export async function listSessions(
  { db, system }: Store,
  { userId, current, org }: { userId: number; current?: SignIn | undefined; org?: { id: number } },
  query: ListQuery,
): Promise<Page<Session>> {
  const { limit, offset } = pageOf(query);
  // The table has the sessions of command lines, too: those with a `family`. $2, in `isLive`: now, ms.
  const where = `FROM browser_sessions s JOIN users u ON u.id = s.user_id
    WHERE s.user_id = $1 AND ${isLive} AND lower(s.device) LIKE $3 ESCAPE '!'`;
  const params = [userId, system.now(), searchPattern(query)];
  const sql = `SELECT ${browserSessions.select("s")} ${where} ORDER BY s.id LIMIT $4 OFFSET $5`;
  const rows = await queryAll(db, browserSessions, sql, [...params, limit, offset]);
  const total = await queryNumber(db, `SELECT count(*) AS n ${where}`, params);
  const nodes = await nodesOf(db, userId, org);
  return { items: rows.map((row) => show(row, current, nodes)), total, query };
}

type ShownNode = Session["nodes"][number] & { family: string };

function show(row: SessionRow, current: SignIn | undefined, nodes: readonly ShownNode[]): Session {
  const { id, family, device, address, createdAt, lastUsedAt, endsAt } = row;
  const isCurrent =
    current !== undefined && ("session" in current ? current.session === id : current.family === family);
  return {
    id,
    kind: family === null ? "browser" : "command_line",
    device,
    address,
    created_at: formatTime(createdAt),
    last_used_at: formatTime(lastUsedAt),
    expires_at: formatTime(family === null ? Math.min(endsAt, lastUsedAt + idleMs) : endsAt),
    is_current: isCurrent,
    nodes: nodes
      .filter((each) => each.family === family)
      .map(({ org_slug, id: nodeId, name }) => ({ org_slug, id: nodeId, name })),
  };
}

const provenNode = computed({ family: text(), orgSlug: text(), id: integer(), name: text() });

async function nodesOf(reader: Reader, userId: number, org?: { id: number }): Promise<ShownNode[]> {
  const sql = `SELECT p.family, o.slug AS org_slug, n.id, n.name FROM browser_sessions s
    JOIN session_nodes p ON p.family = s.family JOIN nodes n ON n.id = p.node_id
    JOIN organizations o ON o.id = n.org_id
    WHERE s.user_id = $1 AND n.org_id = coalesce($2, n.org_id) ORDER BY o.slug, n.id`;
  const rows = await queryAll(reader, provenNode, sql, [userId, org?.id ?? null]);
  return rows.map(({ orgSlug, ...rest }) => ({ org_slug: orgSlug, ...rest }));
}

/** Throws not_found. */
export async function endSession({ db, system }: Store, userId: number, id: number): Promise<void> {
  await db.writeFor({ user: userId }, (tx) => endOne(tx, { userId, id, now: system.now() }));
}

/** Throws not_found. */
async function endOne(tx: Transaction, { userId, id, now }: { userId: number; id: number; now: number }) {
  const session = await browserSessions.find(tx, { id, userId });
  if (session === undefined) throw new AppError("not_found", "There is no such session.");
  if (session.family !== null) await endFamily(tx, session.family, now);
  else await browserSessions.delete(tx, { id });
}

/** `id`: of one session; undefined: all of the user. Throws not_found. */
async function endOneOrAll(
  tx: Transaction,
  { userId, id, now }: { userId: number; id: number | undefined; now: number },
): Promise<void> {
  if (id === undefined) await endSessions(tx, userId, now);
  else await endOne(tx, { userId, id, now });
}

/** The user of a member. Throws not_found also for an invitation, which has no sessions. */
export async function userOfMember(
  reader: Reader,
  org: Org,
  memberId: number,
): Promise<{ userId: number; email: string; role: OrganizationAccess["role"] }> {
  const { userId, email, role } = await findMembership(reader, org, memberId);
  if (userId === null)
    throw new AppError("not_found", `${email} has not accepted the invitation, so has no sessions here.`);
  return { userId, email, role };
}

/**
 * An administrator ends one session of a member, or all of them: those of browsers and command lines everywhere, because a
 * session is not of one organization. Throws not_found, or permission_denied for those of an owner by another administrator.
 */
export async function endMemberSessions(
  { db, system }: Store,
  org: Org,
  memberId: number,
  by: { role: OrganizationAccess["role"]; actor: Actor },
  id?: number,
): Promise<void> {
  await db.write(async (tx) => {
    await requireRole(tx, org.id, by.actor, by.role === "owner" ? "owner" : "admin");
    const { userId, email, role } = await userOfMember(tx, org, memberId);
    if (role === "owner" && by.role !== "owner")
      throw new AppError("permission_denied", "Only an owner can end the sessions of an owner.");
    const now = system.now();
    await endOneOrAll(tx, { userId, id, now });
    const event = memberEvent(org.id, now, by.actor, email);
    await record(tx, { ...event, type: "member.signed_out", after: { session: id ?? "all" } });
  });
}

/** Staff end one session of a user, or all of them. Throws not_found. */
export async function endUserSessions(
  { db, system }: Store,
  userId: number,
  actor: Actor,
  id?: number,
): Promise<void> {
  await db.write(async (tx) => {
    await requireStaff(tx, actor);
    const { email } = await userById(tx, userId);
    await endOneOrAll(tx, { userId, id, now: system.now() });
    const event = userEvent(system, actor, email);
    await record(tx, { ...event, type: "user.signed_out", after: { session: id ?? "all" } });
  });
}
