// Why a provider of identities did not answer, for the administrator who sets it up.

import { AppError } from "../../base/errors.ts";

/** Sentences by the error code of the connection. */
const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: "It refuses connections on this port, or cannot be reached from the control plane.",
  ECONNRESET: "It closed the connection.",
  EPROTO: "It does not speak TLS on this port.",
  CERT_HAS_EXPIRED: "Its certificate has expired.",
  ERR_TLS_CERT_ALTNAME_INVALID: "Its certificate is for another name.",
};

function reasonOf(cause: unknown): string {
  if (cause instanceof AppError) return cause.message;
  const noAnswer = "It gave no answer that can be used.";
  if (!(cause instanceof Error)) return noAnswer;
  if (cause.name === "TimeoutError") return "It did not answer in time.";
  const code = "code" in cause ? String(cause.code) : "";
  if (Object.hasOwn(reasons, code)) return reasons[code] ?? noAnswer;
  return /CERT|SIGN/.test(code) ? "Its certificate is from a CA that is not trusted here." : noAnswer;
}

/**
 * Throws the failure with its reason, for the administrator who sets the provider up; users who sign in get no reason. The request
 * passed the guard against internal addresses (outgoing.ts), and no reason contains an address: an internal name gets the same reason
 * as one that does not exist.
 */
export function throwWithReason(error: unknown): never {
  if (!(error instanceof AppError) || error.code !== "provider_unavailable") throw error;
  const { cause } = error;
  const hint = `${reasonOf(cause)} Check the issuer, and that the control plane may connect to it.`;
  throw new AppError("provider_unavailable", error.message, { cause, hint });
}
