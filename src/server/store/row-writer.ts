// Writes many rows of one table with few statements.

import type { Params, Transaction } from "./database.ts";

/** Rows in one statement. Few sizes keep the number of prepared statements small. */
const sizes = [64, 8, 1];

/**
 * `onConflict`: the end of the statement, from the table's columns. Each row has its values in the order of the columns.
 */
export function makeRowWriter(
  { name, columnNames }: { name: string; columnNames: readonly string[] },
  onConflict: (columns: readonly string[]) => string,
): (tx: Transaction, rows: readonly Params[]) => Promise<void> {
  const statementOf = (count: number) => {
    const row = (at: number) => columnNames.map((_, column) => `$${at * columnNames.length + column + 1}`);
    return `INSERT INTO ${name} (${columnNames.join(", ")})
      VALUES ${Array.from({ length: count }, (_, at) => `(${row(at).join(", ")})`).join(", ")}
      ${onConflict(columnNames)}`;
  };
  const statements = sizes.map((size) => ({ size, sql: statementOf(size) }));
  return async (tx, rows) => {
    let first = 0;
    for (const { size, sql } of statements)
      for (; rows.length - first >= size; first += size)
        await tx.run(sql, rows.slice(first, first + size).flat());
  };
}
