// Checks whether users are still at their provider. If it gave a refresh token, it is asked every hour:
// `invalid_grant` ends what began there, a failure of the provider ends nothing. If it gave none, sessions end after
// a day in any case, and nodes as in unproven-users.ts.

import { AppError, messageOf } from "../../base/errors.ts";
import { openSecret, sealSecret } from "../../pki/secrets.ts";
import { ourselves, record } from "../audit/record.ts";
import { runDueUpkeep } from "../nodes/lifecycle/upkeep.ts";
import { endAccess, type Access } from "../offboarding/end-access.ts";
import type { ServerOptions } from "../options.ts";
import { endSessions } from "../users/sessions/sessions.ts";
import type { Budget } from "../retention/budget.ts";
import { computed, integer, joined, queryAll } from "../store/table.ts";
import { byProviderMs } from "../../api/sessions.ts";
import {
  identities,
  identityProviders,
  nameOfProvider,
  organizationIdentities,
  type IdentityProviderRow,
  grantContext,
  providerGrants,
  type ProviderGrantRow,
} from "../store/tables/providers.ts";
import { users, type UserRow } from "../store/tables/users.ts";
import { within } from "../store/savepoint.ts";
import { admitIdentity, valueAt } from "./admission.ts";
import type { Exchange, Refreshed } from "./provider-requests.ts";
import { keptGroups, storageFull } from "./bound-users.ts";
import { applyGroups } from "./apply-groups.ts";
import { applyNodeGroups, type NodeGroupServices } from "./node-groups.ts";
import { applyProviderGroups } from "./provider-groups.ts";
import { endSessionsBy } from "./provider-sessions.ts";
import { hasWayIn } from "./sign-in-methods.ts";

type Services = NodeGroupServices & {
  exchange: Pick<Exchange, "refresh">;
  budget: Pick<Budget, "refusal">;
  system: Pick<ServerOptions["system"], "monotonic">;
};

/** How often a provider is asked about a user. With the loop's interval and retries, one who left is noticed within an hour. */
const askEveryMs = 50 * 60_000;
/** Pause after a request that failed, or whose process ended. */
const againMs = 5 * 60_000;
/** Maximum number of users in one turn. The others follow in the next. */
const maxAtOnce = 100;
/** Concurrent requests of one organization, or of one provider of the installation. */
const maxConcurrent = 10;
/** Maximum time that one provider may take in a turn: the others wait for the next one. */
const turnMs = 30_000;

/** Called after a sign-in: stores the provider's token, and in `proof` whether it gives tokens. */
export async function keepGrant(
  { db, system, secretKey }: Pick<ServerOptions, "db" | "system" | "secretKey">,
  { id: providerId, proof }: Pick<IdentityProviderRow, "id" | "proof">,
  given: { userId: number; subject: string; refreshToken: string | undefined },
): Promise<void> {
  const { userId, subject, refreshToken } = given;
  const proofNow = refreshToken === undefined ? "none" : "refresh";
  if (refreshToken === undefined && proof === "none") return;
  await db.write(async (tx) => {
    if (proof !== proofNow) await identityProviders.update(tx, { id: providerId }, { proof: proofNow });
    await providerGrants.delete(tx, { providerId, subject });
    if (refreshToken === undefined) return;
    const tokenSealed = sealSecret(secretKey, refreshToken, grantContext(providerId, subject));
    const nextAt = system.now() + askEveryMs;
    await providerGrants.insert(tx, { providerId, userId, subject, tokenSealed, nextAt });
  });
}

/** `owner`: the id of the organization, or the negative id of a provider of the installation. */
const grantWithOwner = joined("g", providerGrants, "g", computed({ owner: integer() }));
/** The grants that are due at $1 (ms), the first of each owner before any second one. */
const dueSql = `SELECT ${grantWithOwner.select()} FROM (
    SELECT d.*, coalesce(p.org_id, -p.id) AS owner,
      row_number() OVER (PARTITION BY coalesce(p.org_id, -p.id) ORDER BY d.next_at, d.id) AS place
    FROM provider_grants d JOIN identity_providers p ON p.id = d.provider_id WHERE d.next_at <= $1
  ) g ORDER BY g.place, g.next_at, g.id LIMIT ${maxAtOnce}`;

