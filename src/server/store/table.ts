// A table declares its columns once. From the declaration come the DDL for both databases, the type of a row, and how
// rows are read, inserted and updated. The tables are declared in tables/, a subject a file, with their named queries.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import type { Params, Reader, Row, Transaction, Value } from "./database.ts";

/** `T`: the value in a row. `Given`: whether an insert must have it; without it, the database has a default. */
export type Column<T, Given extends boolean = boolean> = {
  /** The SQL after the column's name in CREATE TABLE. */
  ddl(name: string): string;
  read(value: Value | undefined, column: string): T;
  write(value: T): Value;
  given: Given;
  /** The migration that added the column to a table that existed. */
  since?: number;
};

/** Columns of any types. `read` gives the type and `write` takes it, so neither `never` nor `unknown` alone stands for all. */
type Columns = Record<string, Column<never> | Column<unknown>>;
type ValueOf<C> = C extends { read(...args: never[]): infer T } ? T : never;
type GivenKeys<C extends Columns> = { [K in keyof C]: C[K]["given"] extends true ? K : never }[keyof C];
export type RowOf<C extends Columns> = { -readonly [K in keyof C]: ValueOf<C[K]> };
export type NewRow<C extends Columns> = Pick<RowOf<C>, GivenKeys<C>> & Partial<RowOf<C>>;
/** The row of a table: `type User = TableRow<typeof users>`. */
export type TableRow<T> = T extends Table<infer C> ? RowOf<C> : never;

type Read<T> = (value: Value | undefined, column: string) => T;

/** `type`: in SQL. `constraints`: what follows it in SQL, with a default. */
function column<T, Given extends boolean>(
  { type, constraints, given }: { type: string; constraints: string; given: Given },
  read: Read<T>,
  write: (value: NoInfer<T>) => Value,
): Column<T, Given> {
  return { ddl: () => `${type} ${constraints}`.trimEnd(), given, read, write };
}

function readText(value: Value | undefined, name: string): string {
  return typeof value === "string" ? value : wrong(name, "text", value);
}

function readNumber(value: Value | undefined, name: string): number {
  return typeof value === "number" ? value : wrong(name, "a number", value);
}

function wrong(name: string, expected: string, met: Value | undefined): never {
  throw new AppError("internal", `The database's column ${name} should hold ${expected}, not ${typeof met}`);
}

const asIs = (value: Value): Value => value;
const nullable =
  <T>(read: Read<T>): Read<T | null> =>
  (value, name) =>
    value === null ? null : read(value, name);

// SERIAL_ID, KEY_ID, INT and STRICT stand for what differs between the two databases: migrations.ts replaces them.

/** The id that the database gives. Ids are never used twice. */
export const serial = column({ type: "SERIAL_ID", constraints: "", given: false }, readNumber, asIs);
/** A primary key that another table gives. */
export const key = column({ type: "KEY_ID", constraints: "", given: true }, readNumber, asIs);

// Kinds of columns. Those with a default need no value in an insert.
const textType = "TEXT NOT NULL";
const integerType = "INT NOT NULL";
export const text = (constraints = "") =>
  column({ type: textType, constraints, given: true }, readText, asIs);
/** "" by default. */
export const emptyText = column({ type: textType, constraints: "DEFAULT ''", given: false }, readText, asIs);
export const textOrNull = (constraints = "") =>
  column<string | null, false>({ type: "TEXT", constraints, given: false }, nullable(readText), asIs);
export const integer = (constraints = "") =>
  column({ type: integerType, constraints, given: true }, readNumber, asIs);
export const integerWithDefault = (constraints: string) =>
  column({ type: integerType, constraints, given: false }, readNumber, asIs);
export const integerOrNull = (constraints = "") =>
  column<number | null, false>({ type: "INT", constraints, given: false }, nullable(readNumber), asIs);
/** 0 or 1. */
export const truth = (initial: 0 | 1) =>
  column<boolean, false>(
    { type: integerType, constraints: `DEFAULT ${initial}`, given: false },
    (value, name) => readNumber(value, name) === 1,
    (value: boolean) => (value ? 1 : 0),
  );
/** One of a few words. The database checks it too. */
export const word = <const W extends string>(words: readonly W[]) =>
  wordColumn(words, { constraints: "", given: true });
export const wordWithDefault = <const W extends string>(words: readonly W[], initial: W) =>
  wordColumn(words, { constraints: ` DEFAULT '${initial}'`, given: false });
