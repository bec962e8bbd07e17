// The roles that the groups of an identity give in organizations, at each sign-in. Roles given by administrators
// stay, and no group gives or takes the role of an owner.

import { ourselves, record } from "../audit/record.ts";
import { changeRole, removeMember } from "../offboarding/member-changes.ts";
import type { Store } from "../options.ts";
import { memberEvent } from "../users/members.ts";
import { allOrganizations } from "../organizations/organizations.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import { memberships } from "../store/tables/organizations.ts";

type User = { id: number; email: string };
type Role = "member" | "admin";

/** Who changes roles here: the control plane, with the rights of an administrator, who cannot touch owners. */
const byProvider = { role: "admin", actor: ourselves } as const;

type Provider = Pick<IdentityProviderRow, "id" | "roles" | "orgId" | "createsUsers">;

/** By organization, the role that the groups give; none: no entry. A provider of an organization gives roles there only. */
export function rolesFor({ roles, orgId, createsUsers }: Provider, groups: readonly string[]) {
  const given = new Map<number, Role>();
  // An organization whose provider creates users takes each of them as a member, whatever the groups.
  if (orgId !== null && createsUsers) given.set(orgId, "member");
  for (const mapping of roles) {
    if (orgId !== null && mapping.orgId !== orgId) continue;
    if (groups.includes(mapping.group) && given.get(mapping.orgId) !== "admin")
      given.set(mapping.orgId, mapping.role === "admin" ? "admin" : "member");
  }
  return given;
}

/** Adds, promotes, demotes and removes the user. The consequences are those of a change by an administrator. */
export async function applyRoles(
  store: Store,
  provider: Provider,
  user: User,
  groups: readonly string[],
): Promise<void> {
  const given = rolesFor(provider, groups);
  const present = await memberships.all(store.db, { userId: user.id });
  for (const org of await allOrganizations(store.db)) {
    if (provider.orgId !== null && provider.orgId !== org.id) continue;
    const role = given.get(org.id);
    const membership = present.find(({ orgId }) => orgId === org.id);
    if (membership === undefined) {
      if (role !== undefined) await addMember(store, user, { orgId: org.id, providerId: provider.id, role });
    } else if (membership.providerId === provider.id && membership.role !== "owner") {
      if (role === undefined) await removeMember(store, org, membership.id, byProvider);
      else if (role !== membership.role) await changeRole(store, org, membership.id, role, byProvider);
    }
  }
}

/** Makes the user a member. An open invitation of the address ends: the user is a member without it. */
async function addMember(
  { db, system }: Store,
  { id, email }: User,
  { orgId, providerId, role }: { orgId: number; providerId: number; role: Role },
) {
  await db.write(async (tx) => {
    await memberships.delete(tx, { orgId, email, userId: null });
    const row = { orgId, email, userId: id, role, createdAt: system.now(), providerId };
    if ((await memberships.upsert(tx, row, "ON CONFLICT (org_id, email) DO NOTHING")) === 0) return;
    const event = memberEvent(orgId, system.now(), ourselves, email);
    await record(tx, { ...event, type: "member.created", after: { email, role } });
    await tx.notify("auth", `user ${id}`);
  });
}
