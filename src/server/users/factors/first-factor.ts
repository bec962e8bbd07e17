// Before the user gets a first second factor, or another way to sign in: a stolen session alone must not add one.

import { AppError } from "../../../base/errors.ts";
import type { Call } from "../../http/route.ts";
import { users } from "../../store/tables/users.ts";
import { callingUser, requireNewSession, sessionIdOf } from "../sessions/browser-sessions.ts";
import { provePassword, type SignInServices } from "../sign-in/sign-in.ts";
import { methodsOf } from "./second-factor.ts";

/**
 * Proves the user by the password. Users of a provider of identities have none: they must have signed in recently. With a
 * second factor, the route asks for that instead.
 */
export async function requireProofForFirstFactor(
  services: SignInServices,
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
  await provePassword(services, call, { email, password });
}