/** One of a few words, or NULL. The database does not check it. */
export const wordOrNull = <const W extends string>(words: readonly W[]) =>
  column<W | null, false>({ type: "TEXT", constraints: "", given: false }, nullable(readWord(words)), asIs);
export const json = <T>(schema: v.GenericSchema<unknown, T>) =>
  jsonColumn(schema, { constraints: "", given: true });
/** `initial`: JSON. */
export const jsonWithDefault = <T>(schema: v.GenericSchema<unknown, T>, initial: string) =>
  jsonColumn(schema, { constraints: `DEFAULT '${initial}'`, given: false });

/** Its check names the column, which `column` does not know. */
function wordColumn<W extends string, Given extends boolean>(
  words: readonly W[],
  { constraints, given }: { constraints: string; given: Given },
): Column<W, Given> {
  const list = words.map((each) => `'${each}'`).join(", ");
  return {
    ddl: (name) => `${textType}${constraints} CHECK (${name} IN (${list}))`,
    given,
    read: readWord(words),
    write: asIs,
  };
}

function readWord<W extends string>(words: readonly W[]): Read<W> {
  return (value, name) => words.find((each) => each === value) ?? wrong(name, words.join(", "), value);
}

function jsonColumn<T, Given extends boolean>(
  schema: v.GenericSchema<unknown, T>,
  { constraints, given }: { constraints: string; given: Given },
): Column<T, Given> {
  const read: Read<T> = (value, name) => v.parse(schema, JSON.parse(readText(value, name)));
  return column({ type: textType, constraints, given }, read, (value) => JSON.stringify(value));
}

/** The column was added by this migration to a table that existed. */
export function since<T, Given extends boolean>(
  migration: number,
  added: Column<T, Given>,
): Column<T, Given> {
  return { ...added, since: migration };
}

export type Table<C extends Columns> = {
  name: string;
  /** CREATE TABLE with the columns that the table began with, and its indexes then. */
  create: readonly string[];
  /** ALTER TABLE for a column that came later. */
  add(key: keyof C & string): string;
  /** Every column by the name that SQL knows it by: `host_public_key`. */
  columnNames: readonly string[];
  /** The list for SELECT: `u.id, u.email`. */
  select(alias?: string): string;
  parse(row: Row): RowOf<C>;
  /** A part of the columns, for queries that need few of them. */
  pick<K extends keyof C & string>(...keys: K[]): Picked<Pick<RowOf<C>, K>>;
  /** The rows whose columns have these values, in the order of the first column: mostly the id. */
  all(reader: Reader, where: Partial<RowOf<C>>): Promise<RowOf<C>[]>;
  find(reader: Reader, where: Partial<RowOf<C>>): Promise<RowOf<C> | undefined>;
  insert(tx: Transaction, row: NewRow<C>): Promise<void>;
  /** `conflict`: the ON CONFLICT clause. How many rows were inserted or changed. */
  upsert(tx: Transaction, row: NewRow<C>, conflict: string): Promise<number>;
  /** The row with what the database gave: id and defaults. */
  insertReturning(tx: Reader, row: NewRow<C>): Promise<RowOf<C>>;
  /** How many rows had these values and were changed. */
  update(tx: Transaction, where: Partial<RowOf<C>>, change: Partial<RowOf<C>>): Promise<number>;
  delete(tx: Transaction, where: Partial<RowOf<C>>): Promise<number>;
};

/** Some columns: their names for SELECT, and how a row of them is read. */
export type Picked<T> = { select(alias?: string): string; parse(row: Row): T };

/**
 * `constraints` and `indexes` are those of the CREATE TABLE; later indexes stand in the migration that made them. `isByKey`:
 * SQLite stores the rows in the order of the primary key.
 */
export function table<const C extends Columns>(
  name: string,
  columns: C,
  more: { constraints?: readonly string[]; indexes?: readonly string[]; isByKey?: boolean } = {},
): Table<C> {
  const bound = new Map(Object.entries(columns).map(([key, each]) => [key, bind(key, each)]));
  const columnOf = (key: string) => {
    const found = bound.get(key);
    if (found === undefined) throw new AppError("internal", `The table ${name} has no column ${key}`);
    return found;
  };
  const allColumns = [...bound.values()];
  const initial = allColumns.filter(({ since: added }) => added === undefined);
  return {
    name,
    create: [
      `CREATE TABLE ${name} (\n${[...initial.map(({ ddl }) => ddl), ...(more.constraints ?? [])].join(",\n")}\n) STRICT${more.isByKey === true ? ", WITHOUT ROWID" : ""}`,
      ...(more.indexes ?? []),
    ],
    add: (key) => `ALTER TABLE ${name} ADD COLUMN ${columnOf(key).ddl}`,
    columnNames: allColumns.map(({ sql }) => sql),
    pick: (...keys) => picked(keys.map(columnOf)),
    ...picked<RowOf<C>>(allColumns),
    ...makeStatements<C>(name, picked<RowOf<C>>(allColumns), columnOf),
  };
}

