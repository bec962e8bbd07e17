// Limits of a service token besides its role: its scopes, and the networks that it may come from.

import { AppError } from "../../base/errors.ts";
import { networkContains, parseAddress, parseNetwork } from "../../base/ip.ts";
import type { Caller, Route } from "../http/route.ts";

type ServiceCaller = Extract<Caller, { kind: "service" }>;

/**
 * Throws token_scope. A change needs the scope of its route; a route without one, such as those of CAs and settings, is
 * closed to every token with scopes. Reading needs `read`, or the scope of the route.
 */
export function requireScope(
  { scopes: given, networks }: ServiceCaller,
  { method, scope, reads }: Pick<Route, "method" | "scope" | "reads">,
  address: string,
): void {
  if (networks !== null && !isWithin(address, networks)) {
    throw new AppError("token_scope", `This service token is not valid from ${address}.`, {
      hint: `It is valid from ${networks.replaceAll(" ", ", ")}.`,
    });
  }
  if (given === null) return;
  const has = given.split(" ");
  const isRead = (method === "GET" || reads === true) && has.includes("read");
  if (isRead || (scope !== undefined && has.includes(scope))) return;
  const needed = scope ?? (method === "GET" ? "read" : undefined);
  throw new AppError("token_scope", `This service token has the scopes ${has.join(", ")}.`, {
    hint:
      needed === undefined ? "No scope permits this: sign in as a user." : `This needs the scope ${needed}.`,
  });
}

function isWithin(address: string, networks: string): boolean {
  const parsed = parseAddress(address);
  return networks.split(" ").some((text) => {
    const network = parseNetwork(text);
    return parsed !== undefined && network !== undefined && networkContains(network, parsed);
  });
}
