// Service tokens, for programs. Their secrets are shown once.

import * as v from "valibot";
import { parseNetwork } from "../../base/ip.ts";
import { foreignText, label } from "../../base/text.ts";
import { endpoint } from "../endpoint.ts";
import { TokenDeletion, tokenDeleted } from "../left-access.ts";
import { ExpiresIn, ListQuery, since, Text, Time, word } from "../values.ts";

/** Scopes: what a service token can be allowed to do. */
export const tokenScopes = ["read", "nodes", "policy", "webhooks"] as const;

export const serviceRoles = ["member", "admin"] as const;
const SourceNetwork = v.pipe(
  foreignText(64),
  v.trim(),
  v.transform((text) => (text.includes("/") ? text : `${text}/${text.includes(":") ? 128 : 32}`)),
  v.check((text) => parseNetwork(text) !== undefined, "Enter a network such as 192.0.2.0/24."),
);
export const ServiceTokenRequest = v.strictObject({
  name: label(100),
  role: v.picklist(serviceRoles),
  /** Default: 90 days. */
  expires_in: v.optional(ExpiresIn),
  /** Default: all that the role can use. */
  scopes: v.optional(
    v.pipe(v.array(v.picklist(tokenScopes)), v.minLength(1), v.maxLength(tokenScopes.length)),
  ),
  /** The token is valid only from these. Default: everywhere. */
  networks: v.optional(v.pipe(v.array(SourceNetwork), v.minLength(1), v.maxLength(20))),
});
export type ServiceTokenRequest = v.InferOutput<typeof ServiceTokenRequest>;

export const ServiceToken = v.object({
  id: v.number(),
  name: Text,
  role: word(serviceRoles),
  expires_at: v.nullable(Time),
  /** Null: a token of an earlier release, which has all rights of its role. */
  scopes: since("0.2.0", v.nullable(v.array(Text))),
  /** Null: valid from everywhere. */
  networks: since("0.2.0", v.nullable(v.array(Text))),
  created_at: Time,
  /** The user who made it. Null: the command line of the control plane itself, or a service token. */
  created_by: since("0.2.0", v.nullable(v.number())),
  /** Exact to some minutes. Null: never, or not since the control plane records it. */
  last_used_at: since("0.2.0", v.nullable(Time)),
});
export type ServiceToken = v.InferOutput<typeof ServiceToken>;
export const NewServiceToken = v.object({ ...ServiceToken.entries, token: Text });
export type NewServiceToken = v.InferOutput<typeof NewServiceToken>;

export const serviceTokensApi = {
  list: endpoint({
    name: "service_tokens_list",
    method: "GET",
    path: "/api/org/{slug}/service_tokens/",
    access: "admin",
    usersOnly: true,
    summary: "The organization's service tokens, without the secrets",
    query: ListQuery,
    answers: { 200: { description: "service tokens", schema: v.array(ServiceToken) } },
  }),
  create: endpoint({
    name: "service_tokens_create",
    method: "POST",
    path: "/api/org/{slug}/service_tokens/",
    access: "admin",
    usersOnly: true,
    summary: "Create a token for a program. It is shown once",
    grows: true,
    fresh: true,
    body: ServiceTokenRequest,
    answers: { 201: { description: "The token", schema: NewServiceToken } },
  }),
  retrieve: endpoint({
    name: "service_tokens_retrieve",
    method: "GET",
    path: "/api/org/{slug}/service_tokens/{id}/",
    access: "admin",
    usersOnly: true,
    summary: "One service token, without the secret",
    answers: { 200: { description: "The service token", schema: ServiceToken } },
  }),
  revoke: endpoint({
    name: "service_tokens_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/service_tokens/{id}/",
    access: "admin",
    usersOnly: true,
    summary:
      "Revoke a service token. Its nodes and webhooks stay, unless ?revoke_nodes=true and ?revoke_webhooks=true",
    fresh: true,
    query: TokenDeletion,
    answers: tokenDeleted,
  }),
};
