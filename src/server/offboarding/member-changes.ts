// Another role for a member, or none: what the member could still use ends with it, in the same transaction.

import { record, type Actor } from "../audit/record.ts";
import type { Role } from "../http/route.ts";
import { settle } from "../nodes/upkeep.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole } from "../people/late-rights.ts";
import {
  anotherOwner,
  findMembership,
  happened,
  lastOwner,
  mayTouch,
  memberColumns,
  memberOf,
  requireOwner,
  roleNow,
  type Member,
} from "../people/members.ts";
import type { OwnerConfirmation } from "../people/ownership.ts";
import { accessTold, endAccess, withdrawOwnerInvitations, type Access, type Ending } from "./left-access.ts";

type Org = { id: number; slug: string };

const none: Access = { left: [], revoked: [] };

/**
 * Only owners appoint owners, and change or remove them; the last one stays. `access`: of a person who may create no
 * tokens any more; the invitations that they sent end.
 */
export async function changeRole(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org,
  memberId: number,
  role: Role,
  by: { role: Role; actor: Actor; confirmation?: OwnerConfirmation },
): Promise<{ member: Member; access: Access }> {
  return db.write(async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    const membership = await findMembership(tx, org, memberId);
    const { member: before, userId } = membership;
    mayTouch(by.role, before.role, role);
    if (role === "owner" && before.role !== "owner") await requireOwner(tx, membership, by);
    const row = await tx.get(
      `UPDATE memberships SET role = $3 WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR $3 = 'owner' OR user_id IS NULL OR ${anotherOwner}) RETURNING ${memberColumns}`,
      [memberId, org.id, role],
    );
    if (row === undefined) throw lastOwner(before.email);
    const now = system.now();
    const isDemoted = role === "member" && before.role !== "member";
    const ending = { actor: by.actor, now, reason: `${before.email} is an administrator no more` };
    const access =
      isDemoted && userId !== undefined
        ? await endAccess(tx, { kind: "person", id: userId }, ending, org)
        : none;
    if (before.role === "owner" && role === "admin" && userId !== undefined) {
      await withdrawOwnerInvitations(tx, org.id, userId, { actor: by.actor, now });
    }
    await record(tx, {
      ...happened(org.id, now, by.actor, before.email),
      type: "member.updated",
      before: { role: before.role },
      after: { role, ...accessTold(access).after },
    });
    await tx.notify("auth", `member ${before.email}`);
    return { member: memberOf(row), access };
  });
}

export async function removeMember(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org,
  memberId: number,
  by: { role: Role; actor: Actor },
  ends: Pick<Ending, "revokeTokens" | "revokeNodes"> = {},
): Promise<{ member: Member; access: Access }> {
  const gone = await db.write(async (tx) => {
    await requireRole(tx, org.id, by.actor, roleNow(by.role));
    const { member: before, userId } = await findMembership(tx, org, memberId);
    mayTouch(by.role, before.role, before.role);
    const removed = await tx.run(
      `DELETE FROM memberships WHERE id = $1 AND org_id = $2
       AND (role <> 'owner' OR user_id IS NULL OR ${anotherOwner})`,
      [memberId, org.id],
    );
    if (removed === 0) throw lastOwner(before.email);
    const event = happened(org.id, system.now(), by.actor, before.email);
    const revokeWebhooks = ends.revokeTokens === true;
    const reason = `${before.email} was removed`;
    const ending = { ...ends, revokeWebhooks, actor: by.actor, now: event.at, reason };
    const access =
      userId === undefined ? none : await endAccess(tx, { kind: "person", id: userId }, ending, org);
    await record(tx, {
      ...event,
      type: "member.deleted",
      before: { role: before.role },
      ...accessTold(access),
    });
    await tx.notify("auth", `member ${before.email}`);
    return { member: before, access };
  });
  if (gone.access.revoked.length > 0) await settle({ db, system }, org.id);
  return gone;
}
