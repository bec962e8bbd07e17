// Handlers of src/api/organizations.ts, members.ts and groups.ts.

import type { groupsApi } from "../../api/groups.ts";
import type { membersApi } from "../../api/members.ts";
import type { Organization, organizationsApi } from "../../api/organizations.ts";
import { organizationDeleted } from "../../protocol/orders.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { noContent } from "../http/reply.ts";
import type { Call, OrganizationCall } from "../http/route.ts";
import { revokeAllNodes } from "../nodes/lifecycle/revoke.ts";
import { reportOf, tokensOf, type Access } from "../offboarding/end-access.ts";
import { changeRole, removeMember } from "../offboarding/member-changes.ts";
import { addMember, findMember, listedColumns, listedMemberOf } from "../users/members.ts";
import { emailInvitation } from "../users/invitations.ts";
import { findOwner } from "../users/users.ts";
import { requireOwnFactor } from "../users/factors/step-up.ts";
import {
  createGroup,
  deleteGroup,
  describeGroup,
  findGroup,
  groupColumns,
  groupOf,
} from "../policy/groups.ts";
import { createOrganization, deleteOrganization, findOrganization } from "./organizations.ts";
import { patchOrganization } from "./patch-organization.ts";
import { adds } from "../retention/budget.ts";
import { refuseBesideRollout } from "../rollout/refuse-beside.ts";
import { migrateVersions } from "../rollout/version-migration.ts";
import { listRows, type Listed } from "../store/list-rows.ts";
import type { Services } from "../services.ts";
import { listOrganizations } from "../users/list-organizations.ts";

export const organizationHandlers = (services: Services): Handlers<typeof organizationsApi> => ({
  list: (call, input) => listOrganizations(services, call, input),
  async create(call, { owner, owner_id, certificate_version: certificateVersion, ...request }) {
    const by = { ...(await ownerOf(services, call, owner, owner_id)), actor: actorOf(call) };
    const wanted = certificateVersion === undefined ? request : { ...request, certificateVersion };
    return { body: await createOrganization(services, wanted, by) };
  },
  retrieve: async (call) => ({ body: await findOrganization(services.db, call.org, roleOf(call)) }),
  update: {
    // Only a change that adds something is refused when the organization is full.
    grows: async ({ name, config_overrides }, { org }) =>
      adds(await findOrganization(services.db, org, null), { name, config_overrides }),
    async handle(call, input) {
      const org = { ...call.org, role: roleOf(call) };
      // Passed in: rollouts and users are on higher floors than settings.
      const rules = { migrate: migrateVersions, requireOwnFactor, refuseBesideRollout };
      return { body: await patchOrganization(services, org, input, actorOf(call), rules) };
    },
  },
  async delete(call) {
    await revokeAllNodes(services, call.org, actorOf(call), organizationDeleted);
    await deleteOrganization(services, call.org, actorOf(call));
  },
});

// In the conditions of lists, `$2` is the pattern of the query's `search` (store/list-rows.ts).

export const memberHandlers = (services: Services): Handlers<typeof membersApi> => {
  const listed = (isForMember: boolean): Listed<ReturnType<typeof listedMemberOf>> => ({
    table: "memberships",
    columns: listedColumns,
    where: "AND email LIKE $2 ESCAPE '!'",
    toItem: (row) => listedMemberOf(row, isForMember),
  });
  return {
    list: (call, input) => listRows(services, call, listed(call.org.role === "member"), input),
    retrieve: async (call) => ({ body: await findMember(services.db, call.org, call.id()) }),
    async create(call, input) {
      const added = await addMember(services, call.org, input, roleAndActor(call));
      return { body: await emailInvitation(services, call.org, added) };
    },
    async update(call, { role, owner_id }) {
      // `owner_id`: the user that the caller confirms as the new owner.
      const as = { ...roleAndActor(call), confirmation: { id: owner_id } };
      const { member, access } = await changeRole(services, call.org, call.id(), role, as);
      return { body: { ...member, ...reportOf(access) }, ...tokensLeft(access) };
    },
    async delete(call, { revoke_nodes, revoke_tokens, report }) {
      const ends = { revokeNodes: revoke_nodes === "true", revokeTokens: revoke_tokens === "true" };
      const { access } = await removeMember(services, call.org, call.id(), roleAndActor(call), ends);
      return { ...(report === "true" ? { body: reportOf(access) } : noContent), ...tokensLeft(access) };
    },
  };
};

const roleAndActor = (call: OrganizationCall) => ({ role: call.org.role, actor: actorOf(call) });

/** The header that lists the remaining tokens. */
function tokensLeft(access: Access): { headers?: Record<string, string> } {
  const paths = tokensOf(access)
    .tokens_left.slice(0, 100)
    .map(({ kind, id }) => `${kind}s/${id}/`);
  return paths.length === 0 ? {} : { headers: { "X-Tokens-Left": paths.join(", ") } };
}

export const groupHandlers = (services: Services): Handlers<typeof groupsApi> => {
  const listed: Listed<ReturnType<typeof groupOf>> = {
    table: "node_groups",
    columns: groupColumns,
    where: "AND lower(name) LIKE $2 ESCAPE '!'",
    bytes: "octet_length(description)",
    toItem: groupOf,
  };
  return {
    list: (call, input) => listRows(services, call, listed, input),
    create: async (call, input) => ({
      body: await createGroup(services, call.org, input, actorOf(call)),
    }),
    retrieve: async (call) => ({ body: await findGroup(services.db, call.org, call.param("name")) }),
    update: {
      grows: async (input, call) => adds(await findGroup(services.db, call.org, call.param("name")), input),
      handle: async (call, { description }) => ({
        body: await describeGroup(services, call.org, call.param("name"), description, actorOf(call)),
      }),
    },
    async delete(call) {
      await deleteGroup(services, call.org, call.param("name"), actorOf(call));
    },
  };
};

/** The caller's role; null for staff who are not members, and for the operator. */
function roleOf({ caller, org }: Pick<OrganizationCall, "caller" | "org">): Organization["role"] {
  return org.visiting || caller.kind === "operator" ? null : org.role;
}

/** The owner of a new organization: the named user, else the caller. The operator may create one without. */
async function ownerOf(
  { db }: Services,
  { caller }: Pick<Call, "caller">,
  email: string | undefined,
  id: number | undefined,
) {
  if (email !== undefined) {
    const owner = await findOwner(db, { email, id });
    return { ownerId: owner.id, ownerEmail: owner.email };
  }
  if (caller.kind === "person") return { ownerId: caller.userId, ownerEmail: caller.email };
  return { ownerId: null, ownerEmail: null };
}
