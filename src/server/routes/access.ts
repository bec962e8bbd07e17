// Routes for an organization's members and for the groups of its nodes.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { policyErrors } from "../../api/values.ts";
import {
  createGroup,
  deleteGroup,
  describeGroup,
  findGroup,
  Group,
  groupColumns,
  groupOf,
  GroupPatch,
  GroupRequest,
} from "../policy/groups.ts";
import { ListQuery } from "../../api/values.ts";
import {
  addMember,
  emailInvitation,
  findMember,
  listedColumns,
  ListedMember,
  listedMemberOf,
  Member,
  NewMember,
} from "../people/members.ts";
import { changeRole, removeMember } from "../offboarding/member-changes.ts";
import { Email } from "../people/people.ts";
import { reportOf, tokensOf, type Access } from "../offboarding/left-access.ts";
import { AccessReport } from "../../api/values.ts";
import { created, noContent } from "../http/reply.ts";
import {
  always,
  body,
  id,
  nothing,
  organizationRoute,
  query,
  type OrganizationCall,
  type Reply,
  type Route,
} from "../http/route.ts";
import { adds } from "../retention/budget.ts";
import type { Services } from "../services.ts";
import { listRows, type Listed } from "./rows.ts";
import { Deletion } from "../../api/values.ts";

const Role = v.picklist(["member", "admin", "owner"]);
const MemberRequest = v.strictObject({ email: Email, role: v.optional(Role, "member") });
const MemberPatch = v.strictObject({
  role: Role,
  /** Confirms the user who becomes owner, if another user sent the invitation that created this user. */
  owner_id: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
});
const MemberDeletion = v.strictObject({
  ...Deletion.entries,
  revoke_tokens: v.optional(v.picklist(["true", "false"]), "false"),
});
const tokensLeft =
  "Tokens that they created and that still work, as paths below the organization; at most 100, the event has all";

export function accessRoutes(services: Services): Route[] {
  return [...memberReads(services), ...memberChanges(services), ...groupRoutes(services)];
}

/** Adds the header that lists the remaining tokens. */
function withTokensLeft(access: Access, reply: Reply): Reply {
  const paths = tokensOf(access)
    .tokens_left.slice(0, 100)
    .map(({ kind, id: tokenId }) => `${kind}s/${tokenId}/`);
  return paths.length === 0 ? reply : { ...reply, headers: { "X-Tokens-Left": paths.join(", ") } };
}

const by = (call: OrganizationCall) => ({ role: call.org.role, actor: actorOf(call) });

function memberReads(services: Services): Route[] {
  const listed: Listed = {
    table: "memberships",
    columns: listedColumns,
    where: "AND email LIKE $2 ESCAPE '!'",
    toItem: listedMemberOf,
  };
  return [
    organizationRoute({
      people: true,
      method: "GET",
      path: "members/",
      access: "member",
      name: "members_list",
      summary: "Members and open invitations",
      takes: query(ListQuery),
      answers: { 200: { description: "Members", schema: v.array(ListedMember) } },
      handle: (call, input) => listRows(services, call, listed, input),
    }),
    organizationRoute({
      people: true,
      method: "GET",
      path: `members/${id}/`,
      access: "member",
      name: "members_retrieve",
      summary: "One member",
      takes: nothing,
      answers: { 200: { description: "The member", schema: Member } },
      handle: async (call) => ({ body: await findMember(services.db, call.org, call.id()) }),
    }),
  ];
}

