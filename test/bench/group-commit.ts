// What both durable floors are made of: works of one turn of the event loop run in one transaction that is on disk
// (synchronous=FULL) before any of them is answered.

import { Database } from "bun:sqlite";

export function openDurable(path: string): Database {
  const database = new Database(path, { create: true, strict: true });
  for (const pragma of ["busy_timeout = 5000", "journal_mode = WAL", "synchronous = FULL"]) {
    database.run(`PRAGMA ${pragma}`);
  }
  return database;
}

/** `work` awaits nothing; what it throws is the server's end. */
export function makeGroupCommit(database: Database): <T>(work: () => T) => Promise<T> {
  const begin = database.query("BEGIN IMMEDIATE");
  const commit = database.query("COMMIT");
  let waiting: (() => () => void)[] = [];
  const flush = () => {
    const batch = waiting;
    waiting = [];
    begin.run();
    const answers = batch.map((work) => work());
    commit.run();
    for (const answer of answers) answer();
  };
  return <T>(work: () => T) =>
    new Promise<T>((resolve) => {
      const run = () => {
        const result = work();
        return () => resolve(result);
      };
      if (waiting.push(run) === 1) setImmediate(flush);
    });
}
