// Disables and enables users. Disabling ends the sessions and, on request, what the user could still use.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import type { ServerOptions } from "../options.ts";
import { requireStaff } from "../require-role.ts";
import { findUser, userEvent } from "../users/users.ts";
import { endSessions } from "../users/sessions/sessions.ts";
import { accessForEvent, endAccess, type Access, type Ending } from "./end-access.ts";

/** The last active staff user cannot be disabled. A user with `bound_org_id` is of an organization's provider, and never staff. */
export async function setActive(
  store: Pick<ServerOptions, "db" | "system">,
  email: string,
  active: boolean,
  actor: Actor,
  ends: Pick<Ending, "revokeTokens" | "revokeNodes"> = {},
): Promise<Access> {
  const { db, system } = store;
  const access = await db.write(async (tx) => {
    await requireStaff(tx, actor);
    const user = await findUser(tx, email);
    const changed = await tx.run(
      `UPDATE users SET is_active = $2 WHERE id = $1 AND ($2 = 1 OR is_staff = 0 OR EXISTS (
         SELECT 1 FROM users o WHERE o.is_staff = 1 AND o.is_active = 1 AND o.bound_org_id IS NULL
           AND o.id <> $1))`,
      [user.id, active ? 1 : 0],
    );
    if (changed === 0)
      throw new AppError("conflict", `${email} is the last staff user and cannot be disabled`, {
        hint: `Create another one first: \`${brand.executable} admin user create EMAIL --staff\`.`,
      });
    const event = userEvent(system, actor, user.email);
    if (active) {
      await tx.notify("auth", `user ${user.id}`);
      await record(tx, { ...event, type: "user.enabled" });
      return { left: [], revoked: [] };
    }
    await endSessions(tx, user.id, system.now());
    const revokeWebhooks = ends.revokeTokens === true;
    const reason = `${user.email} was disabled`;
    const ending = { ...ends, isLeaving: true, revokeWebhooks, actor, now: event.at, reason };
    const outcome = await endAccess(tx, { kind: "person", id: user.id }, ending);
    await record(tx, { ...event, type: "user.disabled", ...accessForEvent(outcome) });
    return outcome;
  });
  // Pending work may have waited for the confirmations of the revoked nodes only.
  if (access.revoked.length > 0) await runDueUpkeep(store);
  return access;
}
