// Routes for the second factors of the signed-in user, and for the rule that staff need one.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import { noContent } from "../http/reply.ts";
import { body, nothing, route, type Call, type Route } from "../http/route.ts";
import {
  beginTotp,
  confirmTotp,
  Factors,
  factorsOf,
  makeRecoveryCodes,
  removeTotp,
} from "../users/factors/own-factors.ts";
import { requireNewSession, sessionIdOf } from "../users/sessions/browser-sessions.ts";
import { methodsOf } from "../users/factors/second-factor.ts";
import { signIn } from "../users/sign-in/sign-in.ts";
import { doStaffNeedFactor, setStaffNeedFactor, stepUp } from "../users/factors/step-up.ts";
import type { Services } from "../services.ts";
import { users } from "../store/tables/users.ts";
import { originOf, callingUser } from "./people.ts";
import { foreignText } from "../../base/text.ts";

const Code = v.strictObject({ otp: v.pipe(foreignText(64), v.minLength(1)) });
export const FirstFactor = v.strictObject({
  /** Needed for the first second factor: a stolen session alone must not add one. */
  current_password: v.optional(foreignText(1024)),
});
const NewTotp = v.object({ secret: v.string(), otpauth_url: v.string() });
const RecoveryCodes = v.object({ recovery_codes: v.array(v.string()) });
const SignInRules = v.object({ staff_second_factor: v.boolean() });

export function factorRoutes(services: Services): Route[] {
  return [...proofRoutes(services), ...totpRoutes(services), ...ruleRoutes(services)];
}

function proofRoutes(services: Services): Route[] {
  const { db } = services;
  return [
    route({
      method: "GET",
      path: "/api/user/factors/",
      access: "person",
      name: "user_factors_retrieve",
      summary: "The user's second factors, and whether one is required",
      takes: nothing,
      answers: { 200: { description: "Second factors", schema: Factors } },
      handle: async (call) => ({ body: await factorsOf(db, callingUser(call).userId) }),
    }),
    route({
      method: "POST",
      path: "/api/user/step_up/",
      access: "person",
      name: "user_step_up_create",
      fresh: false,
      summary: "Prove a second factor again. For 10 minutes it counts as fresh, in this sign-in alone",
      takes: body(Code),
      answers: { 204: { description: "Proven" } },
      errors: ["invalid_code", "second_factor_missing"],
      async handle(call, { otp }) {
        await stepUp(services, callingUser(call), otp, call.address);
        return noContent;
      },
    }),
    route({
      method: "POST",
      path: "/api/user/recovery_codes/",
      access: "person",
      fresh: true,
      name: "user_recovery_codes_create",
      summary: "New recovery codes, shown once. The former ones stop working",
      takes: nothing,
      answers: { 201: { description: "The codes", schema: RecoveryCodes } },
      errors: ["conflict"],
      async handle(call) {
        const recovery_codes = await makeRecoveryCodes(services, callingUser(call), actorOf(call));
        return { status: 201, body: { recovery_codes } };
      },
    }),
  ];
}

function totpRoutes(services: Services): Route[] {
  const path = "/api/user/totp/";
  return [
    route({
      method: "POST",
      path,
      access: "person",
      fresh: true,
      name: "user_totp_create",
      summary: "A secret for an authenticator app, shown once. It counts after its first code",
      takes: body(FirstFactor),
      answers: { 201: { description: "The secret", schema: NewTotp } },
      errors: ["invalid_credentials", "throttled"],
      async handle(call, { current_password }) {
        const caller = callingUser(call);
        await requirePasswordForFirst(services, call, current_password);
        return { status: 201, body: await beginTotp(services, caller) };
      },
    }),
    route({
      method: "POST",
      path: `${path}confirm/`,
      access: "person",
      name: "user_totp_confirm_create",
      fresh: false,
      summary: "Confirm the app by its first code. Recovery codes follow with the first second factor",
      takes: body(Code),
      answers: {
        200: { description: "Recovery codes, shown once; none if there are some", schema: RecoveryCodes },
      },
      errors: ["invalid_code", "not_found"],
      async handle(call, { otp }) {
        const recovery_codes = await confirmTotp(services, callingUser(call), otp, actorOf(call));
        return { body: { recovery_codes } };
      },
    }),
    route({
      method: "DELETE",
      path,
      access: "person",
      fresh: true,
      name: "user_totp_destroy",
      summary: "Remove the authenticator app",
      takes: nothing,
      answers: { 204: { description: "Removed" } },
      errors: ["not_found", "conflict"],
      async handle(call) {
        await removeTotp(services, callingUser(call), actorOf(call));
        return noContent;
      },
    }),
  ];
}

/**
 * Before the user gets another way to sign in: a stolen session alone must not add one. With a second factor, the route asks
 * for that instead. Users of a provider of identities have no password: they sign in again.
 */
export async function requirePasswordForFirst(
  services: Services,
  call: Call,
  password: string | undefined,
): Promise<void> {
  const { db, system } = services;
  const caller = callingUser(call);
  const { userId, email } = caller;
  if ((await methodsOf(db, userId)).length > 0) return;
  if ((await users.find(db, { id: userId }))?.passwordHash === "")
    return requireNewSession(db, sessionIdOf(caller), system.now());
  if (password === undefined)
    throw new AppError("validation_failed", "The first second factor needs your password.", {
      errors: { current_password: ["This field is required."] },
    });
  await signIn(services, { email, password }, originOf(call));
}

function ruleRoutes(services: Services): Route[] {
  const { db } = services;
  const path = "/api/sign_in/";
  const answers = { 200: { description: "The rules", schema: SignInRules } };
  return [
    route({
      method: "GET",
      path,
      access: "staff",
      name: "sign_in_retrieve",
      summary: "Rules for signing in to this control plane",
      takes: nothing,
      answers,
      handle: async () => ({ body: { staff_second_factor: await doStaffNeedFactor(db) } }),
    }),
    route({
      method: "PATCH",
      path,
      access: "staff",
      fresh: true,
      name: "sign_in_partial_update",
      summary: "Change the rules for signing in",
      takes: body(v.strictObject(SignInRules.entries)),
      answers,
      async handle(call, { staff_second_factor }) {
        await setStaffNeedFactor(services, staff_second_factor, actorOf(call));
        return { body: { staff_second_factor } };
      },
    }),
  ];
}