function memberChanges(services: Services): Route[] {
  return [
    organizationRoute({
      people: true,
      method: "POST",
      path: "members/",
      access: "admin",
      fresh: true,
      name: "members_create",
      summary:
        "Add a user that the operator created, or invite an address: by e-mail where an SMTP server is configured, else the answer has a link. Staff and members of other organizations are invited too",
      grows: always,
      takes: body(MemberRequest),
      answers: { 201: { description: "The member, or the invitation with its link", schema: NewMember } },
      errors: ["conflict"],
      handle: async (call, input) =>
        created(
          await emailInvitation(services, call.org, await addMember(services, call.org, input, by(call))),
        ),
    }),
    organizationRoute({
      people: true,
      method: "PATCH",
      path: `members/${id}/`,
      access: "admin",
      fresh: true,
      name: "members_partial_update",
      summary:
        "Change a member's role. Invitations that a former administrator sent expire; tokens, nodes and webhooks stay, and the answer lists them",
      takes: body(MemberPatch),
      answers: {
        200: {
          description: "The member, with what a former administrator can still use",
          schema: v.object({ ...Member.entries, ...AccessReport.entries }),
          headers: { "X-Tokens-Left?": tokensLeft },
        },
      },
      errors: ["conflict", "owner_unconfirmed"],
      async handle(call, { role, owner_id }) {
        const confirmation = { id: owner_id };
        const as = { ...by(call), confirmation };
        const { member, access } = await changeRole(services, call.org, call.id(), role, as);
        return withTokensLeft(access, { body: { ...member, ...reportOf(access) } });
      },
    }),
    organizationRoute({
      people: true,
      method: "DELETE",
      path: `members/${id}/`,
      access: "admin",
      fresh: true,
      name: "members_destroy",
      summary:
        "Remove a member. Invitations that they sent expire. Nodes that belong to them stay unless ?revoke_nodes=true, or unless the organization revokes the nodes of users who leave; tokens and webhooks that they created stay unless ?revoke_tokens=true. Both also revoke the organization's nodes that came by these tokens",
      takes: query(MemberDeletion),
      answers: {
        200: {
          description: "Removed, with ?report=true: what the person could use, and which of it was revoked",
          schema: AccessReport,
          headers: { "X-Tokens-Left?": tokensLeft },
        },
        204: { description: "Removed", headers: { "X-Tokens-Left?": tokensLeft } },
      },
      errors: ["conflict"],
      async handle(call, { revoke_nodes, revoke_tokens, report }) {
        const ends = { revokeNodes: revoke_nodes === "true", revokeTokens: revoke_tokens === "true" };
        const { access } = await removeMember(services, call.org, call.id(), by(call), ends);
        return withTokensLeft(access, report === "true" ? { body: reportOf(access) } : noContent);
      },
    }),
  ];
}

function groupRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "node_groups",
    columns: groupColumns,
    where: "AND lower(name) LIKE $2 ESCAPE '!'",
    bytes: "octet_length(description)",
    toItem: groupOf,
  };
  const path = "groups/:name/";
  return [
    organizationRoute({
      method: "GET",
      path: "groups/",
      access: "member",
      scope: "policy",
      name: "groups_list",
      summary: "Groups of nodes",
      takes: query(ListQuery),
      answers: { 200: { description: "Groups", schema: v.array(Group) } },
      handle: (call, input) => listRows(services, call, listed, input),
    }),
    organizationRoute({
      method: "POST",
      path: "groups/",
      access: "admin",
      scope: "policy",
      name: "groups_create",
      fresh: false,
      summary: "Create a group",
      grows: always,
      takes: body(GroupRequest),
      answers: { 201: { description: "The group", schema: Group } },
      errors: ["name_taken", ...policyErrors],
      handle: async (call, input) => created(await createGroup(services, call.org, input, actorOf(call))),
    }),
    organizationRoute({
      method: "GET",
      path,
      access: "member",
      scope: "policy",
      name: "groups_retrieve",
      summary: "One group",
      takes: nothing,
      answers: { 200: { description: "The group", schema: Group } },
      handle: async (call) => ({ body: await findGroup(services.db, call.org, call.param("name")) }),
    }),
    organizationRoute({
      method: "PATCH",
      path,
      access: "admin",
      scope: "policy",
      name: "groups_partial_update",
      fresh: false,
      summary: "Change a group's description",
      grows: async (input, call) => adds(await findGroup(services.db, call.org, call.param("name")), input),
      errors: policyErrors,
      takes: body(GroupPatch),
      answers: { 200: { description: "The group", schema: Group } },
      handle: async (call, { description }) => ({
        body: await describeGroup(services, call.org, call.param("name"), description, actorOf(call)),
      }),
    }),
    organizationRoute({
      method: "DELETE",
      path,
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "groups_destroy",
      summary: "Delete a group that no node, firewall rule or registration token uses",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      errors: ["conflict", ...policyErrors],
      async handle(call) {
        await deleteGroup(services, call.org, call.param("name"), actorOf(call));
        return noContent;
      },
    }),
  ];
}
