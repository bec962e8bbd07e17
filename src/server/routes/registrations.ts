// Routes for machines that wait for approval: list, approve, refuse.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { ListQuery } from "../http/lists.ts";
import { noContent } from "../http/reply.ts";
import { body, id, organizationRoute, query, type Route } from "../http/route.ts";
import {
  answerable,
  answerRequest,
  RegistrationItem,
  registrationItemOf,
} from "../nodes/registration-requests.ts";
import type { Services } from "../services.ts";
import { registrationRequests } from "../store/tables/registration-requests.ts";
import { listRows } from "./rows.ts";

const RegistrationsQuery = v.strictObject({
  ...ListQuery.entries,
  state: v.optional(v.picklist(["waiting", "approved"]), "waiting"),
});
const Refusal = v.strictObject({
  /** `approved` takes an approval back. */
  state: v.optional(v.picklist(["waiting", "approved"]), "waiting"),
});

export function registrationRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "registrations/",
      access: "admin",
      scope: "nodes",
      name: "registrations_list",
      summary:
        "Machines that wait for approval; with `state=approved` those that were approved and have not come back",
      takes: query(RegistrationsQuery),
      answers: { 200: { description: "Registrations", schema: v.array(RegistrationItem) } },
      handle: (call, input) =>
        listRows(
          services,
          call,
          {
            table: "registration_requests",
            columns: registrationRequests.select(),
            where: `${answerable(services.system.now(), input.state)} AND name LIKE $2 ESCAPE '!'`,
            bytes: "octet_length(groups)",
            toItem: registrationItemOf,
          },
          input,
        ),
    }),
    organizationRoute({
      ...answer("approve"),
      summary:
        "Approve a machine with what the list shows of it. A machine that asks for something else waits again",
      takes: body(v.strictObject({})),
      answers: { 204: { description: "It is approved" } },
      async handle(call) {
        await answerRequest(services, call.org, call.id(), { state: "approved" }, actorOf(call));
        return noContent;
      },
    }),
    organizationRoute({
      ...answer("refuse"),
      summary:
        "Refuse a machine that waits, or with `state: approved` one that was approved and has not come back. The use of its token is free again",
      takes: body(Refusal),
      answers: { 204: { description: "It is refused" } },
      async handle(call, { state: was }) {
        await answerRequest(services, call.org, call.id(), { state: "refused", was }, actorOf(call));
        return noContent;
      },
    }),
  ];
}

const answer = (verb: "approve" | "refuse") => ({
  people: true as const,
  method: "POST" as const,
  path: `registrations/${id}/${verb}/`,
  access: "admin" as const,
  fresh: true as const,
  name: `registrations_${verb}`,
  errors: ["not_found", "conflict"] as const,
});
