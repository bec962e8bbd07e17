// The organizations that a caller may see. Those that are closed to the caller have no more than their slug.

import type { ListQuery } from "../../api/values.ts";
import { roles } from "../../api/endpoint.ts";
import { fitPage, listReply, pageOf, searchPattern } from "../http/lists.ts";
import type { Call } from "../http/route.ts";
import { doStaffNeedFactor } from "./factors/staff-factor.ts";
import { hasProven } from "./factors/step-up.ts";
import { organizationColumns, organizationOf } from "../organizations/organizations.ts";
import { counted } from "../store/list-rows.ts";
import type { ServerOptions } from "../options.ts";
import { computed, queryOne, truth, wordOrNull } from "../store/table.ts";

/** `role`: null for callers who are not members: staff, the operator and service tokens. */
const membership = computed({ role: wordOrNull(roles), isClosed: truth(0) });

/**
 * Which organizations are closed to the caller until a second factor is proven, as `checkFactor` in users/access.ts decides. 1 for
 * SQL if so: `members`, those that require a factor of their members; `visitors`, those that the caller sees only as staff.
 */
async function closedTo(
  db: ServerOptions["db"],
  { caller }: Pick<Call, "caller">,
): Promise<{ members: number; visitors: number }> {
  if (caller.kind !== "person" || (await hasProven(db, caller))) return { members: 0, visitors: 0 };
  return { members: 1, visitors: (await doStaffNeedFactor(db)) ? 1 : 0 };
}

/** One page, sorted by id. Staff and the operator see all organizations. */
export async function listOrganizations(
  { db, publicUrl }: Pick<ServerOptions, "db" | "publicUrl">,
  call: Call,
  input: ListQuery,
) {
  const { caller } = call;
  const userId = caller.kind === "person" ? caller.userId : 0;
  const serviceOrg = caller.kind === "service" ? caller.orgId : 0;
  const seesAll = caller.kind === "operator" || (caller.kind === "person" && caller.isStaff) ? 1 : 0;
  const closed = await closedTo(db, call);
  // $1: the user. $2: 1 if the caller sees all. $3: the organization of a service token. $4: the search. $5, $6: what is closed.
  const isClosed = "($5 = 1 AND o.second_factor = 1) OR ($6 = 1 AND m.role IS NULL)";
  const visible = `FROM organizations o LEFT JOIN memberships m ON m.org_id = o.id AND m.user_id = $1
    WHERE o.deleted_at IS NULL AND ($2 = 1 OR m.role IS NOT NULL OR o.id = $3)
    AND (o.slug LIKE $4 ESCAPE '!' OR (lower(o.name) LIKE $4 ESCAPE '!' AND NOT (${isClosed})))`;
  const params = [userId, seesAll, serviceOrg, searchPattern(input), closed.members, closed.visitors];
  const counting = `SELECT count(*) AS total, coalesce(max(octet_length(o.config_overrides)), 0) AS widest ${visible}`;
  const { total, widest } = (await queryOne(db, counted, counting, params)) ?? { total: 0, widest: 0 };
  // Overrides may be long: a page gets so few organizations that it stays below 1 MiB.
  const query = fitPage(input, widest);
  const { limit, offset } = pageOf(query);
  const rows = await db.all(
    `SELECT ${organizationColumns}, m.role AS role, CASE WHEN ${isClosed} THEN 1 ELSE 0 END AS is_closed
     ${visible} ORDER BY o.id LIMIT $7 OFFSET $8`,
    [...params, limit, offset],
  );
  const items = rows.map((row) => {
    const { role, isClosed: isClosedToCaller } = membership.parse(row);
    const shown = organizationOf(row, caller.kind === "service" ? caller.role : role);
    return isClosedToCaller ? { id: shown.id, slug: shown.slug } : shown;
  });
  return listReply(call, publicUrl, { items, total, query });
}