/** A column with its key and its name in SQL. Values have lost their types: those of `Table` check them. */
type Bound = {
  key: string;
  sql: string;
  ddl: string;
  since: number | undefined;
  read(value: Value | undefined, column: string): unknown;
  write(value: unknown): Value;
};

function bind(key: string, column: Columns[string]): Bound {
  const { ddl, read, write, since: added } = column as Column<unknown>;
  const sql = snakeCase(key);
  return {
    key,
    sql,
    ddl: `${sql} ${ddl(sql)}`,
    since: added,
    read,
    write: (value) => (value === null ? null : write(value)),
  };
}

function picked<T>(chosen: readonly Bound[]): Picked<T> {
  const withoutAlias = chosen.map(({ sql }) => sql).join(", ");
  return {
    select: (alias) =>
      alias === undefined ? withoutAlias : chosen.map(({ sql }) => `${alias}.${sql}`).join(", "),
    parse(row) {
      const parsed: Record<string, unknown> = {};
      for (const { key, sql, read } of chosen) parsed[key] = read(row[sql], sql);
      return parsed as T;
    },
  };
}

/** The columns that a query computes or joins: `computed({ slug: text(), n: integer() })`. */
export function computed<const C extends Columns>(columns: C): Picked<RowOf<C>> {
  return picked(Object.entries(columns).map(([key, each]) => bind(key, each)));
}

/** A column of a LEFT JOIN: null where the join finds no row. */
export function orNull<T>(column: Column<T>): Column<T | null, false> {
  return { ...column, given: false, read: nullable(column.read), write: asIs as Column<T | null>["write"] };
}

/** The columns of a join of two tables, each with its alias. A column of both is read from the second. */
export function joined<A, B>(a: string, first: Picked<A>, b: string, second: Picked<B>): Picked<A & B> {
  return {
    select: () => `${first.select(a)}, ${second.select(b)}`,
    parse: (row) => ({ ...first.parse(row), ...second.parse(row) }),
  };
}

/** Parameters of one query: databases have a maximum. */
const partSize = 200;

/** `$3, $4`: one parameter for each value, from the number `first` on. */
export const places = (values: readonly unknown[], first: number): string =>
  values.map((_, index) => `$${index + first}`).join(", ");

/** Calls `work` with each part of a long list, for a query with one parameter for each value (`places`). */
export async function inParts<T>(all: readonly T[], work: (some: T[]) => Promise<void>): Promise<void> {
  for (let at = 0; at < all.length; at += partSize) await work(all.slice(at, at + partSize));
}

export type Parser<T> = { parse(row: Row): T };

export async function queryAll<T>(
  reader: Reader,
  { parse }: Parser<T>,
  sql: string,
  params?: Params,
): Promise<T[]> {
  return (await reader.all(sql, params)).map(parse);
}

/** The first row, where there is one. Also for a statement with RETURNING. */
export async function queryOne<T>(
  reader: Reader,
  { parse }: Parser<T>,
  sql: string,
  params?: Params,
): Promise<T | undefined> {
  const row = await reader.get(sql, params);
  return row === undefined ? undefined : parse(row);
}

/** SQL for the later of two times: SQLite and PostgreSQL name the greater one differently. */
export const later = (a: string, b: string): string => `CASE WHEN ${a} > ${b} THEN ${a} ELSE ${b} END`;

/** The number that a query computes as `n`: `SELECT count(*) AS n …`. */
export async function queryNumber(reader: Reader, sql: string, params?: Params): Promise<number> {
  return readNumber((await reader.get(sql, params))?.["n"], "n");
}

/** A column of a condition or a change, by its key, and its value. */
type Entry = [key: string, value: unknown];

/**
 * A text of a row that an earlier version wrote to SQLite, with a null character. `requireStorable` (database.ts) refuses it
 * as a text. As bytes it finds its row again; on PostgreSQL it finds none.
 */
const isAsStored = (value: unknown): value is string =>
  typeof value === "string" && value.includes("\0") && value.isWellFormed();

