// Admits service tokens, and keeps when each was used last. A program may send a thousand requests a second, so a use is
// recorded seldom.

import type { Database } from "../store/database.ts";
import { requireScope } from "./token-scopes.ts";

type Deps = { db: Database; now(): number };

/** At most one record of a token in this time by each server; of several servers, the first one's counts. */
const everyMs = 5 * 60_000;
/** Only valid tokens are noted: this is a bound, not a limit that is met. */
const maxNoted = 100_000;

/** Checks like `requireScope`, and notes the use. No request waits for the record, and none fails because of it. */
export function makeServiceAdmission({ db, now }: Deps): typeof requireScope {
  const noted = new Map<number, number>();
  return (caller, route, address) => {
    requireScope(caller, route, address);
    const { tokenId } = caller;
    const at = now();
    const before = noted.get(tokenId);
    if (before !== undefined && at - before < everyMs) return;
    if (noted.size >= maxNoted) noted.clear();
    noted.set(tokenId, at);
    const used = "UPDATE service_tokens SET last_used_at = $2 WHERE id = $1";
    db.writeFor("rows", (tx) =>
      tx.run(`${used} AND coalesce(last_used_at, 0) <= $3`, [tokenId, at, at - everyMs]),
    ).catch(() => undefined);
  };
}
