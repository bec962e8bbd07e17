// Routes by which a machine joins without a key (`agent up URL`): it waits, and a signed-in user confirms it in a browser.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { created, noContent } from "../http/reply.ts";
import { always, body, id, nothing, organizationRoute, route, type Route } from "../http/route.ts";
import {
  beginEnrollment,
  confirmEnrollment,
  Enrollment,
  EnrollmentCode,
  EnrollmentRequest,
  EnrollmentState,
  findEnrollment,
  NewEnrollment,
  pollEnrollment,
  Words,
} from "../nodes/joining/enrollments.ts";
import { mustOwn } from "../nodes/node-owner.ts";
import { listDue, OwnNodeDue, proveOwner } from "../nodes/lifecycle/reauthentication.ts";
import type { Services } from "../services.ts";
import { browserOf } from "../users/sessions/browser-sessions.ts";
import { foreignText } from "../../base/text.ts";

const secret = v.pipe(foreignText(128), v.minLength(1));

export function enrollmentRoutes(services: Services): Route[] {
  return [...machineRoutes(services), ...userRoutes(services), ...ownerRoutes(services)];
}

function machineRoutes(services: Services): Route[] {
  return [
    route({
      method: "POST",
      path: "/api/enrollments/",
      access: "public",
      name: "enrollments_create",
      fresh: false,
      summary:
        "A machine without a key begins to wait for a user, who opens `verification_uri` and types four words that the machine derives from its key",
      takes: body(EnrollmentRequest),
      answers: { 201: { description: "Where the user confirms it", schema: NewEnrollment } },
      errors: ["throttled"],
      handle: async (call, input) => created(await beginEnrollment(services, input, call.address)),
    }),
    route({
      method: "POST",
      path: "/api/enrollments/poll/",
      access: "public",
      name: "enrollments_poll",
      fresh: false,
      summary:
        "Ask whether a user confirmed the machine, every `interval` seconds. Then `enrollment_token` is a registration token of `organization`, for the same keys and name, for ten minutes",
      takes: body(v.strictObject({ enrollment_token: secret })),
      answers: { 200: { description: "The state", schema: EnrollmentState } },
      errors: ["enrollment_ended"],
      handle: async (_call, { enrollment_token }) => ({
        body: await pollEnrollment(services, enrollment_token),
      }),
    }),
  ];
}

const mustSignIn = "Only a signed-in browser confirms machines.";

function userRoutes(services: Services): Route[] {
  return [
    route({
      method: "POST",
      path: "/api/user/enrollments/find/",
      access: "person",
      name: "user_enrollments_find",
      fresh: false,
      summary: "The machine that shows this address, and the organizations that it can join",
      takes: body(v.strictObject({ request: EnrollmentCode })),
      answers: { 200: { description: "The machine", schema: Enrollment } },
      errors: ["not_found", "throttled"],
      handle: async (call, { request }) => ({
        body: await findEnrollment(services, browserOf(call, mustSignIn), request),
      }),
    }),
    organizationRoute({
      method: "POST",
      path: "enrollments/confirm/",
      access: "own",
      people: true,
      fresh: true,
      name: "enrollments_confirm",
      summary: "Let a machine join as a node of the own user, by the four words that it shows",
      takes: body(v.strictObject({ request: EnrollmentCode, words: Words })),
      answers: { 204: { description: "Confirmed: the machine goes on by itself" } },
      errors: ["not_found", "throttled", "invalid_code", "name_taken", "name_held"],
      grows: always,
      async handle(call, { request: code, words }) {
        await confirmEnrollment(
          services,
          call.org,
          browserOf(call, mustSignIn),
          { code, words },
          actorOf(call),
        );
        return noContent;
      },
    }),
  ];
}

/** Users who confirm again that their nodes are theirs. */
function ownerRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "reauthentications/",
      access: "own",
      scope: "nodes",
      name: "reauthentications_list",
      summary:
        "Nodes whose user has to confirm them by `until`, the first 1000: for administrators of all users, for members their own",
      takes: nothing,
      answers: { 200: { description: "Nodes", schema: v.array(OwnNodeDue) } },
      handle: async (call) => ({ body: await listDue(services, call.org, mustOwn(call)) }),
    }),
    organizationRoute({
      method: "POST",
      path: `nodes/${id}/reauthenticate/`,
      access: "own",
      people: true,
      fresh: true,
      name: "nodes_reauthenticate",
      summary:
        "Confirm that an own node is still one's own. Changes neither its certificate nor its configuration",
      takes: nothing,
      answers: { 204: { description: "Confirmed" } },
      errors: ["not_found"],
      async handle(call) {
        await proveOwner(services, call.org, call.id(), browserOf(call, mustSignIn).userId, actorOf(call));
        return noContent;
      },
    }),
  ];
}
