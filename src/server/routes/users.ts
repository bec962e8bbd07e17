// Routes for the users of the control plane. For staff: members of organizations are in routes/access.ts, and the own user
// is in routes/people.ts. No route sets the password of another user: with it, staff could act as an owner of any
// organization.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { listReply } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import { created } from "../http/reply.ts";
import { body, id, nothing, query, route, type Route } from "../http/route.ts";
import { accessOf, reportOf } from "../offboarding/left-access.ts";
import { AccessReport } from "../../api/values.ts";
import { setActive } from "../offboarding/user-status.ts";
import { createUser, listUsers, NewPassword, User, userById } from "../users/users.ts";
import { Email } from "../../api/values.ts";
import type { Services } from "../services.ts";

const UserRequest = v.strictObject({
  email: Email,
  password: NewPassword,
  is_staff: v.optional(v.boolean(), false),
});
const UserPatch = v.strictObject({
  is_active: v.boolean(),
  /** When the user is disabled: also revoke these. */
  revoke_tokens: v.optional(v.boolean(), false),
  revoke_nodes: v.optional(v.boolean(), false),
});

const UserWithAccess = v.object({ ...User.entries, ...AccessReport.entries });

export function userRoutes(services: Services): Route[] {
  const { db, publicUrl, system } = services;
  const path = "/api/users/";
  const one = `${path}${id}/`;
  return [
    route({
      method: "GET",
      path,
      access: "staff",
      name: "users_list",
      summary: "All users of this control plane",
      takes: query(ListQuery),
      answers: { 200: { description: "Users", schema: v.array(User) } },
      handle: async (call, input) => listReply(call, publicUrl, await listUsers(db, input)),
    }),
    route({
      method: "POST",
      path,
      access: "staff",
      fresh: true,
      name: "users_create",
      summary: "Create a user. Organizations add the user without an invitation",
      takes: body(UserRequest),
      answers: { 201: { description: "The user", schema: User } },
      errors: ["conflict"],
      async handle(call, { email, password, is_staff: isStaff }) {
        return created(await createUser(services, { email, password, isStaff }, actorOf(call)));
      },
    }),
    route({
      method: "GET",
      path: one,
      access: "staff",
      name: "users_retrieve",
      summary: "One user, with what the user can use: nodes, tokens, webhooks",
      takes: nothing,
      answers: { 200: { description: "The user", schema: UserWithAccess } },
      errors: ["not_found"],
      async handle(call) {
        const user = await userById(db, call.id());
        const access = await accessOf(db, { kind: "person", id: user.id }, system.now());
        return { body: { ...user, ...reportOf(access) } };
      },
    }),
    route({
      method: "PATCH",
      path: one,
      access: "staff",
      fresh: true,
      name: "users_partial_update",
      summary:
        "Disable a user, which ends the sessions, or enable the user again. Tokens and nodes stay unless revoke_tokens and revoke_nodes are true; both also revoke nodes that came by these tokens; the answer lists them",
      takes: body(UserPatch),
      answers: {
        200: {
          description: "The user, with what the user can still use",
          schema: UserWithAccess,
        },
      },
      errors: ["not_found", "conflict"],
      async handle(call, { is_active: isActive, revoke_tokens, revoke_nodes }) {
        const ends = { revokeTokens: revoke_tokens, revokeNodes: revoke_nodes };
        const user = await userById(db, call.id());
        const access = await setActive(services, user.email, isActive, actorOf(call), ends);
        return { body: { ...user, is_active: isActive, ...reportOf(access) } };
      },
    }),
  ];
}
