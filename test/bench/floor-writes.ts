// The floor under the API's audited writes: the statements of a changed group (read, update, the end of the chain of
// events, a new event with its hash) in group commits, and nothing else. `bun floor-writes.ts DIRECTORY`.

import { hash } from "node:crypto";
import { join } from "node:path";
import * as v from "valibot";
import { makeGroupCommit, openDurable } from "./group-commit.ts";

const database = openDurable(join(process.argv[2] ?? ".", "writes.db"));
database.run(
  "CREATE TABLE groups (id INTEGER PRIMARY KEY, org_id INT, name TEXT, description TEXT, UNIQUE (org_id, name)) STRICT",
);
database.run(
  "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, org_id INT, at INT, type TEXT, actor TEXT, subject TEXT, before TEXT, after TEXT, hash TEXT) STRICT",
);
database.run("CREATE INDEX events_org ON events (org_id, id)");
for (let at = 0; at < 100; at++)
  database.run("INSERT INTO groups (org_id, name) VALUES (1, ?)", [`group-${at}`]);

const Body = v.strictObject({ description: v.string() });
const Last = v.nullish(v.object({ hash: v.string() }));
const find = database.query("SELECT id, name, description FROM groups WHERE org_id = ?1 AND name = ?2");
const update = database.query("UPDATE groups SET description = ?3 WHERE org_id = ?1 AND name = ?2");
const last = database.query("SELECT hash FROM events WHERE org_id = ?1 ORDER BY id DESC LIMIT 1");
const insert = database.query(
  "INSERT INTO events (org_id, at, type, actor, subject, before, after, hash) VALUES (1, ?1, 'group.updated', ?2, ?3, NULL, NULL, ?4)",
);
const together = makeGroupCommit(database);
const actor = JSON.stringify({ kind: "service", id: 1, ip: "127.0.0.1" });

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  development: false,
  async fetch(request) {
    const { description } = v.parse(Body, await request.json());
    const name = request.url.split("/").at(-2) ?? "";
    const group = await together(() => {
      const before = find.get(1, name);
      update.run(1, name, description);
      const at = Date.now();
      const text = JSON.stringify([1, at, "group.updated", actor, name, null, null]);
      const previous = v.parse(Last, last.get(1))?.hash ?? "";
      insert.run(at, actor, `group/${name}`, hash("sha256", `${previous}\n${text}`, "hex"));
      return before;
    });
    return Response.json(group, { status: group === null ? 404 : 200 });
  },
});
process.on("SIGTERM", () => void server.stop(true).then(() => database.close()));
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
