// Work for many organizations, or in several steps. A failure of one does not stop the others.

import { messageOf } from "../base/errors.ts";
import { isStorageUnavailable } from "./store/database.ts";
import { LeaseLost } from "./store/leases.ts";

/** If the database is away, every organization fails, and slowly. After so many in a row, the others wait for the next turn. */
const maxStorageFailures = 3;

/** Does the work for each, and throws at the end what failed. `orgIdOf`: the organization that a failure names, if any. */
export async function forAll<T>(
  all: Iterable<T>,
  orgIdOf: (each: T) => number | undefined,
  work: (each: T) => Promise<unknown>,
): Promise<void> {
  const failures: { error: unknown; org: number | undefined }[] = [];
  let storageFailures = 0;
  for (const each of all) {
    try {
      await work(each);
      storageFailures = 0;
    } catch (error) {
      // Another replica does this work now.
      if (error instanceof LeaseLost) throw error;
      failures.push({ error, org: orgIdOf(each) });
      storageFailures = isStorageUnavailable(error) ? storageFailures + 1 : 0;
      if (storageFailures === maxStorageFailures) break;
    }
  }
  const [first, ...more] = failures;
  if (first === undefined) return;
  // The storage fails for all organizations alike, and a forAll around this one counts such failures by their code.
  if (failures.every(({ error }) => isStorageUnavailable(error))) throw first.error;
  if (more.length === 0 && first.org === undefined) throw first.error;
  const sentences = failures.map(({ error, org }) =>
    org === undefined ? messageOf(error) : `organization ${org}: ${messageOf(error)}`,
  );
  throw new Error(sentences.join("; "), { cause: first.error });
}

/** The organization of a row, and of an entry of Map.groupBy(rows, orgOf). */
export const orgOf = ({ orgId }: { orgId: number }): number => orgId;
export const orgOfEntry = ([orgId]: readonly [orgId: number, rows: unknown]): number => orgId;

/** The steps of a turn, one after the other. */
export const inTurn = (...steps: readonly (() => Promise<unknown>)[]): Promise<void> =>
  forAll(
    steps,
    () => undefined,
    (step) => step(),
  );
