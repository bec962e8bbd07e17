// Prepares the database of a backup for the server that will run on it: what ended since the backup must stay ended, and no id or
// version may be used twice.

import { operator, record } from "../audit/record.ts";
import { endRestored } from "../rollout/rollouts.ts";
import { forgetClock } from "../store/clock.ts";
import { raiseCounters, readCounters } from "../store/copy.ts";
import type { Database, Transaction } from "../store/database.ts";
import { queryNumber } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";
import { carryOver } from "./carry-over.ts";
import type { Carried } from "./carried.ts";

/**
 * After a restore, versions and ids continue far above those of the backup: no id may be used twice, and no node may have a newer
 * version than the server. They rise by what a busy server takes in the time since the backup, and by at least `leastJump`.
 */
const mostPerSecond = 10;
const leastJump = 10_000;

/** `old`: the database that the restored one replaces, from which it takes what has ended since. */
export function prepareRestored(
  restored: Database,
  old: Database | undefined,
  now: number,
): Promise<Carried | undefined> {
  return restored.write(async (tx) => {
    await raiseNumbers(tx, old, now);
    await endSignIns(tx, now);
    // Nodes have received other files since.
    await tx.run("DELETE FROM sent_files");
    await tx.run("DELETE FROM sent_configs");
    // The stored time of the backup is long past: it would look as if the clock had jumped.
    await forgetClock(tx);
    const carried = old === undefined ? undefined : await carryOver(old, tx, now);
    if (old !== undefined) await raiseCounters(tx, await readCounters(old, old.dialect));
    // Rollouts of the backup: what their nodes have done since is unknown.
    await endRestored(tx, now);
    // Confirmations since the backup are lost: users are told again, and have time again.
    await tx.run("UPDATE owner_proofs SET told_at = NULL");
    // Without the providers' tokens only a sign-in proves that a user is still there: each has a day for it. After carryOver, which
    // carries the time of the replaced database.
    await tx.run("UPDATE organizations SET revoke_unproven_from = $1", [now]);
    const after = { revoked_nodes: carried?.revoked_nodes ?? 0 };
    const event = { orgId: null, at: now, actor: operator, subject: "server" };
    await record(tx, { ...event, type: "server.restored", after });
    return carried;
  });
}

async function raiseNumbers(tx: Transaction, old: Database | undefined, now: number): Promise<void> {
  const last = await queryNumber(tx, "SELECT coalesce(max(at), $1) AS n FROM events", [now]);
  const jump = Math.max(leastJump, Math.ceil(((now - last) / 1000) * mostPerSecond));
  for (const { id, lastVersion, namesVersion } of await organizations.all(tx, {})) {
    const replaced = old === undefined ? undefined : await organizations.find(old, { id });
    const version = Math.max(lastVersion + jump, (replaced?.lastVersion ?? 0) + 1);
    const names = Math.max(namesVersion + jump, (replaced?.namesVersion ?? 0) + 1);
    // `namesSince`: nodes get all names again, since what changed after the backup is unknown.
    const versions = { lastVersion: version, configVersion: version, namesVersion: names, namesSince: names };
    await organizations.update(tx, { id }, versions);
  }
  // Raise them even if a database is replaced: it may be a new one, created after the original was lost.
  // By table, the last id that it assigned.
  const counters = await readCounters(tx, tx.dialect);
  await raiseCounters(tx, new Map([...counters].map(([table, given]) => [table, given + jump])));
}

/** Sessions that ended after the backup must not come back: all users sign in again. */
async function endSignIns(tx: Transaction, now: number): Promise<void> {
  await tx.run("DELETE FROM refresh_tokens");
  await tx.run("DELETE FROM browser_sessions");
  await tx.run("DELETE FROM session_nodes");
  await tx.run("DELETE FROM password_resets");
  await tx.run("UPDATE users SET sessions_from = $1", [now]);
  // Providers may have replaced these tokens since. One that gets an old token takes it for stolen, and the user for gone.
  await tx.run("DELETE FROM provider_grants");
}
