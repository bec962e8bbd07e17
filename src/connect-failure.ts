// Why a connection failed. Bun calls each failure to connect to a host name "refused", also that of a machine without a
// network. Only a connection to an address tells.

import { isIP } from "node:net";
import { systemErrorCode } from "./errors.ts";

/** The kernel gives up the address of a neighbor after three seconds. */
const askMs = 4000;
const offline = ["ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EHOSTDOWN", "EADDRNOTAVAIL"];

/** The error itself, or the one that says what keeps this machine from the addresses of the host. */
export async function trueFailure(
  error: unknown,
  url: string,
  lookup: (host: string) => Promise<readonly string[]>,
): Promise<unknown> {
  const { hostname, port, protocol } = new URL(url);
  if (systemErrorCode(error) !== "ECONNREFUSED" || isIP(hostname.replace(/^\[|\]$/g, "")) !== 0) return error;
  const [address] = await lookup(hostname);
  if (address === undefined) return error;
  const host = address.includes(":") ? `[${address}]` : address;
  const at = `http://${host}:${port || (protocol === "http:" ? 80 : 443)}/`;
  try {
    // Nothing of the request is sent: only whether a connection is made matters.
    await fetch(at, { method: "HEAD", redirect: "manual", signal: AbortSignal.timeout(askMs) });
    return error;
  } catch (cause) {
    return offline.includes(systemErrorCode(cause) ?? "") ? cause : error;
  }
}
