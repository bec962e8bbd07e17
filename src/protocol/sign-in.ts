// Sign-in with a password.

import * as v from "valibot";
import { received, text } from "./values.ts";

const otp = v.optional(text(64));

/** `otp`: the code of an authenticator app, or a recovery code. Send it only after `second_factor_required`. */
export const TokenRequest = v.strictObject({ email: text(254), password: text(1024), otp });

/** In the answer to the deletion of a node. */
export const sessionsEndedHeader = "X-Sessions-Ended";

/** Ways to prove a second factor. A later server may have more. */
export type SecondFactorMethod = "totp" | "recovery_code" | "passkey";

export const TokenPair = v.object({ access: received(8192), refresh: received(8192) });
export type TokenPair = v.InferOutput<typeof TokenPair>;
