// Copies every row of one database into another of the same version, SQLite or PostgreSQL. Ids and the counters for new
// ids are kept, so that no id is used twice.

import { toStorable } from "../../base/text.ts";
import type { Params, Reader, Row, Transaction, Value } from "./database.ts";
import { tableKeys } from "./migrations.ts";
import { policyChanges } from "./tables/policy-changes.ts";
import { computed, integerOrNull, places, queryAll, queryNumber, text } from "./table.ts";

/** Tables that are not copied: migrations write their own rows, and the others describe running servers. */
const skipped = ["migrations", "notices", "leases", "replicas"];
/**
 * The tables in the order of copying, each with its key. The notes of changes come last: triggers note each copied row, and
 * these notes are deleted before those of `from` are copied.
 */
const copied: ReadonlyMap<string, readonly string[]> = new Map([
  ...[...tableKeys].filter(([name]) => !skipped.includes(name) && name !== policyChanges.name),
  [policyChanges.name, ["id"]],
]);
const pageSize = 2000;

/** The tables of `to` must be empty, apart from what migrations wrote into `meta`: the copy replaces that. */
export async function copyTables(from: Reader, to: Transaction): Promise<void> {
  await to.run("DELETE FROM meta");
  for (const [table, key] of copied) {
    if (table === policyChanges.name) await to.run(`DELETE FROM ${table}`);
    const page = (where: string) =>
      `SELECT * FROM ${table} ${where} ORDER BY ${key.join(", ")} LIMIT ${pageSize}`;
    const nextPage = page(`WHERE (${key.join(", ")}) > (${places(key, 1)})`);
    for (let rows = await from.all(page("")); ;) {
      for (const row of rows) await insertRow(to, table, row);
      const last = rows.at(-1);
      if (last === undefined || rows.length < pageSize) break;
      const keyOfLast = key.map((column) => last[column] ?? null);
      rows = await from.all(nextPage, keyOfLast);
    }
  }
}

/** Deletes the rows of all tables that copyTables fills. */
export async function emptyTables(tx: Transaction): Promise<void> {
  for (const table of [...copied.keys()].toReversed()) await tx.run(`DELETE FROM ${table}`);
  // The triggers have noted the deletions above.
  await tx.run(`DELETE FROM ${policyChanges.name}`);
}

async function insertRow(tx: Transaction, table: string, row: Row): Promise<void> {
  const columns = Object.keys(row);
  const values: Params = columns.map((column) => storable(row[column] ?? null));
  await tx.run(`INSERT INTO ${table} (${columns.join(", ")}) VALUES (${places(columns, 1)})`, values);
}

/** A SQLite database of an earlier version may hold null characters. */
function storable(value: Value): Value {
  return typeof value === "string" ? toStorable(value) : value;
}

/** The last id that each table assigned; 0 if none. */
export type Counters = ReadonlyMap<string, number>;

export async function readCounters(from: Reader, dialect: Transaction["dialect"]): Promise<Counters> {
  const rows = await queryAll(
    from,
    computed({ name: text(), last: integerOrNull() }),
    dialect === "sqlite"
      ? `SELECT m.name, s.seq AS last FROM sqlite_master m LEFT JOIN sqlite_sequence s ON s.name = m.name
         WHERE m.type = 'table' AND m.sql LIKE '%AUTOINCREMENT%'`
      : `SELECT tablename AS name, last_value AS last FROM pg_sequences s JOIN pg_tables t
           ON t.schemaname = s.schemaname AND s.sequencename = t.tablename || '_id_seq'
         WHERE s.schemaname = current_schema()`,
  );
  return new Map(rows.map(({ name, last }) => [name, last ?? 0]));
}

/** Raises the counters to `counters`: no table reuses an id that either database assigned. */
export async function raiseCounters(tx: Transaction, counters: Counters): Promise<void> {
  const present = await readCounters(tx, tx.dialect);
  for (const [table, last] of counters) {
    if (!copied.has(table) || last <= (present.get(table) ?? 0)) continue;
    if (tx.dialect === "postgres") {
      await tx.get(`SELECT setval(pg_get_serial_sequence('${table}', 'id'), $1) AS last`, [last]);
    } else if ((await tx.run("UPDATE sqlite_sequence SET seq = $2 WHERE name = $1", [table, last])) === 0) {
      await tx.run("INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)", [table, last]);
    }
  }
}

/** Whether nobody has used the database: it has no user and no organization. */
export async function isEmpty(reader: Reader): Promise<boolean> {
  const sql = "SELECT (SELECT count(*) FROM users) + (SELECT count(*) FROM organizations) AS n";
  return (await queryNumber(reader, sql)) === 0;
}
