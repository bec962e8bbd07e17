// A database that notes the texts of its statements. The store keeps each one that it has seen, prepared: a text that holds
// values would be another one each time.

import type { Concern, Database, Params, Reader, Transaction } from "../../src/server/store/database.ts";

export function noteStatements(real: Database): { db: Database; texts: Set<string> } {
  const texts = new Set<string>();
  const noting = <R extends Reader & Partial<Pick<Transaction, "run">>>(reader: R): R =>
    Object.assign(Object.create(reader), {
      all: (sql: string, params?: Params) => reader.all(note(sql), params),
      get: (sql: string, params?: Params) => reader.get(note(sql), params),
      run: (sql: string, params?: Params) => reader.run?.(note(sql), params),
    });
  const note = (sql: string) => {
    texts.add(sql);
    return sql;
  };
  const db: Database = Object.assign(noting(real), {
    write: <T>(work: (tx: Transaction) => Promise<T>) => real.write((tx) => work(noting(tx))),
    writeFor: <T>(concern: Concern, work: (tx: Transaction) => Promise<T>) =>
      real.writeFor(concern, (tx) => work(noting(tx))),
  });
  return { db, texts };
}
