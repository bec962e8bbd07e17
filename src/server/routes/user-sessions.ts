// Routes for the list of a user's sessions: the own ones, and for administrators those of members.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { listReply } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import { noContent } from "../http/reply.ts";
import { body, id, nothing, numbered, organizationRoute, query, route, type Route } from "../http/route.ts";
import { ProvenNodes, proveNodes } from "../users/sessions/session-nodes.ts";
import {
  endMemberSessions,
  endSession,
  listSessions,
  Session,
  userOfMember,
} from "../users/sessions/user-sessions.ts";
import type { Services } from "../services.ts";
import { callingUser } from "./people.ts";

const sessions = { 200: { description: "Sessions", schema: v.array(Session) } };
const ended = { 204: { description: "Signed out" } };

export function userSessionRoutes(services: Services): Route[] {
  return [...ownRoutes(services), ...memberRoutes(services)];
}

function ownRoutes(services: Services): Route[] {
  const path = "/api/user/sessions/";
  return [
    route({
      method: "GET",
      path,
      access: "person",
      name: "user_sessions_list",
      summary: "The browsers and command lines in which the user is signed in",
      takes: query(ListQuery),
      answers: sessions,
      async handle(call, input) {
        const { userId, signIn: current } = callingUser(call);
        return listReply(call, services.publicUrl, await listSessions(services, { userId, current }, input));
      },
    }),
    route({
      method: "DELETE",
      path: `${path}${id}/`,
      access: "person",
      name: "user_sessions_destroy",
      fresh: false,
      summary: "Sign the user out of one browser or command line",
      takes: nothing,
      answers: ended,
      errors: ["not_found"],
      async handle(call) {
        await endSession(services, callingUser(call).userId, call.id());
        return noContent;
      },
    }),
    route({
      method: "POST",
      path: `${path}nodes/`,
      access: "person",
      name: "user_sessions_prove_nodes",
      fresh: false,
      summary:
        "Prove that this session of a command line is on the machines of these nodes: it ends when one of them is revoked. `proof` is HMAC-SHA256 in base64url of `session FAMILY`, with the SHA-256 of the node's token in hex as the key; FAMILY is a claim of the access token",
      takes: body(ProvenNodes),
      answers: {
        200: { description: "How many were proven", schema: v.object({ proven: v.number() }) },
      },
      errors: ["conflict"],
      handle: async (call, input) => ({
        body: { proven: await proveNodes(services, callingUser(call), input) },
      }),
    }),
  ];
}

function memberRoutes(services: Services): Route[] {
  const path = `members/${id}/sessions/`;
  return [
    organizationRoute({
      people: true,
      method: "GET",
      path,
      access: "admin",
      name: "members_sessions_list",
      summary: "The browsers and command lines in which a member is signed in",
      takes: query(ListQuery),
      answers: sessions,
      errors: ["not_found"],
      async handle(call, input) {
        const { org, caller } = call;
        const { userId } = await userOfMember(services.db, org, call.id());
        const current = caller.kind === "person" && caller.userId === userId ? caller.signIn : undefined;
        const page = await listSessions(services, { userId, current, org }, input);
        return listReply(call, services.publicUrl, page);
      },
    }),
    organizationRoute({
      people: true,
      method: "DELETE",
      path,
      access: "admin",
      name: "members_sessions_destroy_all",
      fresh: false,
      summary: "Sign a member out everywhere: all browsers and command lines. Only owners sign owners out",
      takes: nothing,
      answers: ended,
      errors: ["not_found"],
      async handle(call) {
        await endMemberSessions(services, call.org, call.id(), { role: call.org.role, actor: actorOf(call) });
        return noContent;
      },
    }),
    organizationRoute({
      people: true,
      method: "DELETE",
      path: `${path}${numbered("session")}/`,
      access: "admin",
      name: "members_sessions_destroy",
      fresh: false,
      summary: "Sign a member out of one browser or command line",
      takes: nothing,
      answers: ended,
      errors: ["not_found"],
      async handle(call) {
        const by = { role: call.org.role, actor: actorOf(call) };
        await endMemberSessions(services, call.org, call.id(), by, call.id("session"));
        return noContent;
      },
    }),
  ];
}
