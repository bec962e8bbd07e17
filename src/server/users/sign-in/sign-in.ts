// Signs users in with e-mail and password, and limits guesses: by user, by network, and by both together. While the
// password of a user is guessed, networks and devices from which the user signed in before are still admitted.

import { AppError } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import { fromOf, type From } from "../sessions/families.ts";
import { cookiesOf, deviceCookie, makeCookie, readCookie } from "../../http/cookies.ts";
import { networkOf } from "../../../base/ip.ts";
import type { Meters } from "../../http/meters.ts";
import type { Call } from "../../http/route.ts";
import type { Throttle } from "../../http/throttle.ts";
import { isKnownNetwork, knownForMs } from "../../store/tables/organizations.ts";
import { recordFailedLogin } from "./failed-sign-ins.ts";
import { userOfAddress, type UserServices } from "../users.ts";
import { provenAtSignIn, type FactorServices } from "../factors/second-factor.ts";
import { wrongCredentials, type Sessions } from "../sessions/sessions.ts";
import type { Turn } from "./password-queue.ts";
import { emailKey } from "../../../base/text.ts";

/** `throttle` counts wrong passwords, `meters` the results. */
export type SignInServices = UserServices & {
  throttle: Throttle;
  meters: Meters;
  sessions: Pick<Sessions, "verifyDevice">;
};

/** Where a request comes from: its address and its Cookie header. */
export type Origin = From & { cookies: string };

export const originOf = (call: Pick<Call, "address" | "request">): Origin => ({
  ...fromOf(call),
  cookies: cookiesOf(call.request),
});

/** The password was right. `passwordHash`: what it matched. */
export type Proven = { userId: number; isStaff: boolean; passwordHash: string; device?: string; turn: Turn };

/**
 * An attempt to sign in, as the throttle counts it. `stranger`: an address without a user. `turn`: its place in the queue of those whose
 * passwords are hashed (password-queue.ts). `device`: the id of a known one.
 */
type Attempt = { kind: "user" | "stranger"; turn: Turn; network: string; device: string | undefined };

/**
 * How many guesses at one user count for their network. More would let one user's forgotten password block the others
 * behind that address.
 */
const guessesPerUser = 5;

/**
 * Throws the same invalid_credentials for an unknown address, a wrong password and a disabled user, after the same work.
 */
export async function signIn(
  services: SignInServices,
  { email, password }: { email: string; password: string },
  origin: Origin,
): Promise<Proven> {
  const { db, passwords, throttle, meters } = services;
  const normalized = emailKey(email);
  const user = await userOfAddress(db, email);
  const attempt = await attemptOf(services, user?.id, normalized, origin);
  const { turn, device } = attempt;
  // Now, and again when its turn has come (`before`): guesses that waited before it are counted by then.
  const check = () => checkGuess(throttle, attempt);
  check();
  // "": the user signs in by a provider or a passkey only. Undefined takes the same time, and never matches.
  const matches = await passwords.verify(
    password,
    user?.passwordHash === "" ? undefined : user?.passwordHash,
    {
      turn,
      before: check,
      after: (matched) => {
        if (!matched || user?.isActive !== true) countGuess(throttle, attempt);
      },
    },
  );
  const isAccepted = user !== undefined && matches && user.isActive;
  meters.login(isAccepted ? "ok" : "failed");
  if (isAccepted) {
    const { id, isStaff, passwordHash } = user;
    return { userId: id, isStaff, passwordHash, turn, ...given({ device }) };
  }
  await recordFailedLogin(services, normalized, origin.address);
  throw wrongCredentials();
}

async function attemptOf(
  { db, system, sessions }: SignInServices,
  userId: number | undefined,
  email: string,
  { address, cookies }: Origin,
): Promise<Attempt> {
  const network = networkOf(address);
  const domain = email.slice(email.lastIndexOf("@") + 1);
  // Also done without a user, so that the time reveals nothing.
  const isKnown = await isKnownNetwork(db, { userId: userId ?? 0, network, now: system.now() });
  if (userId === undefined) {
    const turn = { user: `stranger ${email}`, source: network, domain, isKnown };
    return { kind: "stranger", turn, network, device: undefined };
  }
  const token = readCookie(cookies, deviceCookie(userId));
  const device = token === undefined ? undefined : await sessions.verifyDevice(token, userId);
  const turn = {
    user: `user ${userId}`,
    source: device ?? network,
    domain,
    isKnown: isKnown || device !== undefined,
  };
  return { kind: "user", turn, network, device };
}

/** User and source together. */
const placeOf = ({ turn }: Attempt) => `${turn.user} ${turn.source}`;

function checkGuess(throttle: Throttle, attempt: Attempt): void {
  const { kind, turn, network, device } = attempt;
  throttle.check("place", placeOf(attempt));
  if (!turn.isKnown) throttle.check(kind, turn.user);
  if (device === undefined) throttle.check("network", network);
}

function countGuess(throttle: Throttle, attempt: Attempt): void {
  const { kind, turn, network, device } = attempt;
  const place = placeOf(attempt);
  // Before the place is counted: this guess is not one of the earlier ones.
  if (device === undefined && throttle.counted("place", place) < guessesPerUser) {
    throttle.count("network", network);
  }
  throttle.count("place", place);
  throttle.count(kind, turn.user);
}

/** Proves the present password of the caller. It starts no session. Throws invalid_credentials at the field of the password. */
export async function provePassword(
  services: SignInServices,
  call: Pick<Call, "address" | "request">,
  { email, password }: { email: string; password: string },
): Promise<Proven> {
  try {
    return await signIn(services, { email, password }, originOf(call));
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "invalid_credentials") throw error;
    const sentence = "This is not your password.";
    throw new AppError("invalid_credentials", sentence, { errors: { current_password: [sentence] } });
  }
}

/** The sign-in of a program: tokens in the answer, and a cookie that makes the program a known device. */
export async function signInForTokens(
  services: SignInServices & FactorServices & { publicUrl: string; sessions: Sessions },
  { otp, ...credentials }: { email: string; password: string; otp?: string | undefined },
  origin: Origin,
): Promise<{ body: TokenPair; cookies: string[] }> {
  const proven = await signIn(services, credentials, origin);
  const factorAt = await provenAtSignIn(services, proven, otp, origin.address);
  const { userId, passwordHash } = proven;
  const body = await services.sessions.start(userId, passwordHash, origin, {
    factorAt,
  });
  return { body, cookies: [await cookieOfDevice(services, proven)] };
}

/** Makes the device known, or known for longer. */
export async function cookieOfDevice(
  { sessions, publicUrl }: { sessions: Pick<Sessions, "signDevice">; publicUrl: string },
  { userId, device }: Pick<Proven, "userId" | "device">,
): Promise<string> {
  const token = await sessions.signDevice(userId, device);
  return makeCookie(deviceCookie(userId), token, knownForMs / 1000, publicUrl);
}
