// One connection to a SQLite file: its settings, its prepared statements, and reading by it.

import type { Database as Sqlite, Statement } from "bun:sqlite";
import { requireStorable, type Reader, type Row } from "../database.ts";
import { attempt } from "./errors.ts";
import { openFile } from "./files.ts";

export type Connection = { sqlite: Sqlite; prepare(sql: string): Statement; close(): void };

export function connect(path: string, create = true): Connection {
  const sqlite = openFile(path, { create });
  try {
    // Must come first: without it, two processes that open the file at once fail instead of waiting.
    sqlite.run("PRAGMA busy_timeout = 5000");
    sqlite.run("PRAGMA journal_mode = WAL");
    sqlite.run("PRAGMA synchronous = FULL");
    sqlite.run("PRAGMA foreign_keys = ON");
  } catch (error) {
    sqlite.close();
    throw error;
  }
  return makeConnection(sqlite);
}

/** The connection with its statements, each prepared once. */
export function makeConnection(sqlite: Sqlite): Connection {
  const statements = new Map<string, Statement>();
  return {
    sqlite,
    // Database.query() caches only 20 statements. SQLite takes `$1` for a name and numbers it by its first appearance;
    // its `?1` means what `$1` means to PostgreSQL.
    prepare: (sql) =>
      statements.getOrInsertComputed(sql, () => sqlite.prepare(sql.replace(/\$(?=\d)/g, "?"))),
    close() {
      // A statement that is not finalized keeps the file and its write-ahead log open.
      for (const statement of statements.values()) statement.finalize();
      statements.clear();
      sqlite.close();
    },
  };
}

/** `connection`: asked for each read, because it is replaced after an I/O error. `note`: gets each failure, to watch for damage. */
export function readerOf(
  connection: () => Connection,
  note: (error: unknown) => void = () => undefined,
): Reader {
  return {
    all: async (sql, params = []) =>
      attempt(() => {
        const rows = connection()
          .prepare(sql)
          .all(...requireStorable(params));
        return rows.filter(isRow);
      }, note),
    get: async (sql, params = []) =>
      attempt(
        () =>
          rowOf(
            connection()
              .prepare(sql)
              .get(...requireStorable(params)),
          ),
        note,
      ),
  };
}

export function rowOf(row: unknown): Row | undefined {
  return isRow(row) ? row : undefined;
}

/** STRICT tables hold only `Value`s, and the parsers of tables check each one. */
export function isRow(row: unknown): row is Row {
  return typeof row === "object" && row !== null;
}
