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

export function registrationRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "registrations/",
      access: "admin",
      scope: "nodes",
      name: "registrations_list",
      summary: "Machines that wait for approval",
      takes: query(ListQuery),
      answers: { 200: { description: "Registrations", schema: v.array(RegistrationItem) } },
      handle: (call, input) =>
        listRows(
          services,
          call,
          {
            table: "registration_requests",
            columns: registrationRequests.select(),
            where: `${answerable(services.system.now())} AND name LIKE $2 ESCAPE '!'`,
            bytes: "octet_length(groups)",
            toItem: registrationItemOf,
          },
          input,
        ),
    }),
    answerRoute(services, "approve", "approved"),
    answerRoute(services, "refuse", "refused"),
  ];
}

function answerRoute(services: Services, verb: "approve" | "refuse", state: "approved" | "refused"): Route {
  const what = {
    approve:
      "Approve a machine with what the list shows of it. A machine that asks for something else waits again",
    refuse: "Refuse a machine. The use of its token is free again",
  };
  return organizationRoute({
    people: true,
    method: "POST",
    path: `registrations/${id}/${verb}/`,
    access: "admin",
    fresh: true,
    name: `registrations_${verb}`,
    summary: what[verb],
    takes: body(v.strictObject({})),
    answers: { 204: { description: `It is ${state}` } },
    errors: ["not_found", "conflict"],
    async handle(call) {
      await answerRequest(services, call.org, call.id(), state, actorOf(call));
      return noContent;
    },
  });
}
