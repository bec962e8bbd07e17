// A seeded control plane on PostgreSQL, and requests to it as the owner and the nodes send them.

import { join } from "node:path";
import { paths } from "./paths.ts";
import { seed, slug, tokenOf } from "../bench/seed.ts";
import { createDatabase, type Postgres } from "./postgres.ts";

/** A new database with this many nodes. `flags`: for `agent serve`. */
export async function prepare(cluster: Postgres, directory: string, nodes: number, uses?: number) {
  const data = join(directory, "data");
  const databaseUrl = await createDatabase(cluster.directory);
  const seeded = await seed({ dataDirectory: data, databaseUrl }, nodes, uses === undefined ? {} : { uses });
  return { ...seeded, data, databaseUrl, flags: ["--database-url", databaseUrl] };
}

export function send(url: string, method: string, path: string, token: string | undefined, body?: unknown) {
  return fetch(`${url}${path}`, {
    method,
    headers: {
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    keepalive: false,
  });
}

/** With `waitS`, waits until there is a version other than `version`. */
export function checkin(url: string, id: number, version = 1, waitS = 0): Promise<Response> {
  return fetch(`${url}${paths.checkin(slug, id)}`, {
    method: "POST",
    headers: {
      Authorization: `Bearer ${tokenOf(id)}`,
      "Content-Type": "application/json",
      ...(waitS === 0 ? {} : { Prefer: `wait=${waitS}` }),
    },
    body: JSON.stringify({ version: "0.1.0", uptime: 1, config_version: version }),
  });
}
