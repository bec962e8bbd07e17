// Records wrong passwords and wrong codes.

import { record } from "../../audit/record.ts";
import type { Store } from "../../options.ts";
import { memberships } from "../../store/tables/organizations.ts";
import { users } from "../../store/tables/users.ts";

/** One event for the operator, and one for each organization of the user. */
export async function recordFailedLogin(
  { db, system }: Store,
  email: string,
  address: string,
): Promise<void> {
  // Not writeFor: it writes into the chains of several organizations.
  await db.write(async (tx) => {
    const user = await users.find(tx, { email });
    const joined = user === undefined ? [] : await memberships.all(tx, { userId: user.id });
    for (const orgId of [null, ...joined.map((each) => each.orgId).sort((a, b) => a - b)]) {
      await record(tx, {
        orgId,
        at: system.now(),
        type: "security.login_failed",
        actor: { kind: "nobody", id: null, ip: address },
        subject: `user/${email}`,
      });
    }
  });
}
