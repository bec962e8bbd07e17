// The floor under memory at rest and under the start: Bun.serve with one SQLite file. `floor-rest DIRECTORY`.

import { Database } from "bun:sqlite";
import { join } from "node:path";

const database = new Database(join(process.argv.at(-1) ?? ".", "rest.db"), { create: true, strict: true });
database.run("PRAGMA journal_mode = WAL");
database.run("CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, value TEXT) STRICT");
const count = database.query("SELECT count(*) AS n FROM entries");
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  development: false,
  fetch: () => Response.json(count.get()),
});
process.on("SIGTERM", () => void server.stop(true).then(() => database.close()));
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
