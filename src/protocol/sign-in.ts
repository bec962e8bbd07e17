// Values of sign-ins and of the sessions of command lines that both sides share.

import * as v from "valibot";
import { received } from "./values.ts";

/** A header of the answer to the deletion of a node: how many sessions of command lines on its machine ended. */
export const sessionsEndedHeader = "X-Sessions-Ended";

/** Ways to prove a second factor. A later server may have more. */
export type SecondFactorMethod = "totp" | "recovery_code" | "passkey";

export const TokenPair = v.object({ access: received(8192), refresh: received(8192) });
export type TokenPair = v.InferOutput<typeof TokenPair>;
