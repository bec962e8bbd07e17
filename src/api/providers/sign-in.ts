// Sign-in by providers of identities (OpenID Connect), and the identities of the signed-in user.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { endpoint } from "../endpoint.ts";
import { FactorAddition } from "../factors/factors.ts";
import { Text, Time } from "../values.ts";

/** The start page of the console. */
export const consoleRoot = "/console/";
const BeginRequest = v.strictObject({
  provider: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** The page of the console that opens afterwards. */
  return_to: v.optional(foreignText(2000), consoleRoot),
});
const BeginAnswer = v.object({ url: v.pipe(Text, v.description("Where the browser goes now")) });
const beginAnswer = {
  description: "The address of the provider's page",
  schema: BeginAnswer,
  headers: { "Set-Cookie": "The secrets of this sign-in, sealed: only this browser can finish it" },
};
const ListedProvider = v.object({ id: v.number(), name: Text });
const ProvidersQuery = v.strictObject({
  organization: v.optional(foreignText(63)),
  domain: v.optional(v.pipe(foreignText(253), v.toLowerCase())),
});

const Identity = v.object({
  id: v.number(),
  provider: Text,
  /** The e-mail address of the last sign-in. */
  email: v.nullable(Text),
  groups: v.array(Text),
  created_at: Time,
  last_used_at: v.nullable(Time),
});

export const providerSignInApi = {
  list: endpoint({
    name: "session_providers_list",
    method: "GET",
    path: "/api/session/providers/",
    access: "public",
    summary:
      "The providers of identities by which users sign in; with `organization` or `domain` also those of that organization, or of organizations that verified the domain",
    query: ProvidersQuery,
    answers: { 200: { description: "Providers", schema: v.array(ListedProvider) } },
  }),
  begin: endpoint({
    name: "session_oidc_create",
    method: "POST",
    path: "/api/session/oidc/",
    access: "public",
    fresh: false,
    summary: "Begin a sign-in by a provider of identities (OpenID Connect), for pages of this control plane",
    body: BeginRequest,
    answers: { 200: beginAnswer },
    errors: [
      "cross_site",
      "tls_required",
      "conflict",
      "not_found",
      "provider_unavailable",
      "untrusted_answer",
    ],
  }),
  callback: endpoint({
    name: "session_oidc_callback",
    method: "GET",
    path: "/api/session/oidc/{id}/callback/",
    access: "public",
    summary:
      "Where a provider of identities leads the browser back to. Only the browser that began can use it, once",
    answers: {
      303: {
        description: "Signed in, or `refused` in the query of the address has the error's code",
        headers: { Location: "A page of the console", "Set-Cookie": "The session" },
      },
    },
  }),
};

export const identitiesApi = {
  list: endpoint({
    name: "user_identities_list",
    method: "GET",
    path: "/api/user/identities/",
    access: "person",
    summary: "The user's identities at providers",
    answers: { 200: { description: "Identities", schema: v.array(Identity) } },
  }),
  link: endpoint({
    name: "user_identities_create",
    method: "POST",
    path: "/api/user/identities/",
    access: "person",
    fresh: true,
    summary: "Begin to link an identity: the browser goes to the provider, and comes back with it",
    body: v.strictObject({ ...BeginRequest.entries, ...FactorAddition.entries }),
    answers: { 200: beginAnswer },
    errors: [
      "conflict",
      "invalid_credentials",
      "not_found",
      "provider_unavailable",
      "tls_required",
      "untrusted_answer",
    ],
  }),
  unlink: endpoint({
    name: "user_identities_destroy",
    method: "DELETE",
    path: "/api/user/identities/{id}/",
    access: "person",
    fresh: true,
    summary: "Unlink an identity. Sessions that began with it end, and the roles and groups that it gave",
    answers: { 204: { description: "Unlinked" } },
    errors: ["conflict"],
  }),
};
