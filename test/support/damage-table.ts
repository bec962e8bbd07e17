// Damage of a database that is not open.

import { Database } from "bun:sqlite";
import { closeSync, openSync, writeSync } from "node:fs";

/** Overwrites the first page of a table of the SQLite file at `path`. */
export function damageTable(path: string, name: string): void {
  using sqlite = new Database(path);
  const [[page], [size]] = [
    sqlite.query("SELECT rootpage FROM sqlite_master WHERE name = ?").values(name)[0] ?? [],
    sqlite.query("PRAGMA page_size").values()[0] ?? [],
  ];
  // Then all pages are in the file, and none in a write-ahead log.
  sqlite.run("PRAGMA journal_mode = DELETE");
  sqlite.close();
  const fd = openSync(path, "r+");
  writeSync(fd, Buffer.alloc(Number(size), 0xff), 0, Number(size), (Number(page) - 1) * Number(size));
  closeSync(fd);
}
