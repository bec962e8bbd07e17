// Second factors of the signed-in user: authenticator app, recovery codes, passkeys (WebAuthn), fresh proofs; sign-in with a
// passkey; and the rule that staff need a second factor.

import * as v from "valibot";
import { foreignText, label } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { sessionStarted } from "./sessions.ts";
import { Password } from "./users.ts";
import { maxCodeLength, Text, Time } from "./values.ts";

/** How long a proof of a second factor counts as fresh. */
export const freshMinutes = 10;

const Code = v.strictObject({ otp: v.pipe(foreignText(maxCodeLength), v.minLength(1)) });
export const FirstFactor = v.strictObject({
  /** Needed for the first second factor: a stolen session alone must not add one. */
  current_password: v.optional(Password),
});

const Factors = v.object({
  totp: v.boolean(),
  passkeys: v.number(),
  recovery_codes_left: v.number(),
  /** An organization of the user requires a second factor, or the rule for staff does. */
  is_required: v.boolean(),
});
export type Factors = v.InferOutput<typeof Factors>;
const NewTotp = v.object({ secret: Text, otpauth_url: Text });
const RecoveryCodes = v.object({ recovery_codes: v.array(Text) });

export const factorsApi = {
  retrieve: endpoint({
    name: "user_factors_retrieve",
    method: "GET",
    path: "/api/user/factors/",
    access: "person",
    summary: "The user's second factors, and whether one is required",
    answers: { 200: { description: "Second factors", schema: Factors } },
  }),
  prove: endpoint({
    name: "user_step_up_create",
    method: "POST",
    path: "/api/user/step_up/",
    access: "person",
    fresh: false,
    summary: `Prove a second factor again. For ${freshMinutes} minutes it counts as fresh, in this sign-in alone`,
    body: Code,
    answers: { 204: { description: "Proven" } },
    errors: ["invalid_code", "second_factor_missing"],
  }),
  createCodes: endpoint({
    name: "user_recovery_codes_create",
    method: "POST",
    path: "/api/user/recovery_codes/",
    access: "person",
    fresh: true,
    summary: "New recovery codes, shown once. The former ones stop working",
    answers: { 201: { description: "The codes", schema: RecoveryCodes } },
    errors: ["conflict"],
  }),
};

/** The authenticator app. */
export const totpApi = {
  create: endpoint({
    name: "user_totp_create",
    method: "POST",
    path: "/api/user/totp/",
    access: "person",
    fresh: true,
    summary: "A secret for an authenticator app, shown once. It counts after its first code",
    body: FirstFactor,
    answers: { 201: { description: "The secret", schema: NewTotp } },
    errors: ["invalid_credentials"],
  }),
  confirm: endpoint({
    name: "user_totp_confirm_create",
    method: "POST",
    path: "/api/user/totp/confirm/",
    access: "person",
    fresh: false,
    summary: "Confirm the app by its first code. Recovery codes follow with the first second factor",
    body: Code,
    answers: {
      200: { description: "Recovery codes, shown once; none if there are some", schema: RecoveryCodes },
    },
    errors: ["invalid_code", "not_found"],
  }),
  delete: endpoint({
    name: "user_totp_destroy",
    method: "DELETE",
    path: "/api/user/totp/",
    access: "person",
    fresh: true,
    summary: "Remove the authenticator app",
    answers: { 204: { description: "Removed" } },
    errors: ["not_found", "conflict"],
  }),
};

const SignInRules = v.object({ staff_second_factor: v.boolean() });
const rules = { 200: { description: "The rules", schema: SignInRules } } as const;

export const signInRulesApi = {
  retrieve: endpoint({
    name: "sign_in_retrieve",
    method: "GET",
    path: "/api/sign_in/",
    access: "staff",
    summary: "Rules for signing in to this control plane",
    answers: rules,
  }),
  update: endpoint({
    name: "sign_in_partial_update",
    method: "PATCH",
    path: "/api/sign_in/",
    access: "staff",
    fresh: true,
    summary: "Change the rules for signing in",
    body: v.strictObject(SignInRules.entries),
    answers: rules,
  }),
};

/** Base64url. */
const encoded = v.pipe(foreignText(32_768), v.regex(/^[\w-]+$/));
const identifiers = {
  id: v.pipe(encoded, v.maxLength(1400)),
  rawId: v.pipe(encoded, v.maxLength(1400)),
  type: v.literal("public-key"),
};
/** What `PublicKeyCredential.toJSON()` gives. Not strict: browsers add fields. */
const Registration = v.object({
  ...identifiers,
  response: v.object({
    clientDataJSON: encoded,
    attestationObject: encoded,
    transports: v.optional(
      v.pipe(v.array(v.pipe(foreignText(20), v.regex(/^[a-z-]+$/))), v.maxLength(10)),
      [],
    ),
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
 * Options of the WebAuthn standard in JSON: pages pass them to navigator.credentials, and send back what `toJSON()` gives. The
 * type has what the standard requires.
 */
const optionsOf = <T extends { challenge: string }>() => ({
  200: {
    description: "Options for navigator.credentials",
    schema: v.record(v.string(), v.unknown()) as unknown as v.GenericSchema<Record<string, unknown>, T>,
  },
});
const creationOptions = optionsOf<{
  challenge: string;
  rp: { name: string };
  user: { id: string; name: string; displayName: string };
  pubKeyCredParams: { alg: number; type: "public-key" }[];
}>();
const proofOptions = optionsOf<{ challenge: string }>();

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
    body: FirstFactor,
    answers: creationOptions,
    errors: ["invalid_credentials", "conflict"],
  }),
  create: endpoint({
    name: "user_passkeys_create",
    method: "POST",
    path: "/api/user/passkeys/",
    access: "person",
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
