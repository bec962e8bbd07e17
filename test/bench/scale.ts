// `bun test/bench/scale.ts [NODES]`: 10,000 nodes in one organization, on SQLite and on PostgreSQL: start to the first
// answer (bar: 500 ms), a node renamed (bar: 20 ms), memory (bar: 150 MB).

import { join } from "node:path";
import { paths } from "../../src/protocol.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { checkins } from "./checkin.ts";
import { load, median, print, residentKb, spread, startServer, writeRequests } from "./measure.ts";
import { seed, slug } from "./seed.ts";

const runs = 5;

async function measure(name: string, flags: string[], admin: string, nodes: number, directory: string) {
  const starts: number[] = [];
  for (let run = 0; run < runs; run++) {
    const from = performance.now();
    await using server = await startServer(flags);
    const answer = await fetch(`${server.url}/healthz`);
    if (answer.status !== 200) throw new Error(`/healthz: ${answer.status}`);
    starts.push(performance.now() - from);
  }
  print(`${name}: start to first answer ${spread(starts)} ms, bar 500`);
  await using server = await startServer(flags);
  const everyone = writeRequests(join(directory, "all"), checkins(nodes, nodes));
  await load(server.url, everyone, { seconds: 5 });
  const renames: number[] = [];
  for (let run = 0; run < 20; run++) {
    const from = performance.now();
    const answer = await fetch(`${server.url}${paths.node(slug, 4000 + run)}`, {
      method: "PATCH",
      headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
      body: JSON.stringify({ name: `renamed-${run}` }),
    });
    await answer.text();
    if (answer.status !== 200) throw new Error(`PATCH: ${answer.status}`);
    renames.push(performance.now() - from);
  }
  print(`${name}: one rename ${spread(renames, 1)} ms, the first ${renames[0]?.toFixed(1)}, bar 20`);
  print(
    `${name}: memory ${(residentKb(server.pid) / 1024).toFixed(0)} MB, bar 150 (${median(starts).toFixed(0)} ms to start)`,
  );
}

if (import.meta.main) {
  const nodes = Number(process.argv[2] ?? 10_000);
  buildAgent();
  using directory = temporaryDirectory();
  const sqlite = join(directory.path, "sqlite");
  const seeded = await seed({ dataDirectory: sqlite }, nodes);
  await measure("SQLite", ["--data-dir", sqlite], seeded.admin, nodes, directory.path);
  await using cluster = await startPostgres();
  const data = {
    dataDirectory: join(directory.path, "data"),
    databaseUrl: await createDatabase(cluster.directory),
  };
  const { admin } = await seed(data, nodes);
  const flags = ["--data-dir", data.dataDirectory, "--database-url", data.databaseUrl];
  await measure("PostgreSQL", flags, admin, nodes, directory.path);
}
