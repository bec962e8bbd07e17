// Routes for phones, which have no agent: their users make site files for the Nebula app.

import { actorOf } from "../audit/record.ts";
import { always, body, id, organizationRoute, type Route } from "../http/route.ts";
import type { ErrorCode } from "../../errors.ts";
import { makePhone, NewPhone, PhoneImport, PhoneSite } from "../nodes/phones.ts";
import { RegisterWaiting } from "../../protocol/registration.ts";
import type { Services } from "../services.ts";
import { browserOf } from "./people.ts";

const mustSignIn = "Only a signed-in browser makes site files for phones.";
const errors: readonly ErrorCode[] = [
  "not_found",
  "name_taken",
  "name_held",
  "network_full",
  "too_many_certificates",
  "registration_refused",
  "too_many_waiting",
  "conflict",
  "throttled",
];
const answers = {
  201: {
    description:
      "The phone, and its site file without the private key: append `pki.key` as the last line. The same key again has the same answer",
    schema: PhoneSite,
  },
  202: {
    description:
      "An administrator has to approve the key first (`node_approval`). Repeat the same request after `retry_after` seconds",
    schema: RegisterWaiting,
  },
};

export function phoneRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "POST",
      path: "phones/",
      access: "own",
      people: true,
      fresh: true,
      name: "phones_create",
      summary:
        "Add a phone of the own user by its public key. The users who may add machines without a key may do it (`self_enrollment`); only administrators give it groups",
      takes: body(NewPhone),
      answers,
      errors,
      grows: always,
      async handle(call, input) {
        const answer = await makePhone(services, call, browserOf(call, mustSignIn), input, actorOf(call));
        return { status: "state" in answer ? 202 : 201, body: answer };
      },
    }),
    organizationRoute({
      method: "POST",
      path: `phones/${id}/import/`,
      access: "own",
      people: true,
      fresh: true,
      name: "phones_import",
      summary:
        "Import an own phone again, with another key. Name and address stay; the certificate of the former key is blocked",
      takes: body(PhoneImport),
      answers,
      errors,
      async handle(call, input) {
        const wishes = { ...input, id: call.id() };
        const answer = await makePhone(services, call, browserOf(call, mustSignIn), wishes, actorOf(call));
        return { status: "state" in answer ? 202 : 201, body: answer };
      },
    }),
  ];
}
