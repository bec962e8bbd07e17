// While the database is away, check-ins are answered from memory: without an answer, nodes would learn nothing, and all of them
// would seem to fail.

import { isStorageUnavailable } from "./database.ts";

/** The database is asked again after this time: meanwhile answers do not wait for it. */
const askAgainMs = 1000;

/** Returns what `read` reads, or what is known if the database is away. Throws if nothing is known. */
type OrKnown = <T>(read: () => Promise<T>, known: T | undefined) => Promise<T>;

export function makeOrKnown(): OrKnown {
  let awayUntil = Number.NEGATIVE_INFINITY;
  return async (read, known) => {
    if (known !== undefined && performance.now() < awayUntil) return known;
    try {
      return await read();
    } catch (error) {
      if (known === undefined || !isStorageUnavailable(error)) throw error;
      awayUntil = performance.now() + askAgainMs;
      return known;
    }
  };
}
