// Sessions: how command lines and browsers sign in and out, and the list of a user's sessions, which administrators see for
// members, and staff for all users. How a command line signs in by a browser is in command-line.ts.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { TokenPair } from "../protocol/sign-in.ts";
import { text } from "../protocol/values.ts";
import { endpoint } from "./endpoint.ts";
import { maxPasswordLength, Me } from "./users.ts";
import { ListQuery, maxCodeLength, maxEmailLength, since, Text, Time, word } from "./values.ts";

/** The session of a browser ends after this time without a use. */
export const idleMs = 12 * 3_600_000;
/** The longest session of a browser, however it is used. */
export const longestMs = 7 * 86_400_000;
/** Maximum age of a sign-in by a provider: a user who left the provider must not stay signed in here. */
export const byProviderMs = 86_400_000;
/** A command line's sign-in ends after this time, however often its tokens were refreshed. */
export const signInMs = 90 * 86_400_000;

/** Send `otp`, a code of the second factor, only after `second_factor_required`. */
export const TokenRequest = v.strictObject({
  email: text(maxEmailLength),
  password: text(maxPasswordLength),
  otp: v.optional(text(maxCodeLength)),
});
const RefreshRequest = v.strictObject({ refresh: v.pipe(foreignText(4096), v.minLength(1)) });

/** How many nodes a command line may prove to be on: a machine may be a node of many organizations. */
export const maxProvenNodes = 64;
export const ProvenNodes = v.strictObject({
  nodes: v.pipe(
    v.array(
      v.strictObject({
        organization: foreignText(40),
        node_id: v.pipe(v.number(), v.integer(), v.minValue(1)),
        /** See pki/session-proof.ts. */
        proof: v.pipe(foreignText(43), v.regex(/^[\w-]{43}$/, "Expected 43 characters of base64url.")),
      }),
    ),
    v.minLength(1),
    v.maxLength(maxProvenNodes),
  ),
});
export type ProvenNodes = v.InferOutput<typeof ProvenNodes>;

const Session = v.object({
  id: v.number(),
  kind: since("0.2.0", word(["browser", "command_line"])),
  /** What the browser, or the machine of a command line, calls itself. */
  device: Text,
  address: Text,
  created_at: Time,
  /** Of a command line: when its tokens were renewed last. */
  last_used_at: Time,
  expires_at: Time,
  /** The session of this request. */
  is_current: v.boolean(),
  /** Of a command line: nodes whose machine proved that the session is on it. When one of them is revoked, it ends. */
  nodes: since("0.2.0", v.array(v.object({ org_slug: Text, id: v.number(), name: Text }))),
});
export type Session = v.InferOutput<typeof Session>;

/** Command lines and programs sign in for a pair of tokens: one for requests, and one that renews it. */
export const tokenPairsApi = {
  create: endpoint({
    name: "token_create",
    method: "POST",
    path: "/api/token/",
    access: "public",
    // Wrong passwords count for the network that sends them: with too many it gets 429.
    guesses: true,
    fresh: false,
    summary: "Sign in with e-mail and password, and with `otp` if the answer was `second_factor_required`",
    body: TokenRequest,
    answers: {
      200: {
        description: "A pair of tokens",
        schema: TokenPair,
        headers: {
          "Set-Cookie": "By it the device is known at the next sign-in; it gives no rights, and is optional",
        },
      },
    },
    errors: ["invalid_credentials", "second_factor_required", "invalid_code"],
  }),
  refresh: endpoint({
    name: "token_refresh_create",
    method: "POST",
    path: "/api/token/refresh/",
    access: "public",
    fresh: false,
    summary: "Exchange a refresh token for a new pair. The old refresh token stops working",
    body: RefreshRequest,
    answers: { 200: { description: "A pair of tokens", schema: TokenPair } },
    errors: ["token_not_valid"],
  }),
  revoke: endpoint({
    name: "token_revoke_create",
    method: "POST",
    path: "/api/token/revoke/",
    access: "public",
    fresh: false,
    summary: "Sign out: all refresh tokens of this sign-in stop working",
    body: RefreshRequest,
    answers: { 204: { description: "Signed out" } },
    errors: ["token_not_valid"],
  }),
};

