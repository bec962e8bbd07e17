// Registration tokens, for machines. Their secrets are shown once.

import * as v from "valibot";
import { parseDuration } from "../../base/quantities.ts";
import { foreignText, label } from "../../base/text.ts";
import { NodeName, recordId, GroupName, wholeWithin, listOf } from "../../protocol/values.ts";
import { endpoint, hasSome, isOn } from "../endpoint.ts";
import { TokenDeletion, tokenDeleted } from "../left-access.ts";
import { ExpiresIn, ListQuery, since, Text, Time } from "../values.ts";

/** In seconds. A node that runs checks in at least once a minute. */
const Silence = v.pipe(
  foreignText(32),
  v.check((text) => parseDuration(text) !== undefined, "Enter a duration such as 90s, 10m or 1h."),
  v.transform((text) => parseDuration(text) ?? 0),
  v.minValue(60, "At least 60s."),
  v.maxValue(7 * 86_400, "At most 7d."),
);

/** How long a registration token is valid, unless the caller says otherwise. */
export const usualTokenLife = "24h";
/**
 * A join key with a longer life is refused on a command line, where other users of the machine can read it. The console shows
 * keys in such lines, so its form starts with this life.
 */
export const longestLifeOnCommandLine = "1h";
export const longestLifeOnCommandLineS = parseDuration(longestLifeOnCommandLine) ?? 0;

const onlyEphemeral = "Only for ephemeral nodes: set ephemeral to true.";

export const RegistrationTokenRequest = v.pipe(
  v.strictObject({
    name: v.optional(label(100)),
    uses: v.optional(wholeWithin(1, 1_000_000), 1),
    expires_in: v.optional(ExpiresIn, usualTokenLife),
    groups: v.optional(listOf(GroupName, 64), []),
    is_lighthouse: v.optional(v.boolean(), false),
    /** Binds the token to this pending node, by id or by name. A missing node of this name is created. */
    node_id: v.optional(recordId),
    node_name: v.optional(NodeName),
    /** Its nodes end when they stop, or after `silence`. */
    ephemeral: v.optional(v.boolean()),
    silence: v.optional(Silence),
    /** Peers get the names of its nodes, although these are ephemeral. */
    names: v.optional(v.boolean()),
    /** Its nodes need no approval, unless the organization approves all. */
    approved: v.optional(v.boolean()),
  }),
  v.forward(
    v.check(
      ({ ephemeral, is_lighthouse, node_id, node_name }) =>
        ephemeral !== true || (!is_lighthouse && node_id === undefined && node_name === undefined),
      "An ephemeral node cannot be a lighthouse or a relay, nor a node that was created in advance.",
    ),
    ["ephemeral"],
  ),
  v.forward(
    v.check(({ ephemeral, silence }) => ephemeral === true || silence === undefined, onlyEphemeral),
    ["silence"],
  ),
  v.forward(
    v.check(({ ephemeral, names }) => ephemeral === true || names !== true, onlyEphemeral),
    ["names"],
  ),
  v.forward(
    v.check(
      ({ node_id, node_name }) => node_id === undefined || node_name === undefined,
      "Give node_id or node_name, not both.",
    ),
    ["node_name"],
  ),
);
export type RegistrationTokenRequest = v.InferOutput<typeof RegistrationTokenRequest>;

export const RegistrationToken = v.object({
  id: v.number(),
  name: v.nullable(Text),
  uses: v.number(),
  used: v.number(),
  groups: v.array(Text),
  is_lighthouse: v.boolean(),
  node_id: v.nullable(v.number()),
  expires_at: Time,
  created_at: Time,
  /** The user who made it. Null: the command line of the control plane itself, or a service token. */
  created_by: since("0.2.0", v.nullable(v.number())),
  /** After how many seconds of silence its nodes end; null: they stay. */
  ephemeral_silence_s: since("0.2.0", v.nullable(v.number())),
  approved: since("0.2.0", v.boolean()),
});
export type RegistrationToken = v.InferOutput<typeof RegistrationToken>;
export const NewRegistrationToken = v.object({
  ...RegistrationToken.entries,
  token: Text,
  /** To paste on the new machine. It passes the token by standard input, never as an argument. */
  command: Text,
  /** The same in one string, for `agent up`. */
  join_key: since("0.2.0", Text),
});
export type NewRegistrationToken = v.InferOutput<typeof NewRegistrationToken>;

export const registrationTokensApi = {
  list: endpoint({
    name: "registration_tokens_list",
    method: "GET",
    path: "/api/org/{slug}/registration_tokens/",
    access: "admin",
    usersOnly: true,
    summary: "The organization's registration tokens, without the secrets",
    query: ListQuery,
    answers: { 200: { description: "registration tokens", schema: v.array(RegistrationToken) } },
  }),
  create: endpoint({
    name: "registration_tokens_create",
    method: "POST",
    path: "/api/org/{slug}/registration_tokens/",
    access: "admin",
    usersOnly: true,
    summary: "Create a token for registering machines. It is shown once, with the command line to paste",
    grows: true,
    // Machines with the token get its rights at once: so the fields that give rights need a fresh second factor, as an approval or a
    // change of a node's groups does. The others (false) need none.
    fresh: {
      groups: hasSome,
      is_lighthouse: isOn,
      node_id: true,
      approved: isOn,
      name: false,
      // The handler checks, if there is such a node.
      node_name: false,
      uses: false,
      expires_in: false,
      ephemeral: false,
      silence: false,
      names: false,
    },
    body: RegistrationTokenRequest,
    answers: { 201: { description: "The token", schema: NewRegistrationToken } },
    errors: ["network_full"],
  }),
  retrieve: endpoint({
    name: "registration_tokens_retrieve",
    method: "GET",
    path: "/api/org/{slug}/registration_tokens/{id}/",
    access: "admin",
    usersOnly: true,
    summary: "One registration token, without the secret",
    answers: { 200: { description: "The registration token", schema: RegistrationToken } },
  }),
  revoke: endpoint({
    name: "registration_tokens_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/registration_tokens/{id}/",
    access: "admin",
    usersOnly: true,
    summary:
      "Revoke a registration token. Its nodes and webhooks stay, unless ?revoke_nodes=true and ?revoke_webhooks=true",
    fresh: { revoke_nodes: isOn, revoke_webhooks: isOn, report: false },
    query: TokenDeletion,
    answers: tokenDeleted,
  }),
};
