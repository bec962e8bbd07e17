// Passkeys (WebAuthn) of the signed-in user, sign-in with a passkey, and fresh proofs by one.

import * as v from "valibot";
import { foreignText, label } from "../../base/text.ts";
import { endpoint } from "../endpoint.ts";
import { sessionStarted } from "../sessions.ts";
import { Text, Time } from "../values.ts";
import { FactorAddition } from "./factors.ts";
import { listOf } from "../../protocol/values.ts";

/** Base64url. */
const encoded = v.pipe(foreignText(32_768), v.regex(/^[\w-]+$/));
/** The standard allows 1,023 bytes. */
const credentialId = v.pipe(encoded, v.maxLength(1400));
const identifiers = {
  id: credentialId,
  rawId: credentialId,
  type: v.literal("public-key"),
};
// What `PublicKeyCredential.toJSON()` gives, for a new passkey and for a proof by one. Not strict: browsers add fields.

const Registration = v.object({
  ...identifiers,
  response: v.object({
    clientDataJSON: encoded,
    attestationObject: encoded,
    transports: v.optional(listOf(v.pipe(foreignText(20), v.regex(/^[a-z-]+$/)), 10), []),
  }),
});
export type Registration = v.InferOutput<typeof Registration>;
const Assertion = v.object({
  ...identifiers,
  response: v.object({
    clientDataJSON: encoded,
    authenticatorData: encoded,
    signature: encoded,
    userHandle: v.optional(v.nullable(encoded)),
  }),
});
export type Assertion = v.InferOutput<typeof Assertion>;
const Proof = v.strictObject({ response: Assertion });

export const maxPasskeyName = 100;
const PasskeyRequest = v.strictObject({ name: label(maxPasskeyName), response: Registration });
const Passkey = v.object({
  id: v.number(),
  name: Text,
  /** False: it was made for another name of this control plane, and cannot be used. */
  is_usable: v.boolean(),
  created_at: Time,
  last_used_at: v.nullable(Time),
});
export type Passkey = v.InferOutput<typeof Passkey>;
const NewPasskey = v.object({ passkey: Passkey, recovery_codes: v.array(Text) });

/**
 * The answer with options of the WebAuthn standard in JSON: pages pass them to navigator.credentials. `T`: those that the standard
 * requires. No schema checks them, because the authenticator's library makes them and browsers read them.
 */
const optionsAnswer = <T extends { challenge: string }>() => ({
  200: {
    description: "Options for navigator.credentials",
    schema: v.record(v.string(), v.unknown()) as unknown as v.GenericSchema<Record<string, unknown>, T>,
  },
});
const creationOptions = optionsAnswer<{
  challenge: string;
  rp: { name: string };
  user: { id: string; name: string; displayName: string };
  pubKeyCredParams: { alg: number; type: "public-key" }[];
}>();
const proofOptions = optionsAnswer<{ challenge: string }>();

export const passkeysApi = {
  list: endpoint({
    name: "user_passkeys_list",
    method: "GET",
    path: "/api/user/passkeys/",
    access: "person",
    summary: "The user's passkeys",
    answers: { 200: { description: "Passkeys", schema: v.array(Passkey) } },
  }),
  options: endpoint({
    name: "user_passkeys_options",
    method: "POST",
    path: "/api/user/passkeys/options/",
    access: "person",
    fresh: true,
    summary: "Options for a new passkey",
    body: FactorAddition,
    answers: creationOptions,
    errors: ["invalid_credentials", "conflict"],
  }),
  create: endpoint({
    name: "user_passkeys_create",
    method: "POST",
    path: "/api/user/passkeys/",
    access: "person",
    // `options` has asked for a fresh proof, and this answers its challenge.
    fresh: false,
    summary: "Add a passkey. Recovery codes follow with the first second factor",
    body: PasskeyRequest,
    answers: { 201: { description: "The passkey, and recovery codes, shown once", schema: NewPasskey } },
    errors: ["invalid_credentials", "conflict"],
  }),
  delete: endpoint({
    name: "user_passkeys_destroy",
    method: "DELETE",
    path: "/api/user/passkeys/{id}/",
    access: "person",
    fresh: true,
    summary: "Remove a passkey",
    answers: { 204: { description: "Removed" } },
    errors: ["conflict"],
  }),
};

/** What a passkey proves: a sign-in, or a fresh second factor. */
export const passkeyProofsApi = {
  signInOptions: endpoint({
    name: "session_passkey_options",
    method: "POST",
    path: "/api/session/passkey/options/",
    access: "public",
    fresh: false,
    summary: "Options for signing in with a passkey",
    answers: proofOptions,
    errors: ["cross_site", "unsupported_media_type", "conflict"],
  }),
  signIn: endpoint({
    name: "session_passkey_create",
    method: "POST",
    path: "/api/session/passkey/",
    access: "public",
    fresh: false,
    summary: "Sign in with a passkey. Only for pages of this control plane",
    body: Proof,
    answers: { 201: sessionStarted },
    errors: ["invalid_credentials", "cross_site", "tls_required", "conflict"],
  }),
  proveOptions: endpoint({
    name: "user_step_up_passkey_options",
    method: "POST",
    path: "/api/user/step_up/passkey/options/",
    access: "person",
    fresh: false,
    summary: "Options for a fresh proof by a passkey",
    answers: proofOptions,
    errors: ["conflict"],
  }),
  prove: endpoint({
    name: "user_step_up_passkey_create",
    method: "POST",
    path: "/api/user/step_up/passkey/",
    access: "person",
    fresh: false,
    summary: "Prove a second factor again by a passkey. It counts as /api/user/step_up/ does",
    body: Proof,
    answers: { 204: { description: "Proven" } },
    errors: ["invalid_credentials", "conflict"],
  }),
};
