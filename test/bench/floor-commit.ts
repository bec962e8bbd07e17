// The floor under durable writes: POST, parse, one UPDATE, and all requests of one turn of the event loop in one
// commit that is on disk (synchronous=FULL) before any of them is answered. `bun floor-commit.ts DIRECTORY ROWS`.

import { Database } from "bun:sqlite";
import { join } from "node:path";
import * as v from "valibot";

const [directory = ".", rows = "10000"] = process.argv.slice(2);
const database = new Database(join(directory, "floor.db"), { create: true, strict: true });
for (const pragma of ["busy_timeout = 5000", "journal_mode = WAL", "synchronous = FULL"]) {
  database.run(`PRAGMA ${pragma}`);
}
database.run("CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT");
database.run(
  `WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < ${Number(rows)})
   INSERT OR IGNORE INTO entries SELECT id, '' FROM ids`,
);

const Body = v.strictObject({ id: v.number(), value: v.string() });
const update = database.query("UPDATE entries SET value = $value WHERE id = $id");
const begin = database.query("BEGIN IMMEDIATE");
const commit = database.query("COMMIT");
type Waiting = { body: v.InferOutput<typeof Body>; answer(changes: number): void };
let waiting: Waiting[] = [];

function flush(): void {
  const batch = waiting;
  waiting = [];
  begin.run();
  const changes = batch.map(({ body }) => update.run(body).changes);
  commit.run();
  for (const [at, { answer }] of batch.entries()) answer(changes[at] ?? 0);
}

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  development: false,
  async fetch(request) {
    const body = v.parse(Body, await request.json());
    const changes = await new Promise<number>((answer) => {
      if (waiting.push({ body, answer }) === 1) setImmediate(flush);
    });
    return Response.json({ changes }, { status: changes === 1 ? 200 : 404 });
  },
});
process.on("SIGTERM", () => void server.stop(true).then(() => database.close()));
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
