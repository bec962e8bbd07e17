// The identities of users at providers, found by issuer and subject. An e-mail address never finds a user: whoever has the
// address at some provider would be that user.

import { AppError } from "../../base/errors.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { ourselves, record, type Actor } from "../audit/record.ts";
import type { Store } from "../options.ts";
import { insertUser, userEvent } from "../users/users.ts";
import { ifNotUnique, type Reader, type Row, type Transaction } from "../store/database.ts";
import { computed, queryAll, text } from "../store/table.ts";
import {
  identities,
  identityProviders,
  type IdentityProviderRow,
  providerGrants,
} from "../store/tables/providers.ts";
import { browserSessions } from "../store/tables/sessions.ts";
import { users, type UserRow } from "../store/tables/users.ts";
import { within } from "../store/savepoint.ts";
import { applyGroups } from "./apply-groups.ts";
import type { NodeGroupServices } from "./node-groups.ts";
import type { Admitted } from "./admission.ts";
import { acceptInvited, invitationsOf } from "./invited.ts";
import { endSessionsBy } from "./provider-sessions.ts";
import { hasWayIn } from "./sign-in-methods.ts";

type Provider = Pick<IdentityProviderRow, "id" | "issuer" | "name" | "createsUsers">;
type User = { userId: number; email: string };

const providerName = computed({ name: text() });

export async function listIdentities(reader: Reader, userId: number) {
  const sql = `SELECT ${identities.select("i")}, p.name FROM identities i
    JOIN identity_providers p ON p.id = i.provider_id WHERE i.user_id = $1 ORDER BY i.id`;
  const parser = {
    parse: (row: Row) => ({ ...identities.parse(row), ...providerName.parse(row) }),
  };
  return (await queryAll(reader, parser, sql, [userId])).map(
    ({ id, name, email, groups, createdAt, lastUsedAt }) => ({
      id,
      provider: name,
      email,
      groups,
      created_at: formatTime(createdAt),
      last_used_at: timeOrNull(lastUsedAt),
    }),
  );
}

/**
 * The active user of the identity; a new user if the provider creates users. Throws sign_in_refused, or address_in_use
 * where the user must sign in the old way first and then link.
 */
export async function userOf(
  { db, system }: Store,
  provider: Provider,
  admitted: Admitted,
): Promise<UserRow> {
  const { subject, email, groups } = admitted;
  const now = system.now();
  const user = db.write(async (tx) => {
    const known = await identities.find(tx, { issuer: provider.issuer, subject });
    const userId = known?.userId ?? (await createUser(tx, provider, admitted, now));
    if (known === undefined) await insertIdentity(tx, provider, admitted, userId, now);
    const attributes = {
      email: email ?? null,
      groups: [...groups],
      lastUsedAt: now,
      providerId: provider.id,
    };
    await identities.update(tx, { issuer: provider.issuer, subject }, attributes);
    const active = await users.find(tx, { id: userId, isActive: true });
    if (active === undefined) throw new AppError("sign_in_refused", "This user is disabled.");
    return active;
  });
  // A concurrent sign-in created the user, or the address was taken since the lookup. The next attempt finds it.
  const beginAgain = (cause: unknown) =>
    new AppError("sign_in_expired", "Begin the sign-in again.", { cause });
  return user.catch(ifNotUnique(beginAgain));
}

async function createUser(
  tx: Transaction,
  provider: Provider,
  { email, isVerified }: Admitted,
  now: number,
): Promise<number> {
  if (email === undefined || !isVerified)
    throw new AppError("sign_in_refused", `${provider.name} vouches for no e-mail address of this identity.`);
  if ((await users.find(tx, { email })) !== undefined) {
    throw new AppError("address_in_use", `There is already a user ${email}.`, {
      hint: "Sign in as that user, and link the identity on the page of the account.",
    });
  }
  if (!provider.createsUsers)
    throw new AppError("sign_in_refused", "This identity belongs to no user, and the provider creates none.");
  // "": no password. The user signs in by the provider.
  const { id } = await insertUser(tx, { email, hashed: "", isStaff: false }, { actor: ourselves, now });
  // The same as if an administrator had added the user. With several identities at one address, the user must link
  // them.
  const [invitation, ...others] = await invitationsOf(tx, email, { now });
  if (invitation !== undefined && others.length === 0)
    await acceptInvited(tx, invitation, { userId: id, email }, now);
  return id;
}

function insertIdentity(
  tx: Transaction,
  provider: Provider,
  { subject }: Admitted,
  userId: number,
  createdAt: number,
) {
  return identities.insert(tx, {
    userId,
    providerId: provider.id,
    issuer: provider.issuer,
    subject,
    createdAt,
  });
}

/**
 * Adds an identity to the signed-in user. Throws conflict if another user has it, sign_in_expired if the user's session has ended.
 */
export async function linkIdentity(
  { db, system }: Store,
  provider: Provider,
  admitted: Admitted,
  { userId, email, session }: User & { session: number },
  actor: Actor,
): Promise<void> {
  const { issuer, name } = provider;
  const linked = db.write(async (tx) => {
    // The session may have ended while the provider exchanged the code. No identity may be linked by a session that
    // has ended.
    if ((await browserSessions.find(tx, { id: session, userId })) === undefined) throw sessionEnded();
    if ((await users.find(tx, { id: userId }))?.boundOrgId !== null)
      throw new AppError("conflict", "You sign in by the provider of an organization only.");
    const known = await identities.find(tx, { issuer, subject: admitted.subject });
    if (known?.userId === userId) return;
    if (known !== undefined) throw identityTaken(name);
    await insertIdentity(tx, provider, admitted, userId, system.now());
    const attributes = { email: admitted.email ?? null, groups: [...admitted.groups] };
    await identities.update(tx, { issuer, subject: admitted.subject }, attributes);
    await record(tx, {
      ...userEvent(system, actor, email),
      type: "user.identity_linked",
      after: { provider: name },
    });
  });
  await linked.catch(ifNotUnique(() => identityTaken(name)));
}

export function sessionEnded(): AppError {
  return new AppError("sign_in_expired", "The session that began this has ended. Sign in and begin again.");
}

function identityTaken(name: string): AppError {
  return new AppError("conflict", `Another user has this identity at ${name}.`);
}

/**
 * Takes an identity from its user. Sessions that began with it end, and so does what its groups gave, because no later answer of the
 * provider would. Throws not_found, or conflict for the last way to sign in.
 */
export async function unlinkIdentity(
  services: NodeGroupServices,
  { userId, email }: User,
  id: number,
  actor: Actor,
): Promise<void> {
  const { db, system } = services;
  await db.write(async (tx) => {
    const found = await identities.find(tx, { id, userId });
    if (found === undefined) throw new AppError("not_found", "You have no such identity.");
    await identities.delete(tx, { id });
    const by = { userId, providerId: found.providerId };
    if (!(await hasWayIn(tx, userId)))
      throw new AppError("conflict", "This is your only way to sign in.", {
        hint: "Add a passkey first, or ask the operator for a password.",
      });
    await providerGrants.delete(tx, by);
    await endSessionsBy(tx, by, system.now());
    const before = { provider: found.issuer };
    await record(tx, { ...userEvent(system, actor, email), type: "user.identity_unlinked", before });
    // The user may have another identity there.
    const groups = (await identities.all(tx, by)).flatMap((each) => each.groups);
    const provider = await identityProviders.find(tx, { id: found.providerId });
    // In the same transaction: nothing else would remove these groups later.
    const inside = { ...services, db: within(db, tx) };
    if (provider !== undefined) await applyGroups(inside, provider, { id: userId, email }, groups);
  });
}
