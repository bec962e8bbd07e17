// Machines that join without a key (`agent up URL`): they wait, and a signed-in user confirms them in a browser. And users who
// confirm again that their nodes are theirs.

import * as v from "valibot";
import { RegisterRequest } from "../protocol/registration.ts";
import { NodeName, Slug } from "../protocol/values.ts";
import { slugPattern } from "../base/slug.ts";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { MachineDescription, PrintedUrl, Text, Time, waitS, word } from "./values.ts";

const EnrollmentRequest = v.strictObject({
  name: NodeName,
  host_public_key: RegisterRequest.entries.host_public_key,
  node_csr: RegisterRequest.entries.node_csr,
  /** The organization to join. Without it, the user chooses one. */
  organization: v.optional(Slug),
  machine: MachineDescription,
  platform: RegisterRequest.entries.platform,
});
export type EnrollmentRequest = v.InferOutput<typeof EnrollmentRequest>;
const EnrollmentCode = foreignText(40);
/** The four words that the machine shows. */
const Words = foreignText(200);

// Checks, not `maxLength` and `regex`: nodes are strict with what they obey, but the OpenAPI document promises no such limits.
const Secret = v.pipe(
  v.string(),
  v.check(({ length }) => length > 0 && length <= 128),
);

export const NewEnrollment = v.object({
  /** The machine's secret: its registration token after the confirmation. */
  enrollment_token: Secret,
  verification_uri: PrintedUrl,
  expires_in: waitS(3600),
  interval: waitS(60),
});
export type NewEnrollment = v.InferOutput<typeof NewEnrollment>;

const EnrollmentState = v.object({
  state: word(["waiting", "confirmed"]),
  /** The organization of the confirmation. */
  organization: v.nullable(
    v.pipe(
      v.string(),
      v.check((text) => slugPattern.test(text)),
    ),
  ),
});
export type EnrollmentState = v.InferOutput<typeof EnrollmentState>;

export const Enrollment = v.object({
  /** The name of the new node. */
  name: Text,
  /** What the machine calls itself. */
  machine: Text,
  platform: v.nullable(Text),
  address: Text,
  /** The user signed in from the network of that address before. */
  is_known_network: v.boolean(),
  created_at: Time,
  expires_at: Time,
  /** The organizations for which the user may confirm it. */
  organizations: v.array(v.object({ slug: Text, name: Text })),
});
export type Enrollment = v.InferOutput<typeof Enrollment>;

/** A node whose user has to confirm it. */
export const NodeDue = v.object({
  node_id: v.number(),
  name: Text,
  owner_id: v.number(),
  /** The node is revoked then. */
  until: Time,
});
export type NodeDue = v.InferOutput<typeof NodeDue>;

export const enrollmentsApi = {
  create: endpoint({
    name: "enrollments_create",
    method: "POST",
    path: "/api/enrollments/",
    access: "public",
    summary:
      "A machine without a key begins to wait for a user, who opens `verification_uri` and types four words that the machine derives from its key",
    fresh: false,
    body: EnrollmentRequest,
    answers: { 201: { description: "Where the user confirms it", schema: NewEnrollment } },
  }),
  poll: endpoint({
    name: "enrollments_poll",
    method: "POST",
    path: "/api/enrollments/poll/",
    access: "public",
    summary:
      "Ask whether a user confirmed the machine, every `interval` seconds. Then `enrollment_token` is a registration token of `organization`, for the same keys and name, for ten minutes",
    fresh: false,
    body: v.strictObject({ enrollment_token: v.pipe(foreignText(128), v.minLength(1)) }),
    answers: { 200: { description: "The state", schema: EnrollmentState } },
    errors: ["enrollment_ended"],
  }),
  find: endpoint({
    name: "user_enrollments_find",
    method: "POST",
    path: "/api/user/enrollments/find/",
    access: "person",
    summary: "The machine that shows this address, and the organizations that it can join",
    fresh: false,
    body: v.strictObject({ request: EnrollmentCode }),
    answers: { 200: { description: "The machine", schema: Enrollment } },
    errors: ["not_found"],
  }),
  confirm: endpoint({
    name: "enrollments_confirm",
    method: "POST",
    path: "/api/org/{slug}/enrollments/confirm/",
    access: "own",
    usersOnly: true,
    summary: "Let a machine join as a node of the own user, by the four words that it shows",
    grows: true,
    fresh: true,
    body: v.strictObject({ request: EnrollmentCode, words: Words }),
    answers: { 204: { description: "Confirmed: the machine goes on by itself" } },
    errors: ["invalid_code", "name_taken", "name_held"],
  }),
};

export const reauthenticationsApi = {
  list: endpoint({
    name: "reauthentications_list",
    method: "GET",
    path: "/api/org/{slug}/reauthentications/",
    access: "own",
    scope: "nodes",
    summary:
      "Nodes whose user has to confirm them by `until`, the first 1000: for administrators of all users, for members their own",
    answers: { 200: { description: "Nodes", schema: v.array(NodeDue) } },
  }),
  confirm: endpoint({
    name: "nodes_reauthenticate",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/reauthenticate/",
    access: "own",
    usersOnly: true,
    summary:
      "Confirm that an own node is still one's own. Changes neither its certificate nor its configuration",
    fresh: true,
    answers: { 204: { description: "Confirmed" } },
  }),
};
