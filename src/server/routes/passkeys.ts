// Routes for passkeys: those of the signed-in user, sign-in with one, and a fresh proof by one. The options are those of the
// WebAuthn standard in JSON: pages pass them to navigator.credentials, and send back what `toJSON()` gives.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import { created, noContent } from "../http/reply.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import { countTokenGuess } from "../http/throttle.ts";
import { body, id, nothing, route, type Call, type Route } from "../http/route.ts";
import {
  addPasskey,
  Assertion,
  assertionOptions,
  listPasskeys,
  Passkey,
  PasskeyName,
  proveAssertion,
  Registration,
  registrationOptions,
  removePasskey,
} from "../users/factors/passkeys.ts";
import { markProven, placeOf } from "../users/factors/step-up.ts";
import { userById } from "../users/users.ts";
import type { Services } from "../services.ts";
import { Started, startedReply } from "./browser-sessions.ts";
import { requirePasswordForFirst, FirstFactor } from "./factors.ts";
import { callingUser } from "./people.ts";

const Options = v.record(v.string(), v.unknown());
const options = { 200: { description: "Options for navigator.credentials", schema: Options } };
const Proof = v.strictObject({ response: Assertion });
const NewPasskey = v.object({ passkey: Passkey, recovery_codes: v.array(v.string()) });
const own = "/api/user/passkeys/";
const signingIn = "/api/session/passkey/";
const steppingUp = "/api/user/step_up/passkey/";

export function passkeyRoutes(services: Services): Route[] {
  return [...ownPasskeys(services), ...signInRoutes(services), ...stepUpRoutes(services)];
}

function ownPasskeys(services: Services): Route[] {
  return [
    route({
      method: "GET",
      path: own,
      access: "person",
      name: "user_passkeys_list",
      summary: "The user's passkeys",
      takes: nothing,
      answers: { 200: { description: "Passkeys", schema: v.array(Passkey) } },
      handle: async (call) => ({ body: await listPasskeys(services, callingUser(call).userId) }),
    }),
    route({
      method: "POST",
      path: `${own}options/`,
      access: "person",
      fresh: true,
      name: "user_passkeys_options",
      summary: "Options for a new passkey",
      takes: body(FirstFactor),
      answers: options,
      errors: ["invalid_credentials", "conflict", "throttled"],
      async handle(call, { current_password }) {
        await requirePasswordForFirst(services, call, current_password);
        return { body: await registrationOptions(services, callingUser(call)) };
      },
    }),
    route({
      method: "POST",
      path: own,
      access: "person",
      name: "user_passkeys_create",
      fresh: false,
      summary: "Add a passkey. Recovery codes follow with the first second factor",
      takes: body(v.strictObject({ name: PasskeyName, response: Registration })),
      answers: { 201: { description: "The passkey, and recovery codes, shown once", schema: NewPasskey } },
      errors: ["invalid_credentials", "conflict"],
      async handle(call, input) {
        return created(await addPasskey(services, callingUser(call), input, actorOf(call)));
      },
    }),
    route({
      method: "DELETE",
      path: `${own}${id}/`,
      access: "person",
      fresh: true,
      name: "user_passkeys_destroy",
      summary: "Remove a passkey",
      takes: nothing,
      answers: { 204: { description: "Removed" } },
      errors: ["not_found", "conflict"],
      async handle(call) {
        await removePasskey(services, callingUser(call), call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}

function signInRoutes(services: Services): Route[] {
  const { db, publicUrl, throttle } = services;
  return [
    route({
      method: "POST",
      path: `${signingIn}options/`,
      access: "public",
      name: "session_passkey_options",
      fresh: false,
      summary: "Options for signing in with a passkey",
      takes: nothing,
      answers: options,
      errors: ["cross_site", "unsupported_media_type", "conflict"],
      async handle({ request }) {
        requireOwnPage(request, publicUrl);
        return { body: await assertionOptions(services, "sign in") };
      },
    }),
    route({
      method: "POST",
      path: signingIn,
      access: "public",
      name: "session_passkey_create",
      fresh: false,
      summary: "Sign in with a passkey. Only for pages of this control plane",
      takes: body(Proof),
      answers: { 201: Started },
      errors: ["invalid_credentials", "cross_site", "tls_required", "conflict"],
      async handle(call, { response }) {
        const { request, address } = call;
        requireOwnPage(request, publicUrl);
        requireSecurePage(request);
        const userId = await proveAssertion(services, response, "sign in").catch((error: unknown) => {
          if (error instanceof AppError && error.httpStatus === 401) countTokenGuess(throttle, address);
          throw error;
        });
        const { email, is_staff: isStaff } = await userById(db, userId);
        return startedReply(services, call, { userId, email, isStaff, factorAt: services.system.now() });
      },
    }),
  ];
}

/** A proof for one sign-in is worth nothing for another. */
function purposeOf(call: Call): string {
  const { userId, signIn } = callingUser(call);
  return `step up ${userId} ${placeOf(signIn)}`;
}

function stepUpRoutes(services: Services): Route[] {
  return [
    route({
      method: "POST",
      path: `${steppingUp}options/`,
      access: "person",
      name: "user_step_up_passkey_options",
      fresh: false,
      summary: "Options for a fresh proof by a passkey",
      takes: nothing,
      answers: options,
      errors: ["conflict"],
      handle: async (call) => ({
        body: await assertionOptions(services, purposeOf(call), callingUser(call).userId),
      }),
    }),
    route({
      method: "POST",
      path: steppingUp,
      access: "person",
      name: "user_step_up_passkey_create",
      fresh: false,
      summary: "Prove a second factor again by a passkey. It counts as /api/user/step_up/ does",
      takes: body(Proof),
      answers: { 204: { description: "Proven" } },
      errors: ["invalid_credentials", "conflict"],
      async handle(call, { response }) {
        const caller = callingUser(call);
        const proven = await proveAssertion(services, response, purposeOf(call));
        if (proven !== caller.userId)
          throw new AppError("invalid_credentials", "This is a passkey of another user.");
        const { db, system } = services;
        await db.writeFor({ user: proven }, (tx) => markProven(tx, caller, system.now()));
        return noContent;
      },
    }),
  ];
}