/** The answer of every sign-in with a browser. */
export const sessionStarted = {
  description: "The user, and when the session ends at the latest",
  schema: v.object({ ...Me.entries, expires_at: Time }),
  headers: { "Set-Cookie": "The session, and a cookie by which the device is known" },
} as const;

export const browserSessionApi = {
  create: endpoint({
    name: "session_create",
    method: "POST",
    path: "/api/session/",
    access: "public",
    guesses: true,
    fresh: false,
    summary:
      "Sign in with a browser. Only for pages of this control plane: `Origin` must be its own, `Sec-Fetch-Site` same-origin",
    body: TokenRequest,
    answers: { 201: sessionStarted },
    errors: ["invalid_credentials", "second_factor_required", "invalid_code", "cross_site", "tls_required"],
  }),
  delete: endpoint({
    name: "session_destroy",
    method: "DELETE",
    path: "/api/session/",
    access: "person",
    fresh: false,
    summary: "Sign this browser out",
    answers: {
      204: {
        description: "Signed out",
        headers: {
          "Set-Cookie": "Removes the session's cookie",
          "X-Sign-Out-Page?": "Where the browser signs out of the provider of identities too",
        },
      },
    },
    errors: ["not_found"],
  }),
};

const sessionList = { 200: { description: "Sessions", schema: v.array(Session) } } as const;
const signedOut = { 204: { description: "Signed out" } } as const;

export const ownSessionsApi = {
  list: endpoint({
    name: "user_sessions_list",
    method: "GET",
    path: "/api/user/sessions/",
    access: "person",
    summary: "The browsers and command lines in which the user is signed in",
    query: ListQuery,
    answers: sessionList,
  }),
  delete: endpoint({
    name: "user_sessions_destroy",
    method: "DELETE",
    path: "/api/user/sessions/{id}/",
    access: "person",
    fresh: false,
    summary: "Sign the user out of one browser or command line",
    answers: signedOut,
  }),
  proveNodes: endpoint({
    name: "user_sessions_prove_nodes",
    method: "POST",
    path: "/api/user/sessions/nodes/",
    access: "person",
    fresh: false,
    summary:
      "Prove that this session of a command line is on the machines of these nodes: it ends when one of them is revoked. `proof` is HMAC-SHA256 in base64url of `session FAMILY`, with the SHA-256 of the node's token in hex as the key; FAMILY is a claim of the access token",
    body: ProvenNodes,
    answers: { 200: { description: "How many were proven", schema: v.object({ proven: v.number() }) } },
    errors: ["conflict"],
  }),
};

export const memberSessionsApi = {
  list: endpoint({
    name: "members_sessions_list",
    method: "GET",
    path: "/api/org/{slug}/members/{id}/sessions/",
    access: "admin",
    usersOnly: true,
    summary: "The browsers and command lines in which a member is signed in",
    query: ListQuery,
    answers: sessionList,
  }),
  deleteAll: endpoint({
    name: "members_sessions_destroy_all",
    method: "DELETE",
    path: "/api/org/{slug}/members/{id}/sessions/",
    access: "admin",
    usersOnly: true,
    fresh: false,
    summary: "Sign a member out everywhere: all browsers and command lines. Only owners sign owners out",
    answers: signedOut,
  }),
  delete: endpoint({
    name: "members_sessions_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/members/{id}/sessions/{session}/",
    access: "admin",
    usersOnly: true,
    fresh: false,
    summary: "Sign a member out of one browser or command line",
    answers: signedOut,
  }),
};

/** For staff: also users who are members of no organization. */
export const userSessionsApi = {
  list: endpoint({
    name: "users_sessions_list",
    method: "GET",
    path: "/api/users/{id}/sessions/",
    access: "staff",
    summary: "The browsers and command lines in which a user is signed in",
    query: ListQuery,
    answers: sessionList,
  }),
  deleteAll: endpoint({
    name: "users_sessions_destroy_all",
    method: "DELETE",
    path: "/api/users/{id}/sessions/",
    access: "staff",
    fresh: false,
    summary: "Sign a user out everywhere: all browsers and command lines",
    answers: signedOut,
  }),
  delete: endpoint({
    name: "users_sessions_destroy",
    method: "DELETE",
    path: "/api/users/{id}/sessions/{session}/",
    access: "staff",
    fresh: false,
    summary: "Sign a user out of one browser or command line",
    answers: signedOut,
  }),
};
