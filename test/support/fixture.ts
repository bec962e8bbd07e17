// A control plane of version 0.1.0 (559ec55): a database of schema version 5 in the first phase of a CA rotation, with its
// secret key and valid tokens.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Database as Sqlite } from "bun:sqlite";
import * as v from "valibot";

const directory = join(import.meta.dir, "../fixtures");

/** Creates and fills the tables of a new SQLite database. */
export const fixtureSql = readFileSync(join(directory, "0.1.0.sql"), "utf8");

const Node = v.object({
  credentials: v.object({ node_id: v.number(), api_token: v.string() }),
  hostKey: v.string(),
  nodeKey: v.string(),
});

export const fixture = v.parse(
  v.object({
    made_at: v.string(),
    secret_key: v.pipe(
      v.string(),
      v.transform((text) => new Uint8Array(Buffer.from(text, "base64url"))),
    ),
    password: v.string(),
    owner: v.string(),
    member: v.string(),
    session: v.object({ access: v.string(), refresh: v.string() }),
    service_token: v.string(),
    registration_token: v.string(),
    nodes: v.object({ lighthouse: Node, alpha: Node, beta: Node, gone: Node }),
  }),
  JSON.parse(readFileSync(join(directory, "0.1.0.json"), "utf8")),
);

/** Writes the fixture's database to a new path. */
export function writeFixture(path: string): void {
  using database = new Sqlite(path, { create: true, strict: true });
  database.run(fixtureSql);
}
