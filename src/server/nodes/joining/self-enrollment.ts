// Who may add machines of their own by confirming them in a browser: a setting of the organization. Asked again at each step
// until the node is complete, because a user can be demoted or removed in between.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Reader } from "../../store/database.ts";
import { computed, queryAll, text } from "../../store/table.ts";

/** Memberships that let the user $1 add machines. */
const permitted = `FROM memberships m JOIN organizations o ON o.id = m.org_id AND o.deleted_at IS NULL
  JOIN users u ON u.id = m.user_id AND u.is_active = 1
  WHERE m.user_id = $1
  AND (o.self_enrollment = 'members' OR (o.self_enrollment = 'admins' AND m.role IN ('owner', 'admin')))`;
const organizationPick = computed({ slug: text(), name: text() });

/** The organizations to which the user may add machines. */
export function organizationsFor(reader: Reader, userId: number) {
  const sql = `SELECT o.slug, o.name ${permitted} ORDER BY o.slug`;
  return queryAll(reader, organizationPick, sql, [userId]);
}

async function mayEnroll(reader: Reader, orgId: number, userId: number): Promise<boolean> {
  return (await reader.get(`SELECT m.id ${permitted} AND o.id = $2`, [userId, orgId])) !== undefined;
}

/** For the user, who asks in the browser. Throws permission_denied. */
export async function requireMayEnroll(
  reader: Reader,
  org: { id: number; slug: string },
  userId: number,
): Promise<void> {
  if (await mayEnroll(reader, org.id, userId)) return;
  throw new AppError("permission_denied", `${org.slug} does not let you add machines in the browser.`, {
    hint:
      "An administrator can allow it: " +
      `\`${brand.executable} admin org update ${org.slug} --self-enrollment members\`.`,
  });
}

/** For a machine that the user confirmed. Throws token_not_valid. */
export async function requireEnrolling(reader: Reader, orgId: number, userId: number | null): Promise<void> {
  if (userId !== null && (await mayEnroll(reader, orgId, userId))) return;
  throw new AppError(
    "token_not_valid",
    "The user who confirmed this machine may not add machines to this organization any more.",
  );
}
