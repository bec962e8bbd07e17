// Phones, which have no agent: their users make site files for the Nebula app.

import * as v from "valibot";
import type { ErrorCode } from "../base/errors.ts";
import { Node } from "../protocol/node.ts";
import { RegisterRequest, RegisterWaiting } from "../protocol/registration.ts";
import { NodeName } from "../protocol/values.ts";
import { endpoint } from "./endpoint.ts";
import { NodeRequest } from "./nodes.ts";
import { Text } from "./values.ts";

const key = {
  system: v.picklist(["android", "ios"]),
  host_public_key: RegisterRequest.entries.host_public_key,
};
/** `groups`: from administrators only. */
const NewPhone = v.strictObject({ ...key, name: NodeName, groups: NodeRequest.entries.groups });
export type NewPhone = v.InferOutput<typeof NewPhone>;
const PhoneImport = v.strictObject(key);
export type PhoneImport = v.InferOutput<typeof PhoneImport>;
export const PhoneSite = v.object({
  node: Node,
  /** YAML, whose last section is `pki`. The browser appends `pki.key`. */
  site: Text,
});
export type PhoneSite = v.InferOutput<typeof PhoneSite>;

const errors: readonly ErrorCode[] = [
  "name_taken",
  "name_held",
  "network_full",
  "too_many_certificates",
  "registration_refused",
  "too_many_waiting",
  "conflict",
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

export const phonesApi = {
  create: endpoint({
    name: "phones_create",
    method: "POST",
    path: "/api/org/{slug}/phones/",
    access: "own",
    usersOnly: true,
    summary:
      "Add a phone of the own user by its public key. The users who may add machines without a key may do it (`self_enrollment`); only administrators give it groups",
    grows: true,
    fresh: true,
    body: NewPhone,
    answers,
    errors,
  }),
  import: endpoint({
    name: "phones_import",
    method: "POST",
    path: "/api/org/{slug}/phones/{id}/import/",
    access: "own",
    usersOnly: true,
    summary:
      "Import an own phone again, with another key. Name and address stay; the certificate of the former key is blocked",
    fresh: true,
    body: PhoneImport,
    answers,
    errors,
  }),
};
