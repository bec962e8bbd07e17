// A database in memory with today's schema and given rows: what was is then read by the same code as what is.

import { Database as Sqlite } from "bun:sqlite";
import type { Reader, Value } from "../database.ts";
import { newestVersion, schemaStatements } from "../migrations.ts";
import { parts } from "../tables/policy-changes.ts";
import { makeConnection, readerOf } from "./connection.ts";
import { valuesOf } from "./files.ts";

export type Memory = Reader & { close(): void };

/** `rows`: by part, then by id, the values of the part's columns. Yields between rows. */
export function* openMemory(
  orgId: number,
  rows: ReadonlyMap<string, ReadonlyMap<number, readonly Value[]>>,
): Generator<unknown, Memory> {
  const sqlite = Sqlite.deserialize((empty ??= makeEmpty()), { strict: true });
  // What the rows refer to may not be among them.
  sqlite.run("PRAGMA foreign_keys = OFF");
  const connection = makeConnection(sqlite);
  const begun = new Set<string>();
  for (const { name, table, org, key, columns } of parts) {
    const isFirst = !begun.has(table);
    begun.add(table);
    const fillers = isFirst ? requiredOf(sqlite, table, [key, org, ...columns]) : [];
    const fixed = [...(org === key ? [] : [[org, `${orgId}`] as const]), ...fillers];
    const names = (count: number) => [key, ...columns.slice(0, count), ...fixed.map(([column]) => column)];
    // An older row may have fewer columns.
    const sqlFor = (count: number) =>
      isFirst
        ? `INSERT OR REPLACE INTO ${table} (${names(count).join(", ")}) VALUES (${[
            ...Array.from({ length: count + 1 }, (_, at) => `$${at + 1}`),
            ...fixed.map(([, value]) => value),
          ].join(", ")})`
        : `UPDATE ${table} SET ${columns.map((each, at) => `${each} = $${at + 2}`).join(", ")} WHERE ${key} = $1`;
    let [sql, length, count] = ["", -1, 0];
    for (const [id, values] of rows.get(name) ?? []) {
      if (values.length !== length) [sql, length] = [sqlFor(values.length), values.length];
      connection.prepare(sql).run(id, ...values);
      if (++count % 100 === 0) yield;
    }
  }
  return { ...readerOf(() => connection), close: connection.close };
}

/** An empty database as bytes: its statements take longer than most questions. */
let empty: Uint8Array | undefined;

function makeEmpty(): Uint8Array {
  using sqlite = new Sqlite(":memory:");
  for (const statement of schemaStatements(newestVersion))
    if (!statement.startsWith("CREATE TRIGGER")) sqlite.run(statement);
  return sqlite.serialize();
}

/** Columns that need a value and have no part in who reaches whom. */
function requiredOf(sqlite: Sqlite, table: string, given: readonly string[]): [string, string][] {
  return valuesOf(
    sqlite,
    `SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info('${table}')`,
  ).flatMap(([name, type, isRequired, preset, isKey]): [string, string][] => {
    const isMissing = isRequired === 1 && preset === null && isKey === 0 && !given.includes(String(name));
    return isMissing ? [[String(name), type === "TEXT" ? "''" : "0"]] : [];
  });
}
