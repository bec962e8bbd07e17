// Databases of a PostgreSQL cluster that one test after another uses, each test with its own and with empty tables. To
// create, connect to and drop a database takes more processor time than most tests.

import { AppError } from "../../src/base/errors.ts";
import type { Database, Reader, Transaction } from "../../src/server/store/database.ts";
import { tableNames } from "../../src/server/store/migrations.ts";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { createDatabase, createMigrated, dropDatabase, migrated, urlOf } from "./postgres.ts";

type Shared = {
  url: string;
  db: Database;
  clock: { now(): number };
  /** Rows that were deleted since it was created: without vacuum they make it slower. */
  deleted: number;
};

const maxDeleted = 3000;
const idle: Shared[] = [];

/** Prepares the cluster of this directory for `lendDatabase`. */
export async function createLendable(cluster: string): Promise<void> {
  await createMigrated(cluster);
  const db = await openPostgres({ url: urlOf(cluster, migrated), now: Date.now, role: "visitor" });
  try {
    await db.write(async (tx) => {
      await tx.run("CREATE SCHEMA testing");
      const kept: string[] = [];
      for (const name of tableNames) {
        if ((await tx.get(`SELECT 1 AS one FROM ${name} LIMIT 1`)) === undefined) continue;
        await tx.run(`CREATE TABLE testing.${name} AS SELECT * FROM ${name}`);
        kept.push(name);
      }
      await tx.run(emptying(kept));
    });
  } finally {
    await db.close();
  }
}

/** `testing.empty` deletes all rows but those that the migrations left, and returns how many it deleted. */
function emptying(kept: readonly string[]): string {
  const deletions = tableNames.map(
    (name) => `DELETE FROM public.${name}; GET DIAGNOSTICS here = ROW_COUNT; total := total + here;`,
  );
  const insertions = kept.map((name) => `INSERT INTO public.${name} SELECT * FROM testing.${name};`);
  return `CREATE FUNCTION testing.empty() RETURNS BIGINT
    LANGUAGE plpgsql SET session_replication_role = replica AS $body$
    DECLARE
      total BIGINT := 0;
      here BIGINT;
    BEGIN
      ${[...deletions, ...insertions].join("\n")}
      -- Ids begin at 1 again, but for notices, whose reader goes on.
      PERFORM setval(oid, 1, false) FROM pg_class
        WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace AND relname <> 'notices_id_seq';
      RETURN total;
    END $body$`;
}

/** A database with our tables, in the cluster of this directory, which createLendable has prepared. */
export async function lendDatabase(
  cluster: string,
  now: () => number,
): Promise<{ db: Database; dispose(): Promise<void> }> {
  const shared = idle.pop() ?? (await open(cluster));
  shared.clock.now = now;
  const lent = lend(shared.db);
  return {
    db: lent.db,
    async dispose() {
      await lent.db.close();
      if (!lent.isChanged()) {
        const row = await shared.db.get("SELECT testing.empty() AS n");
        shared.deleted += Number(row?.["n"]);
      }
      if (!lent.isChanged() && shared.deleted < maxDeleted) return void idle.push(shared);
      await shared.db.close();
      await dropDatabase(cluster, shared.url);
    },
  };
}

async function open(cluster: string): Promise<Shared> {
  const url = await createDatabase(cluster, migrated);
  const clock = { now: Date.now };
  return { url, clock, db: await openPostgres({ url, now: () => clock.now() }), deleted: 0 };
}

/** The same database until `close`, which waits for what runs, and removes the listeners. */
function lend(shared: Database): { db: Database; isChanged(): boolean } {
  const running = new Set<Promise<unknown>>();
  const listening: (() => void)[] = [];
  let isClosed = false;
  let isChanged = false;
  const guarded = <T>(act: () => Promise<T>): Promise<T> => {
    if (isClosed) return Promise.reject(new AppError("storage_unavailable", "The database is closed"));
    const run = act();
    running.add(run);
    const end = () => void running.delete(run);
    void run.then(end, end);
    return run;
  };
  const watched = <Kind extends Reader>(reader: Kind): Kind => ({
    ...reader,
    all: (sql, params) => reader.all(noted(sql), params),
    get: (sql, params) => reader.get(noted(sql), params),
  });
  /** A test that changes the tables themselves leaves a database that no other test gets. */
  const noted = (sql: string) => {
    if (/^\s*(CREATE|ALTER|DROP|TRUNCATE)\b/i.test(sql)) isChanged = true;
    return sql;
  };
  const inside = (tx: Transaction): Transaction => ({
    ...watched(tx),
    run: (sql, params) => tx.run(noted(sql), params),
  });
  const db: Database = {
    ...shared,
    all: (sql, params) => guarded(() => watched(shared).all(sql, params)),
    get: (sql, params) => guarded(() => watched(shared).get(sql, params)),
    write: (work) => guarded(() => shared.write((tx) => work(inside(tx)))),
    writeFor: (concern, work) => guarded(() => shared.writeFor(concern, (tx) => work(inside(tx)))),
    listen(channel, listener) {
      const remove = shared.listen(channel, listener);
      listening.push(remove);
      return remove;
    },
    async close() {
      isClosed = true;
      for (const remove of listening) remove();
      while (running.size > 0) await Promise.allSettled(running);
    },
  };
  return { db, isChanged: () => isChanged };
}
