// The floor under durable writes: POST, parse, one UPDATE in a group commit, answer. `bun floor-commit.ts DIRECTORY ROWS`.

import { join } from "node:path";
import * as v from "valibot";
import { makeGroupCommit, openDurable } from "./group-commit.ts";

const [directory = ".", rows = "10000"] = process.argv.slice(2);
const database = openDurable(join(directory, "floor.db"));
database.run("CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT");
database.run(
  `WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < ${Number(rows)})
   INSERT OR IGNORE INTO entries SELECT id, '' FROM ids`,
);

const Body = v.strictObject({ id: v.number(), value: v.string() });
const update = database.query("UPDATE entries SET value = $value WHERE id = $id");
const together = makeGroupCommit(database);

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  development: false,
  async fetch(request) {
    const body = v.parse(Body, await request.json());
    const changes = await together(() => update.run(body).changes);
    return Response.json({ changes }, { status: changes === 1 ? 200 : 404 });
  },
});
process.on("SIGTERM", () => void server.stop(true).then(() => database.close()));
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
