// Runs work that usually commits by itself within a transaction that is already open.

import type { Database, Transaction } from "./database.ts";

/** Undoes what the work changed if it throws. Savepoints may be nested under the same name: both databases take the innermost. */
export async function inSavepoint<T>(tx: Transaction, work: () => Promise<T>): Promise<T> {
  await tx.run("SAVEPOINT part");
  try {
    const done = await work();
    await tx.run("RELEASE part");
    return done;
  } catch (error) {
    await tx.run("ROLLBACK TO part");
    await tx.run("RELEASE part");
    throw error;
  }
}

/** The database for work inside of `tx`, which has locked everything: a write that fails is undone alone. */
export function within(db: Database, tx: Transaction): Database {
  const write = <T>(work: (tx: Transaction) => Promise<T>) => inSavepoint(tx, () => work(tx));
  return {
    ...db,
    all: (sql, params) => tx.all(sql, params),
    get: (sql, params) => tx.get(sql, params),
    write,
    writeFor: (_, work) => write(work),
  };
}
