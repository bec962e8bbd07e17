// The users of an organization's provider. They are bound to that organization: found by provider and subject, never by
// issuer or address, valid nowhere else, never staff and never owners. Whoever runs the provider chooses every claim.

import { maxEmailLength } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { makeOpaqueToken } from "../../pki/opaque.ts";
import { ourselves, record } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import type { Budget } from "../retention/budget.ts";
import type { Reader, Transaction } from "../store/database.ts";
import {
  nameOfProvider,
  organizationIdentities,
  type IdentityProviderRow,
} from "../store/tables/providers.ts";
import { memberships, organizations, verifiedDomains } from "../store/tables/organizations.ts";
import { users, type UserRow } from "../store/tables/users.ts";
import { cutText } from "../../base/text.ts";
import type { Admitted } from "./admission.ts";
import { applyGroups } from "./apply-groups.ts";
import { rolesFor } from "./group-roles.ts";
import { acceptInvited, invitationsOf, isInvited } from "./invited.ts";
import type { NodeGroupServices } from "./node-groups.ts";

type Provider = IdentityProviderRow & { orgId: number };

/**
 * The active user of the identity, after its groups are applied; a new user at the first sign-in of someone whose groups give a role,
 * or who is invited. Throws sign_in_refused, organization_full.
 */
export async function boundUserOf(
  services: NodeGroupServices & { budget: Pick<Budget, "refusal"> },
  provider: Provider,
  admitted: Admitted,
): Promise<UserRow> {
  const { db, system } = services;
  const { subject, groups } = admitted;
  const hasRole = rolesFor(provider, groups).has(provider.orgId);
  const fullError = await storageFull(services, provider.orgId, admitted);
  const { user, mayStay } = await db.write(async (tx) => {
    const now = system.now();
    const org = await organizations.find(tx, { id: provider.orgId, deletedAt: null });
    if (org === undefined) throw refused("The organization of this provider was deleted.");
    const identity = { providerId: provider.id, subject };
    /** Undefined at the first sign-in. */
    const known = await organizationIdentities.find(tx, identity);
    const address = await vouchedAddress(tx, org.id, admitted);
    const [invitation] =
      address === undefined ? [] : await invitationsOf(tx, address, { now, orgId: org.id });
    if (known === undefined && !hasRole && invitation === undefined) throw withoutRole(provider);
    // Existing users may still sign in.
    if (known === undefined && fullError !== undefined) throw fullError;
    const userId = known?.userId ?? (await insertUser(tx, provider, system));
    if (known === undefined) await organizationIdentities.insert(tx, { ...identity, userId, createdAt: now });
    await organizationIdentities.update(tx, identity, {
      groups: keptGroups(fullError, known?.groups ?? [], groups),
      lastUsedAt: now,
    });
    const stored = await users.find(tx, { id: userId, isActive: true, boundOrgId: provider.orgId });
    if (stored === undefined) throw refused("This user is disabled.");
    const email = nameFor({ address, slug: org.slug, userId }, admitted);
    if (email !== stored.email) await rename(tx, { userId, orgId: org.id, email });
    if (known === undefined) {
      const event = { orgId: org.id, at: now, actor: ourselves, subject: `user/${email}` };
      await record(tx, {
        ...event,
        type: "user.created",
        after: { email, provider: nameOfProvider(provider) },
      });
    }
    const membership = { orgId: org.id, userId };
    if (invitation !== undefined && (await memberships.find(tx, membership)) === undefined)
      await acceptInvited(tx, invitation, { userId, email }, now);
    return { user: { ...stored, email }, mayStay: hasRole || (await isInvited(tx, membership)) };
  });
  await applyGroups(services, provider, user, groups);
  // Only after the groups are applied: a user who has lost the last role loses the membership, too.
  if (!mayStay) throw withoutRole(provider);
  return user;
}

/** The groups to store: if the organization is full, groups may be removed but not added. */
export function keptGroups(
  fullError: AppError | undefined,
  known: readonly string[],
  groups: readonly string[],
): string[] {
  return fullError === undefined ? [...groups] : groups.filter((group) => known.includes(group));
}

/**
 * The error to throw if the organization has no room for the identity. The provider's operator chooses how many identities there are,
 * and how long their groups.
 */
export async function storageFull(
  { db, budget }: Pick<ServerOptions, "db"> & { budget: Pick<Budget, "refusal"> },
  orgId: number,
  { subject, groups }: Pick<Admitted, "subject" | "groups">,
): Promise<AppError | undefined> {
  const org = await organizations.find(db, { id: orgId });
  return org === undefined ? undefined : budget.refusal(org, { subject, groups });
}

async function insertUser(
  tx: Transaction,
  { orgId }: Provider,
  { now, random }: ServerOptions["system"],
): Promise<number> {
  const times = { sessionsFrom: now(), createdAt: now() };
  // A placeholder: the name contains the id, which is known after the insert.
  const row = {
    email: makeOpaqueToken(random),
    passwordHash: "",
    boundOrgId: orgId,
    homeOrgId: orgId,
    ...times,
  };
  return (await users.insertReturning(tx, row)).id;
}

async function rename(
  tx: Transaction,
  { userId, orgId, email }: { userId: number; orgId: number; email: string },
) {
  await users.update(tx, { id: userId }, { email });
  await memberships.update(tx, { userId, orgId }, { email });
  await tx.notify("auth", `user ${userId}`);
}

/** The address, if the provider vouches for it and the organization has verified its domain. */
async function vouchedAddress(
  tx: Reader,
  orgId: number,
  { email, isVerified }: Admitted,
): Promise<string | undefined> {
  const domain = email?.split("@").at(-1) ?? "";
  const claimed = isVerified ? await verifiedDomains.find(tx, { orgId, domain }) : undefined;
  const isProven = claimed !== undefined && claimed.verifiedAt !== null;
  return isProven ? email : undefined;
}

/**
 * The text that is shown in place of an address, `ada@example.org;17`. Because of the semicolon it is no address, so
 * it can neither match nor take one. The part before the semicolon is the address only if the provider vouches for it
 * and the organization has verified its domain; otherwise it is the provider's name for the user.
 */
function nameFor(
  { address, slug, userId }: { address: string | undefined; slug: string; userId: number },
  { called }: Admitted,
): string {
  const name = address === undefined ? undefined : `${address};${userId}`;
  if (name !== undefined && name.length <= maxEmailLength) return name;
  const word = cutText(called.normalize("NFC").toLowerCase(), 60)
    .replaceAll(/[^\p{L}\p{N}._]+/gu, "-")
    .replaceAll(/^[-.]+|[-.]+$/g, "");
  return `${word === "" ? "user" : word}@${slug};${userId}`;
}

function withoutRole(provider: Provider): AppError {
  return refused(
    `The groups of this identity give no role, and ${nameOfProvider(provider)} creates no members.`,
  );
}

function refused(message: string): AppError {
  return new AppError("sign_in_refused", message);
}
