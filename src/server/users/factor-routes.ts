// Handlers of src/api/factors/.

import type { factorsApi, signInRulesApi, totpApi } from "../../api/factors/factors.ts";
import type { passkeyProofsApi, passkeysApi } from "../../api/factors/passkeys.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import type { Call } from "../http/route.ts";
import { countTokenGuess } from "../http/throttle.ts";
import type { Services } from "../services.ts";
import { beginTotp, confirmTotp, factorsOf, removeTotp } from "./factors/own-factors.ts";
import { makeRecoveryCodes } from "./factors/recovery-codes.ts";
import {
  addPasskey,
  assertionOptions,
  listPasskeys,
  proveAssertion,
  registrationOptions,
  removePasskey,
} from "./factors/passkeys.ts";
import { requireProofForFirstFactor } from "./factors/first-factor.ts";
import { doStaffNeedFactor, setStaffNeedFactor } from "./factors/staff-factor.ts";
import { markProven, keyOfSignIn, stepUp } from "./factors/step-up.ts";
import { userById } from "./users.ts";
import { startedReply } from "./session-routes.ts";
import { callingUser } from "./sessions/browser-sessions.ts";

export const factorHandlers = (services: Services): Handlers<typeof factorsApi> => ({
  retrieve: async (call) => ({ body: await factorsOf(services.db, callingUser(call).userId) }),
  async prove(call, { otp }) {
    await stepUp(services, callingUser(call), otp, call.address);
  },
  createCodes: async (call) => ({
    body: { recovery_codes: await makeRecoveryCodes(services, callingUser(call), actorOf(call)) },
  }),
});

export const totpHandlers = (services: Services): Handlers<typeof totpApi> => ({
  async create(call, { current_password }) {
    const caller = callingUser(call);
    await requireProofForFirstFactor(services, call, current_password);
    return { body: await beginTotp(services, caller) };
  },
  confirm: async (call, { otp }) => ({
    body: { recovery_codes: await confirmTotp(services, callingUser(call), otp, actorOf(call)) },
  }),
  async delete(call) {
    await removeTotp(services, callingUser(call), actorOf(call));
  },
});

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
    await requireProofForFirstFactor(services, call, current_password);
    return { body: await registrationOptions(services, callingUser(call)) };
  },
  create: async (call, input) => ({
    body: await addPasskey(services, callingUser(call), input, actorOf(call)),
  }),
  async delete(call) {
    await removePasskey(services, callingUser(call), call.id(), actorOf(call));
  },
});

/** The purpose of a challenge before a sign-in, when the user is not known yet. */
const signInPurpose = "sign in";

/** The purpose of a challenge to prove the factor again. It names the session, so it proves nothing for another one. */
function stepUpPurpose(call: Pick<Call, "caller">): string {
  const { userId, signIn } = callingUser(call);
  return `step up ${userId} ${keyOfSignIn(signIn)}`;
}

export const passkeyProofHandlers = (services: Services): Handlers<typeof passkeyProofsApi> => ({
  async signInOptions({ request }) {
    requireOwnPage(request, services.publicUrl);
    return { body: await assertionOptions(services, signInPurpose) };
  },
  async signIn(call, { response }) {
    const { request, address } = call;
    requireOwnPage(request, services.publicUrl);
    requireSecurePage(request);
    const userId = await proveAssertion(services, response, signInPurpose).catch((error: unknown) => {
      if (error instanceof AppError && error.httpStatus === 401) countTokenGuess(services.throttle, address);
      throw error;
    });
    const { email, is_staff: isStaff } = await userById(services.db, userId);
    return startedReply(services, call, { userId, email, isStaff, factorAt: services.system.now() });
  },
  proveOptions: async (call) => ({
    body: await assertionOptions(services, stepUpPurpose(call), callingUser(call).userId),
  }),
  async prove(call, { response }) {
    const caller = callingUser(call);
    const proven = await proveAssertion(services, response, stepUpPurpose(call));
    if (proven !== caller.userId)
      throw new AppError("invalid_credentials", "This is a passkey of another user.");
    const { db, system } = services;
    await db.writeFor({ user: proven }, (tx) => markProven(tx, caller, system.now()));
  },
});
