// Routes by which machines register, and for those that wait for approval: list, approve, refuse.

import * as v from "valibot";
import { RegisterAnswer, RegisterRequest, RegisterWaiting } from "../../protocol/registration.ts";
import { actorOf } from "../audit/record.ts";
import { ListQuery } from "../../api/values.ts";
import { noContent } from "../http/reply.ts";
import { body, id, organizationRoute, query, type Route } from "../http/route.ts";
import { isOn } from "../../api/endpoint.ts";
import { register } from "../nodes/register.ts";
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
    registerRoute(services),
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

function registerRoute(services: Services): Route {
  return organizationRoute({
    method: "POST",
    path: "nodes/register/",
    access: "register",
    scope: "nodes",
    name: "nodes_register",
    fresh: {
      is_lighthouse: isOn,
      is_relay: isOn,
      name: false,
      host_public_key: false,
      node_csr: false,
      ip_address: false,
      mode: false,
      public_ip: false,
      external_port: false,
      listen_port: false,
      platform: false,
      version: false,
      overlay_version: false,
      registration_token: false,
    },
    summary: "Register a machine with its public keys",
    takes: body(RegisterRequest),
    answers: {
      201: {
        description:
          "The node, its token (shown once) and its files. The same keys with the same token resume an interrupted registration: the answer has the current certificates and a new node token, and the registration token is not used again. A registration can be resumed until ten minutes after the token's expiry, ten times an hour for each node.",
        schema: RegisterAnswer,
      },
      202: {
        description:
          "An administrator has to approve the machine first (`node_approval`). Repeat the same request after `retry_after` seconds. A use of the token is held meanwhile, for at most 7 days",
        schema: RegisterWaiting,
      },
    },
    errors: [
      "token_not_valid",
      "token_scope",
      "node_revoked",
      "name_taken",
      "name_held",
      "address_taken",
      "network_full",
      "too_many_certificates",
      "organization_full",
      "registration_refused",
      "too_many_waiting",
      "conflict",
      "throttled",
    ],
    async handle(call, input) {
      const answer = await register(services, call, input);
      return { status: "state" in answer ? 202 : 201, body: answer };
    },
  });
}
