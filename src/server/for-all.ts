// Work for many organizations, or in several steps. A failure of one does not stop the others.

import { AppError, messageOf } from "../base/errors.ts";
import { LeaseLost } from "./store/leases.ts";

/** If the database is away, every organization fails, and slowly. After this number the rest waits for the next turn. */
const maxStorageFailures = 3;

/** Does the work for each, and throws at the end what failed. `orgOf`: the organization that a failure names. */
export async function forAll<T>(
  all: Iterable<T>,
  orgOf: (each: T) => number | undefined,
  work: (each: T) => Promise<unknown>,
): Promise<void> {
  const failures: { error: unknown; sentence: string }[] = [];
  let storageFailures = 0;
  for (const each of all) {
    try {
      await work(each);
      storageFailures = 0;
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      storageFailures = isOfStorage(error) ? storageFailures + 1 : 0;
      if (storageFailures === maxStorageFailures) throw error;
      const [org, reason] = [orgOf(each), messageOf(error)];
      failures.push({ error, sentence: org === undefined ? reason : `organization ${org}: ${reason}` });
    }
  }
  const [first, ...more] = failures;
  if (first === undefined) return;
  // A single failure is thrown as it is where no organization has to be named.
  if (more.length === 0 && (isOfStorage(first.error) || orgOf === noOrganization)) throw first.error;
  throw new Error(failures.map(({ sentence }) => sentence).join("; "), { cause: first.error });
}

/** The organization of a row, and of an entry of Map.groupBy(rows, orgOf). */
export const orgOf = ({ orgId }: { orgId: number }): number => orgId;
export const orgOfEntry = ([orgId]: readonly [orgId: number, rows: unknown]): number => orgId;

const isOfStorage = (error: unknown) => error instanceof AppError && error.code === "storage_unavailable";

/** The steps of a turn, one after the other. */
export const inTurn = (...steps: readonly (() => Promise<unknown>)[]): Promise<void> =>
  forAll(steps, noOrganization, (step) => step());

const noOrganization = () => undefined;