type Statements<C extends Columns> = Pick<
  Table<C>,
  "all" | "find" | "insert" | "upsert" | "insertReturning" | "update" | "delete"
>;

const keysOf = (entries: readonly Entry[]) => entries.map(([key]) => key).join();
/** The columns of a condition, and of each how it is compared: conditions of one shape have one text. */
const shapeOf = (where: readonly Entry[]) =>
  where
    .map(([key, value]) => {
      if (value === null) return `${key} null`;
      return isAsStored(value) ? `${key} stored` : key;
    })
    .join();
const withoutUndefined = (row: object): Entry[] =>
  Object.entries(row).filter(([, value]) => value !== undefined);

type ColumnOf = (key: string) => Bound;

/** `a = $1 AND b IS NULL`, for the parameters of `comparedValues`. `used`: how many parameters come before them. */
function conditionOf(where: readonly Entry[], columnOf: ColumnOf, used = 0): string {
  let number = used;
  const parts = where.map(([key, value]) => {
    const { sql } = columnOf(key);
    if (value === null) return `${sql} IS NULL`;
    number++;
    return isAsStored(value) ? `${sql} = CAST($${number} AS TEXT)` : `${sql} = $${number}`;
  });
  return parts.join(" AND ");
}

/** The values of a condition that are compared, as the database stores them. */
function comparedValues(where: readonly Entry[], columnOf: ColumnOf): Value[] {
  return where
    .filter(([, value]) => value !== null)
    .map(([key, value]) => (isAsStored(value) ? Buffer.from(value) : columnOf(key).write(value)));
}

/** `rows`: all columns of the table. */
function makeStatements<C extends Columns>(
  name: string,
  rows: Picked<RowOf<C>>,
  columnOf: ColumnOf,
): Statements<C> {
  // The text of each shape is made once: the store finds the prepared statement of a text that it has seen far faster than that of
  // an equal one that was just put together.
  const texts = new Map<string, string>();
  const written = ([key, value]: Entry): Value => columnOf(key).write(value);
  const compared = (where: readonly Entry[]) => comparedValues(where, columnOf);
  // Each statement with its parameters.
  const insertion = (row: object, suffix = ""): [string, Params] => {
    const values = withoutUndefined(row);
    const text = texts.getOrInsertComputed(`insert ${keysOf(values)} ${suffix}`, () => {
      const names = values.map(([key]) => columnOf(key).sql).join(", ");
      return `INSERT INTO ${name} (${names}) VALUES (${places(values, 1)}) ${suffix}`;
    });
    return [text, values.map(written)];
  };
  const selection = (where: object): [string, Params] => {
    const entries = Object.entries(where);
    const text = texts.getOrInsertComputed(`select ${shapeOf(entries)}`, () => {
      return `SELECT ${rows.select()} FROM ${name} WHERE ${conditionOf(entries, columnOf) || "1 = 1"} ORDER BY 1`;
    });
    return [text, compared(entries)];
  };
  return {
    all: async (reader, where) => (await reader.all(...selection(where))).map(rows.parse),
    async find(reader, where) {
      const row = await reader.get(...selection(where));
      return row === undefined ? undefined : rows.parse(row);
    },
    async insert(tx, row) {
      await tx.run(...insertion(row));
    },
    upsert(tx, row, conflict) {
      return tx.run(...insertion(row, conflict));
    },
    async insertReturning(tx, row) {
      const made = await tx.get(...insertion(row, `RETURNING ${rows.select()}`));
      if (made === undefined) throw new AppError("internal", `The table ${name} gave no row back`);
      return rows.parse(made);
    },
    async update(tx, where, change) {
      const set = withoutUndefined(change);
      if (set.length === 0) return 0;
      const entries = Object.entries(where);
      const text = texts.getOrInsertComputed(`update ${keysOf(set)} where ${shapeOf(entries)}`, () => {
        const assigned = set.map(([key], at) => `${columnOf(key).sql} = $${at + 1}`).join(", ");
        return `UPDATE ${name} SET ${assigned} WHERE ${conditionOf(entries, columnOf, set.length)}`;
      });
      return tx.run(text, [...set.map(written), ...compared(entries)]);
    },
    async delete(tx, where) {
      const entries = Object.entries(where);
      const text = texts.getOrInsertComputed(
        `delete ${shapeOf(entries)}`,
        () => `DELETE FROM ${name} WHERE ${conditionOf(entries, columnOf)}`,
      );
      return tx.run(text, compared(entries));
    },
  };
}

/** `hostPublicKey` is `host_public_key` in SQL. */
function snakeCase(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
