// Compares the schema of a SQLite file from elsewhere with the one that our migrations create. A trigger, a view, an
// index or a constraint more can change what our statements do. Compare before anything else opens the file.

import { Database as Sqlite } from "bun:sqlite";
import { AppError } from "../../../base/errors.ts";
import { valuesOf, withFile } from "./files.ts";
import { newestVersion, schemaStatements } from "../migrations.ts";

/** Statistics, which SQLite keeps after ANALYZE. */
const statistics = new Map([
  ["table sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"],
  ["table sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"],
]);

/**
 * Returns the version of the schema. That of a newer release is not compared, because it is unknown here. Throws failed
 * for a file that is no database, bad_configuration for another schema.
 */
export function requireOurSchema(path: string): number {
  return withFile(path, (database) => {
    // Nothing of the file's schema may run while it is read.
    database.run("PRAGMA trusted_schema = OFF");
    database.run("PRAGMA query_only = ON");
    const found = objectsOf(database);
    // Version 0 has the table `migrations` alone. It is compared first: the version must be read from a plain table, not a view.
    requireSame(found, expectedObjects(0), { mayHaveMore: true });
    const [row] = valuesOf(database, "SELECT max(version) FROM migrations");
    const version = Math.max(0, Number(row?.[0] ?? 0));
    if (version <= newestVersion) requireSame(found, expectedObjects(version), { mayHaveMore: false });
    return version;
  });
}

/** `trigger NAME` → the statement that created it. */
type Objects = ReadonlyMap<string, string>;

function expectedObjects(version: number): Objects {
  using fresh = new Sqlite(":memory:");
  for (const statement of schemaStatements(version)) fresh.run(statement);
  return objectsOf(fresh);
}

function objectsOf(database: Sqlite): Objects {
  const objects = new Map<string, string>();
  for (const [type, name, sql] of valuesOf(database, "SELECT type, name, sql FROM sqlite_schema")) {
    const key = `${String(type)} ${String(name)}`;
    // A damaged schema may hold a name twice: both count.
    objects.set(key, (objects.get(key) ?? "") + normalized(typeof sql === "string" ? sql : ""));
  }
  return objects;
}

function requireSame(found: Objects, expected: Objects, { mayHaveMore }: { mayHaveMore: boolean }): void {
  for (const [key, sql] of expected) {
    if (!found.has(key)) throw foreign(`${quote(key)} is missing`);
    if (found.get(key) !== sql) throw foreign(`${quote(key)} is different`);
  }
  if (mayHaveMore) return;
  for (const [key, sql] of found) {
    if (!expected.has(key) && statistics.get(key) !== sql) throw foreign(`${quote(key)} was added`);
  }
}

/** Removes differences between releases that mean the same. Text primary keys of 0.1.0 lacked NOT NULL. */
function normalized(sql: string): string {
  return sql
    .replace(/\s+/g, " ")
    .replace(/ ?([(),]) ?/g, "$1")
    .replaceAll("TEXT NOT NULL PRIMARY KEY", "TEXT PRIMARY KEY");
}

/** The name comes from the file. */
function quote(key: string): string {
  return JSON.stringify(key.slice(0, 80));
}

function foreign(what: string): AppError {
  return new AppError("bad_configuration", `The database is not as this program creates it: ${what}`, {
    hint: "Undo the change in the original database, and make a new backup.",
  });
}
