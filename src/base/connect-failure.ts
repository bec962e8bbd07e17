// Why a connection failed, and through which proxy it goes. Bun calls each failure to connect to a host name "refused",
// also on a machine without a network. Only a connection to an address has the true reason.

import { isIP } from "node:net";
import { systemErrorCode } from "./system-errors.ts";

/** A connection to one address is tried for this long. The kernel needs three seconds to find that a neighbor does not answer. */
const tryMs = 4000;
/** Maximum addresses of one name that are tried. */
export const mostAddresses = 8;
/** Codes that say that there is no network, such as with an unplugged cable, or no machine with this address in it. */
const offline = ["ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EHOSTDOWN", "EADDRNOTAVAIL"];

export const isOffline = (error: unknown): boolean => offline.includes(systemErrorCode(error) ?? "");

type Surroundings = {
  lookup: (host: string) => Promise<readonly string[]>;
  env: Record<string, string | undefined>;
};

/** The error itself, or a better one: why this machine cannot reach the addresses of the host. */
export async function findTrueFailure(
  error: unknown,
  url: string,
  { lookup, env }: Surroundings,
): Promise<unknown> {
  // With a proxy it was the proxy that refused: this machine need not reach the host itself.
  if (proxyFor(url, env) !== undefined) return error;
  const { hostname, port, protocol } = new URL(url);
  if (systemErrorCode(error) !== "ECONNREFUSED" || isIP(hostname.replace(/^\[|\]$/g, "")) !== 0) return error;
  const addresses = (await lookup(hostname)).slice(0, mostAddresses);
  const causes = await Promise.all(
    addresses.map((address) => whyOffline(address, port || (protocol === "http:" ? "80" : "443"))),
  );
  // An address that this machine can reach refused the connection. Others may lack a route, for example on a machine
  // with IPv6 alone.
  return causes.every((cause) => cause !== undefined) ? (causes[0] ?? error) : error;
}

/** Why this machine cannot reach the address; undefined if it can, or if that is not known. */
async function whyOffline(address: string, port: string): Promise<unknown> {
  const host = address.includes(":") ? `[${address}]` : address;
  try {
    // Only whether a connection is made matters, so the server's answer to this request does not, nor whether it speaks TLS.
    const signal = AbortSignal.timeout(tryMs);
    const url = `http://${host}:${port}/`;
    // The address is its own proxy, because fetch() would ask the proxy of the environment otherwise.
    await fetch(url, { method: "HEAD", redirect: "manual", signal, proxy: url });
    return undefined;
  } catch (cause) {
    return isOffline(cause) ? cause : undefined;
  }
}

/** The proxy that the environment names for this URL (curl(1)); undefined: none. */
export function proxyFor(url: string, env: Record<string, string | undefined>): string | undefined {
  const { hostname, protocol } = new URL(url);
  const valueOf = (name: string) => env[name.toLowerCase()] ?? env[name.toUpperCase()];
  const proxy =
    (["https:", "wss:"].includes(protocol) ? valueOf("https_proxy") : valueOf("http_proxy")) ??
    valueOf("all_proxy");
  if (proxy === undefined || proxy === "") return undefined;
  const withoutProxy = (valueOf("no_proxy") ?? "")
    .split(",")
    .map((each) => each.trim().replace(/^\*?\./, ""));
  const isExcepted = withoutProxy.some(
    (each) => each === "*" || (each !== "" && (hostname === each || hostname.endsWith(`.${each}`))),
  );
  if (isExcepted) return undefined;
  return /^https?:\/\//.test(proxy) ? proxy : `http://${proxy}`;
}
