// A database in memory with today's schema and rows of the past, so that one code reads the past and the present.

import { Database as Sqlite } from "bun:sqlite";
import type { Reader, Value } from "../database.ts";
import { newestVersion, schemaStatements } from "../migrations.ts";
import { places } from "../table.ts";
import { parts } from "../tables/policy-changes.ts";
import { makeConnection, readerOf } from "./connection.ts";

export type Memory = Reader & { close(): void };

/** `rows`: by part (tables/policy-changes.ts), then by id, the values of the part's columns. Yields between rows. */
export function* openMemory(
  orgId: number,
  rows: ReadonlyMap<string, ReadonlyMap<number, readonly Value[]>>,
): Generator<unknown, Memory> {
  const sqlite = Sqlite.deserialize((empty ??= makeEmpty()), { strict: true });
  // What the rows refer to may not be among them.
  sqlite.run("PRAGMA foreign_keys = OFF");
  const connection = makeConnection(sqlite);
  let count = 0;
  for (const { name, table, org, key, columns } of parts)
    for (const [id, values] of rows.get(name) ?? []) {
      // An older row may have fewer columns.
      const named = values.map((value, at): [string, Value] => [columns[at] ?? "", value]);
      const row = new Map<string, Value>([[key, id], [org, orgId], ...named]);
      const names = [...row.keys()];
      // A part with another name than its table holds more columns of the same rows, which come before. $1 is the id, the first of the
      // row.
      const sql =
        name === table
          ? `INSERT OR REPLACE INTO ${table} (${names.join(", ")}) VALUES (${places(names, 1)})`
          : `UPDATE ${table} SET (${names.join(", ")}) = (${places(names, 1)}) WHERE ${key} = $1`;
      connection.prepare(sql).run(...row.values());
      if (++count % 100 === 0) yield;
    }
  return { ...readerOf(() => connection), close: connection.close };
}

/** An empty database as bytes: its statements take longer than most questions. */
let empty: Uint8Array | undefined;

function makeEmpty(): Uint8Array {
  using sqlite = new Sqlite(":memory:");
  for (const statement of schemaStatements(newestVersion))
    // Triggers would note each row as a change of the policy.
    if (!statement.startsWith("CREATE TRIGGER")) sqlite.run(withDefaults(statement));
  return sqlite.serialize();
}

/** Columns that have no part in who reaches whom get no value. */
const withDefaults = (statement: string) =>
  statement
    .replaceAll(/\bTEXT NOT NULL(?! DEFAULT)/g, "TEXT NOT NULL DEFAULT ''")
    .replaceAll(/\bINT NOT NULL(?! DEFAULT)/g, "INT NOT NULL DEFAULT 0");
