// Limits of a service token besides its role: its scopes, and the networks that it may come from. Keeps when each token was
// used last. A program may send a thousand requests a second, so a use is recorded seldom.

import { AppError } from "../../base/errors.ts";
import { isWithin, parseNetworks } from "../../base/ip.ts";
import type { Route, ServiceCaller } from "../http/route.ts";
import type { Database } from "../store/database.ts";

/**
 * Throws token_scope. A change needs the scope of its route; a route without one, such as those of CAs and settings, is
 * closed to every token with scopes. Reading needs `read`, or the scope of the route.
 */
export function requireScope(
  { scopes, networks }: ServiceCaller,
  { method, scope, reads }: Pick<Route, "method" | "scope" | "reads">,
  address: string,
): void {
  if (networks !== null && !isWithin(address, parseNetworks(networks.split(" ")))) {
    throw new AppError("token_scope", `This service token is not valid from ${address}.`, {
      hint: `It is valid from ${networks.replaceAll(" ", ", ")}.`,
    });
  }
  // A token of an earlier release, which has no scopes.
  if (scopes === null) return;
  const held = scopes.split(" ");
  const enough = [
    ...(method === "GET" || reads === true ? ["read"] : []),
    ...(scope === undefined ? [] : [scope]),
  ];
  if (enough.some((each) => held.includes(each))) return;
  throw new AppError("token_scope", `This service token has the scopes ${held.join(", ")}.`, {
    hint:
      enough.length === 0
        ? "No scope permits this: sign in as a user."
        : `This needs the scope ${enough.join(" or ")}.`,
  });
}

type Deps = { db: Database; now(): number };

/** Each server records a use of a token at most once in this time; of several servers, the first one's record counts. */
const everyMs = 5 * 60_000;
/** Only valid tokens are noted: this is a bound, not a limit that is met. */
const maxNoted = 100_000;

/** Checks like `requireScope`, and notes the use. No request waits for the record, and none fails because of it. */
export function makeServiceAdmission({ db, now }: Deps): typeof requireScope {
  /** By the id of the token: when this server noted its last use, ms. */
  const noted = new Map<number, number>();
  return (caller, route, address) => {
    requireScope(caller, route, address);
    const { tokenId } = caller;
    const at = now();
    const notedAt = noted.get(tokenId);
    if (notedAt !== undefined && at - notedAt < everyMs) return;
    if (noted.size >= maxNoted) noted.clear();
    noted.set(tokenId, at);
    const noteUse =
      "UPDATE service_tokens SET last_used_at = $2 WHERE id = $1 AND coalesce(last_used_at, 0) <= $3";
    db.writeFor("rows", (tx) => tx.run(noteUse, [tokenId, at, at - everyMs])).catch(() => undefined);
  };
}
