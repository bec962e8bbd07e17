// Second factors of the signed-in user: authenticator app, recovery codes, fresh proofs; and the rule that staff need a second
// factor. Passkeys are in passkeys.ts.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { endpoint } from "../endpoint.ts";
import { Password } from "../users.ts";
import { maxCodeLength, Text } from "../values.ts";

/** How long a proof of a second factor counts as fresh. */
export const freshMinutes = 10;

const Code = v.strictObject({ otp: v.pipe(foreignText(maxCodeLength), v.minLength(1)) });
/** The body of requests that add a factor, or an identity at a provider, which is a way to sign in as well. */
export const FactorAddition = v.strictObject({
  /** Needed while the user has no second factor: a stolen session alone must not add one. */
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
    body: FactorAddition,
    answers: { 201: { description: "The secret", schema: NewTotp } },
    errors: ["invalid_credentials"],
  }),
  confirm: endpoint({
    name: "user_totp_confirm_create",
    method: "POST",
    path: "/api/user/totp/confirm/",
    access: "person",
    // `create` has asked for a fresh proof, and this needs its secret.
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
