// The nodes that a user has to confirm again (reauthentication.ts), and until when.

import { formatTime } from "../../../base/quantities.ts";
import type { Reader } from "../../store/database.ts";
import {
  computed,
  integer,
  integerOrNull,
  later,
  places,
  queryAll,
  queryOne,
  text,
} from "../../store/table.ts";

const dayMs = 86_400_000;
/** Least time between the notice to the user and the end of the node. */
const noticeMs = 7 * dayMs;

const due = computed({
  id: integer(),
  orgId: integer(),
  slug: text(),
  name: text(),
  ownerId: integer(),
  email: text(),
  until: integer(),
  toldAt: integerOrNull(),
});
export type Due = ReturnType<typeof due.parse>;

/** SQL: when the present period of a node began, ms: by the last of the user's proof, the setting and the registration. */
const since = later(
  later("coalesce(p.proven_at, 0)", "o.reauthenticate_from"),
  "coalesce(n.registered_at, 0)",
);
/** The present periods. A notice from before one does not count: another setting starts a new period, too. */
const periods = `SELECT n.id, n.org_id, o.slug, n.name, n.owner_id, u.email,
    ${since} + o.reauthenticate_days * ${dayMs} AS ends,
    CASE WHEN p.told_at > ${since} THEN p.told_at END AS told_at
  FROM organizations o JOIN nodes n ON n.org_id = o.id AND n.owner_id IS NOT NULL AND n.state = 'active'
  JOIN users u ON u.id = n.owner_id LEFT JOIN owner_proofs p ON p.node_id = n.id
  WHERE o.reauthenticate_days IS NOT NULL AND o.deleted_at IS NULL`;
/** $1: now. Nodes whose user has to be notified, or was. `until`: never less than 7 days after that. */
const dueNodes = `SELECT d.id, d.org_id, d.slug, d.name, d.owner_id, d.email, d.told_at,
    ${later("d.ends", `coalesce(d.told_at, $1) + ${noticeMs}`)} AS until
  FROM (${periods}) d WHERE d.ends - ${noticeMs} <= $1`;
const anyOrganization = "SELECT id FROM organizations WHERE reauthenticate_days IS NOT NULL LIMIT 1";

export async function findAllDue(reader: Reader, now: number): Promise<Due[]> {
  if ((await reader.get(anyOrganization)) === undefined) return [];
  return queryAll(reader, due, `${dueNodes} ORDER BY d.org_id, d.id LIMIT 1000`, [now]);
}

/** The first 1000 of an organization, or of one user in it, first to last. */
export async function findDueIn(
  reader: Reader,
  { orgId, ownerId }: { orgId: number; ownerId: number | undefined },
  now: number,
): Promise<Due[]> {
  const sql = `${dueNodes} AND d.org_id = $2 AND d.owner_id = coalesce($3, d.owner_id) ORDER BY until, d.id LIMIT 1000`;
  return queryAll(reader, due, sql, [now, orgId, ownerId ?? null]);
}

/** The nodes of `found` that are still due: the user may have confirmed one meanwhile. */
export async function findStillDue(
  tx: Reader,
  found: readonly Pick<Due, "id">[],
  now: number,
): Promise<Due[]> {
  const ids = found.map(({ id }) => id);
  return queryAll(tx, due, `${dueNodes} AND d.id IN (${places(ids, 2)}) ORDER BY d.id`, [now, ...ids]);
}

/** Until when the user of the node has to confirm it, once the user was notified. */
export async function confirmBy(reader: Reader, nodeId: number): Promise<string | undefined> {
  const sql = `SELECT ${later("d.ends", `d.told_at + ${noticeMs}`)} AS until FROM (${periods}) d
    WHERE d.id = $1 AND d.told_at IS NOT NULL`;
  const found = await queryOne(reader, computed({ until: integer() }), sql, [nodeId]);
  return found === undefined ? undefined : formatTime(found.until);
}

/** The page with the button. */
export function confirmationPage(publicUrl: string, slug: string): string {
  return `${publicUrl}/console/${encodeURIComponent(slug)}/`;
}