/** Asks the providers about users who are due. One that hangs does not delay the others. */
export async function checkLeavers(services: Services, closing?: AbortSignal): Promise<void> {
  const { db, system } = services;
  const due = await queryAll(db, grantWithOwner, dueSql, [system.now()]);
  const turnEnds = system.monotonic() + turnMs;
  const hasEnded = () => closing?.aborted === true || system.monotonic() > turnEnds;
  const askInTurn = async (grants: readonly ProviderGrantRow[]) => {
    for (let at = 0; at < grants.length && !hasEnded(); at += maxConcurrent)
      await Promise.all(grants.slice(at, at + maxConcurrent).map((grant) => checkUser(services, grant)));
  };
  const asked = await Promise.allSettled([...Map.groupBy(due, ({ owner }) => owner).values()].map(askInTurn));
  const failed = asked.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** Asks the provider about one user, and applies its answer. A failure of the provider is logged; the next turn asks again. */
async function checkUser(services: Services, grant: ProviderGrantRow): Promise<void> {
  const { db, system, secretKey, exchange, log } = services;
  const { id, providerId, userId, subject, nextAt } = grant;
  // Claims the grant first: a provider takes a refresh token that is used twice for stolen, and refuses both.
  const claimed = await db.writeFor("rows", (tx) =>
    providerGrants.update(tx, { id, nextAt }, { nextAt: system.now() + againMs }),
  );
  const provider = await identityProviders.find(db, { id: providerId });
  const user = await users.find(db, { id: userId, isActive: true });
  if (claimed === 0 || provider === undefined || user === undefined) return;
  try {
    const token = openSecret(secretKey, grant.tokenSealed, grantContext(providerId, subject));
    const answer = await exchange.refresh(provider, subject, token);
    // "unsaid": refused, but without the error code that a provider must give.
    if (answer.account === "unsaid") return await noteRefusal(services, grant);
    if (answer.account === "gone") return await endAtProvider(services, provider, user, grant);
    const next = answer.refreshToken ?? token;
    const tokenSealed = sealSecret(secretKey, next, grantContext(providerId, subject));
    const asked = { tokenSealed, nextAt: system.now() + askEveryMs, refusedAt: null };
    const kept = await db.writeFor("rows", (tx) => providerGrants.update(tx, { id }, asked));
    // The grant was unlinked, deleted or replaced during the request, so the answer does not count.
    if (kept === 0) return;
    await applyClaims(services, provider, user, grant, answer);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.info("A provider did not say whether a user is still there; asking again", {
      provider: providerId,
      user: userId,
      reason: messageOf(error),
    });
  }
}

/**
 * A refusal without an error code may come from a proxy. After a day of them the token proves nothing: the user
 * counts as one without a refresh token.
 */
async function noteRefusal({ db, system, log }: Services, grant: ProviderGrantRow): Promise<void> {
  const { id, providerId, userId: user } = grant;
  const now = system.now();
  const refusedAt = grant.refusedAt ?? now;
  const isOver = refusedAt <= now - byProviderMs;
  await db.writeFor("rows", (tx) =>
    isOver ? providerGrants.delete(tx, { id }) : providerGrants.update(tx, { id }, { refusedAt }),
  );
  log.info("A provider refuses to say whether a user is still there", {
    provider: providerId,
    user,
    isOver,
  });
}

/** Stores the user's present groups, and applies them. A user who may not sign in any more counts as having left. */
async function applyClaims(
  services: Services,
  provider: IdentityProviderRow,
  user: UserRow,
  grant: ProviderGrantRow,
  { claims, isWhole }: Extract<Refreshed, { account: "there" }>,
): Promise<void> {
  // Some providers report groups at a sign-in only.
  if (!isWhole && valueAt(claims, provider.groupsClaim) === undefined) return;
  let groups: readonly string[];
  try {
    // Some providers report address and tenant at a sign-in only. Neither changes.
    ({ groups } = admitIdentity({ ...provider, domains: [], tenant: null }, claims));
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "sign_in_refused") throw error;
    return endAtProvider(services, provider, user, grant);
  }
  const { subject } = grant;
  const identity = { providerId: provider.id, subject };
  const fullError =
    provider.orgId === null ? undefined : await storageFull(services, provider.orgId, { subject, groups });
  await services.db.writeFor({ user: user.id }, async (tx) => {
    await identities.update(tx, identity, { groups: [...groups] });
    // An organization without room for more loses groups here, and gets none (keptGroups).
    const known = (await organizationIdentities.find(tx, identity))?.groups ?? [];
    await organizationIdentities.update(tx, identity, { groups: keptGroups(fullError, known, groups) });
  });
  await applyGroups(services, provider, user, groups);
}

/**
 * Ends what depends on the provider: sessions, and what its groups gave. A user without another way to sign in is
 * treated as disabled: the nodes end too, if the organization is set so. The role stays, but the user cannot use it.
 */
async function endAtProvider(
  services: Services,
  provider: IdentityProviderRow,
  user: UserRow,
  { id, subject }: ProviderGrantRow,
): Promise<void> {
  const { db, system, log } = services;
  const { id: userId, email } = user;
  const name = nameOfProvider(provider);
  const access = await db.write(async (tx): Promise<Access | undefined> => {
    const now = system.now();
    // In the same transaction: this user is not checked again, so nothing else would remove the groups later.
    const inside = { ...services, db: within(db, tx) };
    // A sign-in meanwhile replaced the grant: the user is still there.
    if ((await providerGrants.delete(tx, { id })) === 0) return undefined;
    const by = { userId, providerId: provider.id };
    await endSessionsBy(tx, by, now);
    const event = { orgId: provider.orgId, at: now, actor: ourselves, subject: `user/${email}` };
    await record(tx, { ...event, type: "user.left_provider", after: { provider: name } });
    const identity = { providerId: provider.id, subject };
    await identities.update(tx, identity, { groups: [] });
    await organizationIdentities.update(tx, identity, { groups: [] });
    if (await hasWayIn(tx, userId, { providerId: provider.id })) {
      await applyGroups(inside, provider, user, []);
      return undefined;
    }
    await endSessions(tx, userId, now);
    const ending = { isLeaving: true, actor: ourselves, now, reason: `${email} left ${name}` };
    const ended = await endAccess(tx, { kind: "person", id: userId }, ending);
    // Even if the nodes stay, they leave the provider's groups.
    await applyNodeGroups(inside, provider, userId, []);
    await applyProviderGroups(inside, provider, userId);
    return ended;
  });
  log.info("A user left a provider", { provider: provider.id, user: userId });
  // Pending work may have waited for the confirmations of these nodes only.
  if (access !== undefined && access.revoked.length > 0) await runDueUpkeep({ db, system });
}
