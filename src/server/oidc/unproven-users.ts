// Users about whom nothing proves that they are still there: their provider gave no refresh token, and they have no
// password and no passkey. Where the organization is set so, their nodes are revoked a day after the last sign-in,
// when their sessions end too. If provider or server were away, so that they could not sign in, they get another day.

import { messageOf } from "../../base/errors.ts";
import { ourselves } from "../audit/record.ts";
import { forAll, orgOf, orgOfEntry } from "../for-all.ts";
import { revokeInside } from "../nodes/lifecycle/revoke.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import type { ServerOptions, Store } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { readMeta, setMeta } from "../store/meta.ts";
import { computed, integer, later, queryAll, text } from "../store/table.ts";
import { byProviderMs } from "../../api/sessions.ts";
import { identityProviders, type IdentityProviderRow } from "../store/tables/providers.ts";
import type { Exchange } from "./provider-requests.ts";
import { ownWayIn } from "./sign-in-methods.ts";

type Services = Store & Pick<ServerOptions, "log"> & { exchange: Pick<Exchange, "discover"> };

/** In `meta`: when a server last ran this loop, ms. */
const watchKey = "unproven_watch";
/** How often that is noted. */
const noteMs = 5 * 60_000;
/** After a longer pause between two runs, users could not sign in meanwhile. */
const gapMs = 15 * 60_000;
/** Nodes per transaction: few enough that check-ins do not wait for it. */
const together = 20;

const due = computed({ id: integer(), orgId: integer(), userId: integer(), email: text() });
type Due = ReturnType<typeof due.parse>;

// The day of a node begins with the last sign-in of its user, but not before `dayBegins`.

/**
 * SQL: ms: when the organization chose the setting, or when an administrator gave the node to the user. Proofs of
 * reauthentication.ts do not count: a session of the day before can give them.
 */
const dayBegins = later("o.revoke_unproven_from", "coalesce(p.given_at, 0)");
/** A user has identities of one kind. A user whose provider was deleted has none. */
const lastSignIn = `coalesce((SELECT max(i.last_used_at) FROM identities i WHERE i.user_id = u.id),
  (SELECT max(i.last_used_at) FROM organization_identities i WHERE i.user_id = u.id), u.last_login_at, 0)`;
/**
 * SQL: FROM the active nodes whose day (`byProviderMs`) is over. Not of users who sign in without a provider (`ownWayIn`), nor of those
 * whose provider gave a refresh token (`provider_grants`). $1: now, ms.
 */
const dueNodes = `FROM (SELECT n.id, n.org_id, n.owner_id AS user_id, u.email, ${dayBegins} AS day_begins, ${lastSignIn} AS signed_in
    FROM organizations o JOIN nodes n ON n.org_id = o.id AND n.owner_id IS NOT NULL AND n.state = 'active'
    JOIN users u ON u.id = n.owner_id LEFT JOIN owner_proofs p ON p.node_id = n.id
    WHERE o.revoke_unproven_nodes = 1 AND o.deleted_at IS NULL AND NOT ${ownWayIn}
      AND NOT EXISTS (SELECT 1 FROM provider_grants g WHERE g.user_id = u.id)) d
  WHERE d.signed_in <= $1 - ${byProviderMs} AND d.day_begins <= $1 - ${byProviderMs}`;
/** SQL: the ids of the providers of these users. `users`: SQL. */
const providersOf = (users: string) => `SELECT provider_id FROM identities WHERE user_id IN (${users})
  UNION SELECT provider_id FROM organization_identities WHERE user_id IN (${users})`;
const providersOfDue = `SELECT ${identityProviders.select("q")} FROM identity_providers q
  WHERE q.id IN (${providersOf(`SELECT d.user_id ${dueNodes}`)})`;
/** SQL: of the due nodes, those whose users have no provider that is away. $1: now, ms. */
const unheld = `SELECT d.id, d.org_id, d.user_id, d.email ${dueNodes}
  AND NOT EXISTS (SELECT 1 FROM identity_providers h WHERE h.held_until > $1 AND h.id IN (${providersOf("d.user_id")}))`;
const anyOrganization = "SELECT id FROM organizations WHERE revoke_unproven_nodes = 1 LIMIT 1";

/** Revokes the nodes of users whose last sign-in is more than a day ago. */
export async function endUnproven(services: Services): Promise<void> {
  const { db, system } = services;
  if ((await db.get(anyOrganization)) === undefined) return;
  await extendAfterPause(services);
  await holdForProviders(services);
  const found = await queryAll(db, due, `${unheld} ORDER BY d.org_id, d.id LIMIT 1000`, [system.now()]);
  await forAll(Map.groupBy(found, orgOf), orgOfEntry, async ([orgId, all]) => {
    for (let at = 0; at < all.length; at += together)
      await revokeBatch(services, orgId, all.slice(at, at + together));
  });
}

/** After a pause of the server, every user gets another day. */
async function extendAfterPause({ db, system }: Store): Promise<void> {
  const now = system.now();
  const ranAt = Number((await readMeta(db, watchKey)) ?? 0);
  // The distance, because the clock may have been set back.
  if (Math.abs(now - ranAt) < noteMs) return;
  await db.writeFor("rows", (tx) => setMeta(tx, watchKey, String(now)));
  if (Math.abs(now - ranAt) < gapMs) return;
  const restart = "UPDATE organizations SET revoke_unproven_from = $1 WHERE revoke_unproven_nodes = 1";
  await db.write((tx) => tx.run(restart, [now]));
}

/** Users of a provider that does not answer get another day, from its last failure on. */
async function holdForProviders({ db, system, log, exchange }: Services): Promise<void> {
  const now = system.now();
  const asked = await queryAll(db, identityProviders, providersOfDue, [now]);
  const hold = async (provider: IdentityProviderRow) => {
    const { id } = provider;
    const failure = await exchange.discover(provider).then(() => undefined, messageOf);
    if (failure === undefined) return;
    const heldUntil = now + byProviderMs;
    await db.writeFor("rows", (tx) => identityProviders.update(tx, { id }, { heldUntil }));
    log.info("A provider is away; the nodes of its users do not end", { provider: id, reason: failure });
  };
  await Promise.all(asked.map(hold));
}

async function revokeBatch({ db, system }: Store, orgId: number, found: readonly Due[]): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    const now = system.now();
    for (const [userId, own] of Map.groupBy(found, (each) => each.userId)) {
      // Read again: the user may have signed in, or the node may have another owner.
      const still = await stillDue(tx, userId, now);
      const ids = own.map(({ id }) => id).filter((id) => still.has(id));
      const reason = `${own[0]?.email ?? "its user"} did not sign in for 24 hours`;
      await revokeInside(tx, orgId, ids, { actor: ourselves, reason, now });
    }
  });
  await runDueUpkeep({ db, system }, orgId);
}

async function stillDue(tx: Reader, userId: number, now: number): Promise<Set<number>> {
  const all = await queryAll(tx, due, `${unheld} AND d.user_id = $2`, [now, userId]);
  return new Set(all.map(({ id }) => id));
}
