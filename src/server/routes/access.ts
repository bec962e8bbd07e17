// Routes of who has access to an organization: members, registration tokens, service tokens, groups.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { actorOf } from "../events.ts";
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
} from "../groups.ts";
import { ListQuery, listReply, pageOf, searchPattern } from "../lists.ts";
import {
  addMember,
  changeRole,
  findMember,
  Member,
  memberColumns,
  memberOf,
  NewMember,
  removeMember,
  userOfMember,
} from "../members.ts";
import { Email } from "../people.ts";
import {
  createRegistrationToken,
  NewRegistrationToken,
  RegistrationToken,
  registrationTokenColumns,
  registrationTokenOf,
  RegistrationTokenRequest,
  revokeRegistrationToken,
} from "../registration-tokens.ts";
import { nodesOfMember, nodesOfToken, revokeNodes } from "../revoke-many.ts";
import { created, noContent } from "../reply.ts";
import {
  body,
  id,
  nothing,
  organizationRoute,
  query,
  type OrganizationCall,
  type Reply,
  type Route,
  type Schema,
} from "../route.ts";
import {
  createServiceToken,
  NewServiceToken,
  revokeServiceToken,
  ServiceToken,
  serviceTokenColumns,
  serviceTokenOf,
  ServiceTokenRequest,
} from "../service-tokens.ts";
import type { Services } from "../services.ts";
import { numberOf, type Params, type Row } from "../store/database.ts";

const Role = v.picklist(["member", "admin", "owner"]);
const MemberRequest = v.strictObject({ email: Email, role: v.optional(Role, "member") });
const Deletion = v.strictObject({ revoke_nodes: v.optional(v.picklist(["true", "false"]), "false") });
const MemberPatch = v.strictObject({ role: Role });

export function accessRoutes(services: Services): Route[] {
  return [
    ...memberRoutes(services),
    ...registrationTokenRoutes(services),
    ...serviceTokenRoutes(services),
    ...groupRoutes(services),
  ];
}

const by = (call: OrganizationCall) => ({ role: call.org.role, actor: actorOf(call) });
const maker = (call: OrganizationCall) => ({
  userId: call.caller.kind === "person" ? call.caller.userId : null,
  actor: actorOf(call),
});

type Listed = {
  table: string;
  columns: string;
  /** Beyond the organization: `AND …` with $1 the organization and $2 the search pattern. */
  where: string;
  toItem(row: Row): unknown;
};

/** Lists the rows of one table of an organization, ordered by id. */
async function list(
  { db, publicUrl }: Services,
  call: OrganizationCall,
  of: Listed,
  input: ListQuery,
): Promise<Reply> {
  const from = `FROM ${of.table} WHERE org_id = $1 ${of.where}`;
  const params: Params = [call.org.id, searchPattern(input)];
  const { limit, offset } = pageOf(input);
  const rows = await db.all(`SELECT ${of.columns} ${from} ORDER BY id LIMIT $3 OFFSET $4`, [
    ...params,
    limit,
    offset,
  ]);
  const total = await db.get(`SELECT count(*) AS total ${from}`, params);
  const { pathname } = new URL(call.request.url);
  return listReply(rows.map(of.toItem), numberOf(total ?? {}, "total"), publicUrl + pathname, input);
}

function memberRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "memberships",
    columns: memberColumns,
    where: "AND email LIKE $2 ESCAPE '!'",
    toItem: memberOf,
  };
  const common = { people: true } as const;
  return [
    organizationRoute({
      ...common,
      method: "GET",
      path: "members/",
      access: "member",
      name: "members_list",
      summary: "Members and open invitations",
      takes: query(ListQuery),
      answers: { 200: { description: "Members", schema: v.array(Member) } },
      handle: (call, input) => list(services, call, listed, input),
    }),
    organizationRoute({
      ...common,
      method: "POST",
      path: "members/",
      access: "admin",
      name: "members_create",
      summary: "Add an account that the operator made, or invite an address (answered with a link)",
      takes: body(MemberRequest),
      answers: { 201: { description: "The member, or the invitation with its link", schema: NewMember } },
      errors: ["conflict"],
      async handle(call, input) {
        if (input.role === "owner" && call.org.role !== "owner") {
          throw new AppError("permission_denied", "Only an owner appoints an owner.");
        }
        return created(await addMember(services, call.org, input, actorOf(call)));
      },
    }),
    organizationRoute({
      ...common,
      method: "GET",
      path: `members/${id}/`,
      access: "member",
      name: "members_retrieve",
      summary: "One member",
      takes: nothing,
      answers: { 200: { description: "The member", schema: Member } },
      handle: async (call) => ({ body: await findMember(services.db, call.org, call.id()) }),
    }),
    organizationRoute({
      ...common,
      method: "PATCH",
      path: `members/${id}/`,
      access: "admin",
      name: "members_partial_update",
      summary: "Change a member's role",
      takes: body(MemberPatch),
      answers: { 200: { description: "The member", schema: Member } },
      errors: ["conflict"],
      handle: async (call, { role }) => ({
        body: await changeRole(services, call.org, call.id(), role, by(call)),
      }),
    }),
    organizationRoute({
      ...common,
      method: "DELETE",
      path: `members/${id}/`,
      access: "admin",
      name: "members_destroy",
      summary: "Remove a member; nodes that they registered stay, unless ?revoke_nodes=true",
      takes: query(Deletion),
      answers: { 204: { description: "Removed" } },
      errors: ["conflict"],
      async handle(call, { revoke_nodes }) {
        const userId = await userOfMember(services.db, call.org, call.id());
        const nodes =
          revoke_nodes === "true" && userId !== undefined
            ? await nodesOfMember(services, call.org, userId)
            : [];
        const { email } = await removeMember(services, call.org, call.id(), by(call));
        await revokeNodes(services, call.org, nodes, actorOf(call), `${email} was removed`);
        return noContent;
      },
    }),
  ];
}

function registrationTokenRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "registration_tokens",
    columns: registrationTokenColumns,
    where: "AND revoked_at IS NULL AND lower(coalesce(name, '')) LIKE $2 ESCAPE '!'",
    toItem: registrationTokenOf,
  };
  return tokenRoutes({
    services,
    listed,
    path: "registration_tokens/",
    what: "registration token",
    item: RegistrationToken,
    creation: organizationRoute({
      people: true,
      method: "POST",
      path: "registration_tokens/",
      access: "admin",
      name: "registration_tokens_create",
      summary: "Make a token with which machines register; shown once, with the line to paste",
      takes: body(RegistrationTokenRequest),
      answers: { 201: { description: "The token", schema: NewRegistrationToken } },
      handle: async (call, input) =>
        created(await createRegistrationToken(services, call.org, input, maker(call))),
    }),
    revoke: (call) => revokeRegistrationToken(services, call.org, call.id(), actorOf(call)),
    nodesOf: (call) => nodesOfToken(services, call.org, call.id()),
  });
}

function serviceTokenRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "service_tokens",
    columns: serviceTokenColumns,
    where: "AND revoked_at IS NULL AND lower(name) LIKE $2 ESCAPE '!'",
    toItem: serviceTokenOf,
  };
  return tokenRoutes({
    services,
    listed,
    path: "service_tokens/",
    what: "service token",
    item: ServiceToken,
    creation: organizationRoute({
      people: true,
      method: "POST",
      path: "service_tokens/",
      access: "admin",
      name: "service_tokens_create",
      summary: "Make a token for a program; shown once",
      takes: body(ServiceTokenRequest),
      answers: { 201: { description: "The token", schema: NewServiceToken } },
      handle: async (call, input) =>
        created(await createServiceToken(services, call.org, input, maker(call))),
    }),
    revoke: (call) => revokeServiceToken(services, call.org, call.id(), actorOf(call)),
    nodesOf: async () => [],
  });
}

type TokenKind = {
  services: Services;
  listed: Listed;
  path: string;
  what: string;
  item: Schema;
  creation: Route;
  revoke(call: OrganizationCall): Promise<void>;
  nodesOf(call: OrganizationCall): Promise<number[]>;
};

/** What both kinds of token have in common: list, look at one, revoke. */
function tokenRoutes({ services, listed, path, what, item, creation, revoke, nodesOf }: TokenKind): Route[] {
  const name = path.replace("/", "");
  return [
    organizationRoute({
      people: true,
      method: "GET",
      path,
      access: "admin",
      name: `${name}_list`,
      summary: `The organization's ${what}s, without the secrets`,
      takes: query(ListQuery),
      answers: { 200: { description: `${what}s`, schema: v.array(item) } },
      handle: (call, input) => list(services, call, listed, input),
    }),
    creation,
    organizationRoute({
      people: true,
      method: "GET",
      path: `${path}${id}/`,
      access: "admin",
      name: `${name}_retrieve`,
      summary: `One ${what}, without the secret`,
      takes: nothing,
      answers: { 200: { description: `The ${what}`, schema: item } },
      async handle(call) {
        const row = await services.db.get(
          `SELECT ${listed.columns} FROM ${listed.table} WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL`,
          [call.id(), call.org.id],
        );
        if (row === undefined) throw new AppError("not_found", "There is no such token.");
        return { body: listed.toItem(row) };
      },
    }),
    organizationRoute({
      people: true,
      method: "DELETE",
      path: `${path}${id}/`,
      access: "admin",
      name: `${name}_destroy`,
      summary: `Revoke a ${what}; it touches no node, unless ?revoke_nodes=true`,
      takes: query(Deletion),
      answers: { 204: { description: "Revoked" } },
      async handle(call, { revoke_nodes }) {
        const nodes = revoke_nodes === "true" ? await nodesOf(call) : [];
        await revoke(call);
        await revokeNodes(services, call.org, nodes, actorOf(call), "its registration token was revoked");
        return noContent;
      },
    }),
  ];
}

function groupRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "node_groups",
    columns: groupColumns,
    where: "AND lower(name) LIKE $2 ESCAPE '!'",
    toItem: groupOf,
  };
  const path = "groups/:name/";
  return [
    organizationRoute({
      method: "GET",
      path: "groups/",
      access: "member",
      name: "groups_list",
      summary: "Groups of nodes",
      takes: query(ListQuery),
      answers: { 200: { description: "Groups", schema: v.array(Group) } },
      handle: (call, input) => list(services, call, listed, input),
    }),
    organizationRoute({
      method: "POST",
      path: "groups/",
      access: "admin",
      name: "groups_create",
      summary: "Make a group",
      takes: body(GroupRequest),
      answers: { 201: { description: "The group", schema: Group } },
      errors: ["name_taken"],
      handle: async (call, input) => created(await createGroup(services, call.org, input, actorOf(call))),
    }),
    organizationRoute({
      method: "GET",
      path,
      access: "member",
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
      name: "groups_partial_update",
      summary: "Change a group's description",
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
      name: "groups_destroy",
      summary: "Delete a group that no node and no rule needs",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      errors: ["conflict"],
      async handle(call) {
        await deleteGroup(services, call.org, call.param("name"), actorOf(call));
        return noContent;
      },
    }),
  ];
}
