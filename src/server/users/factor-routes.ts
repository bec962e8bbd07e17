// Handlers of src/api/factors.ts.

import type {
  factorsApi,
  passkeyProofsApi,
  passkeysApi,
  signInRulesApi,
  totpApi,
} from "../../api/factors.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import { noContent } from "../http/reply.ts";
import type { Call } from "../http/route.ts";
import { countTokenGuess } from "../http/throttle.ts";
import type { Services } from "../services.ts";
import { users } from "../store/tables/users.ts";
import { beginTotp, confirmTotp, factorsOf, makeRecoveryCodes, removeTotp } from "./factors/own-factors.ts";
import {
  addPasskey,
  assertionOptions,
  listPasskeys,
  proveAssertion,
  registrationOptions,
  removePasskey,
} from "./factors/passkeys.ts";
import { methodsOf } from "./factors/second-factor.ts";
import { doStaffNeedFactor, markProven, placeOf, setStaffNeedFactor, stepUp } from "./factors/step-up.ts";
import { userById } from "./users.ts";
import { startedReply } from "./session-routes.ts";
import { callingUser, requireNewSession, sessionIdOf } from "./sessions/browser-sessions.ts";
import { originOf, signIn } from "./sign-in/sign-in.ts";

export const factorHandlers = (services: Services): Handlers<typeof factorsApi> => ({
  retrieve: async (call) => ({ body: await factorsOf(services.db, callingUser(call).userId) }),
  async prove(call, { otp }) {
    await stepUp(services, callingUser(call), otp, call.address);
    return noContent;
  },
  createCodes: async (call) => ({
    status: 201,
    body: { recovery_codes: await makeRecoveryCodes(services, callingUser(call), actorOf(call)) },
  }),
});

export const totpHandlers = (services: Services): Handlers<typeof totpApi> => ({
  async create(call, { current_password }) {
    const caller = callingUser(call);
    await requirePasswordForFirst(services, call, current_password);
    return { status: 201, body: await beginTotp(services, caller) };
  },
  confirm: async (call, { otp }) => ({
    body: { recovery_codes: await confirmTotp(services, callingUser(call), otp, actorOf(call)) },
  }),
  async delete(call) {
    await removeTotp(services, callingUser(call), actorOf(call));
    return noContent;
  },
});

/**
 * Before the user gets another way to sign in: a stolen session alone must not add one. With a second factor, the route asks
 * for that instead. Users of a provider of identities have no password: they sign in again.
 */
export async function requirePasswordForFirst(
  services: Services,
  call: Pick<Call, "caller" | "address" | "request">,
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

export const signInRuleHandlers = (services: Services): Handlers<typeof signInRulesApi> => ({
  retrieve: async () => ({ body: { staff_second_factor: await doStaffNeedFactor(services.db) } }),
  async update(call, { staff_second_factor }) {
    await setStaffNeedFactor(services, staff_second_factor, actorOf(call));
    return { body: { staff_second_factor } };
  },
});

export const passkeyHandlers = (services: Services): Handlers<typeof passkeysApi> => ({
  list: async (call) => ({ body: await listPasskeys(services, callingUser(call).userId) }),
  async options(call, { current_password }) {
    await requirePasswordForFirst(services, call, current_password);
    return { body: await registrationOptions(services, callingUser(call)) };
  },
  create: async (call, input) => ({
    status: 201,
    body: await addPasskey(services, callingUser(call), input, actorOf(call)),
  }),
  async delete(call) {
    await removePasskey(services, callingUser(call), call.id(), actorOf(call));
    return noContent;
  },
});

/** A proof for one sign-in is worth nothing for another. */
function purposeOf(call: Pick<Call, "caller">): string {
  const { userId, signIn } = callingUser(call);
  return `step up ${userId} ${placeOf(signIn)}`;
}

export const passkeyProofHandlers = (services: Services): Handlers<typeof passkeyProofsApi> => ({
  async signInOptions({ request }) {
    requireOwnPage(request, services.publicUrl);
    return { body: await assertionOptions(services, "sign in") };
  },
  async signIn(call, { response }) {
    const { request, address } = call;
    requireOwnPage(request, services.publicUrl);
    requireSecurePage(request);
    const userId = await proveAssertion(services, response, "sign in").catch((error: unknown) => {
      if (error instanceof AppError && error.httpStatus === 401) countTokenGuess(services.throttle, address);
      throw error;
    });
    const { email, is_staff: isStaff } = await userById(services.db, userId);
    return startedReply(services, call, { userId, email, isStaff, factorAt: services.system.now() });
  },
  proveOptions: async (call) => ({
    body: await assertionOptions(services, purposeOf(call), callingUser(call).userId),
  }),
  async prove(call, { response }) {
    const caller = callingUser(call);
    const proven = await proveAssertion(services, response, purposeOf(call));
    if (proven !== caller.userId)
      throw new AppError("invalid_credentials", "This is a passkey of another user.");
    const { db, system } = services;
    await db.writeFor({ user: proven }, (tx) => markProven(tx, caller, system.now()));
    return noContent;
  },
});
