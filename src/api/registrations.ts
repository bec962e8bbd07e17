// Registration: machines send their public keys, and administrators approve or refuse those that have to wait.

import * as v from "valibot";
import { RegisterAnswer, RegisterRequest, RegisterWaiting } from "../protocol/registration.ts";
import { endpoint, isOn } from "./endpoint.ts";
import { ListQuery, since, Text, Time } from "./values.ts";

const registrationStates = ["waiting", "approved"] as const;
/** A machine that waits for approval, or was approved and has not completed its registration. */
export const Registration = v.object({
  id: v.number(),
  name: Text,
  /** SHA-256 of the node's public key, in hex. The machine shows its beginning. */
  key_sha256: Text,
  groups: v.array(Text),
  is_lighthouse: v.boolean(),
  is_relay: v.boolean(),
  /** The user whose node it becomes; null: the organization's. */
  owner_id: v.nullable(v.number()),
  registration_token_id: v.nullable(v.number()),
  platform: v.nullable(Text),
  version: v.nullable(Text),
  seen_from: Text,
  created_at: Time,
  /** Null while it waits. */
  approved_at: v.nullable(Time),
  /**
   * When its machine repeated the request last, to about a minute. Null: unknown. A machine that stopped asking may come back. A
   * phone whose page was closed has lost its key, and cannot.
   */
  last_asked_at: since("0.2.0", v.nullable(Time)),
  expires_at: Time,
});
export type Registration = v.InferOutput<typeof Registration>;

export const registrationsApi = {
  register: endpoint({
    name: "nodes_register",
    method: "POST",
    path: "/api/org/{slug}/nodes/register/",
    access: "register",
    scope: "nodes",
    summary: "Register a machine with its public keys",
    // A user needs a fresh second factor to register a lighthouse or a relay; other fields need none.
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
    body: RegisterRequest,
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
    ],
  }),
  list: endpoint({
    name: "registrations_list",
    method: "GET",
    path: "/api/org/{slug}/registrations/",
    access: "admin",
    scope: "nodes",
    summary:
      "Machines that wait for approval; with `state=approved` those that were approved and have not come back",
    query: v.strictObject({
      ...ListQuery.entries,
      state: v.optional(v.picklist(registrationStates), "waiting"),
    }),
    answers: { 200: { description: "Registrations", schema: v.array(Registration) } },
  }),
  approve: endpoint({
    name: "registrations_approve",
    method: "POST",
    path: "/api/org/{slug}/registrations/{id}/approve/",
    access: "admin",
    usersOnly: true,
    summary:
      "Approve a machine with what the list shows of it. A machine that asks for something else waits again",
    fresh: true,
    body: v.strictObject({}),
    answers: { 204: { description: "It is approved" } },
    errors: ["conflict"],
  }),
  refuse: endpoint({
    name: "registrations_refuse",
    method: "POST",
    path: "/api/org/{slug}/registrations/{id}/refuse/",
    access: "admin",
    usersOnly: true,
    summary:
      "Refuse a machine that waits, or with `state: approved` one that was approved and has not come back. The use of its token is free again",
    fresh: true,
    // `approved`: withdraws an approval.
    body: v.strictObject({ state: v.optional(v.picklist(registrationStates), "waiting") }),
    answers: { 204: { description: "It is refused" } },
    errors: ["conflict"],
  }),
};
