// `bun test/bench/scale.ts [NODES]`: 10,000 nodes in one organization, on SQLite and on PostgreSQL: start to the first
// answer (bar: 500 ms), the first rename after a start (bar: 30 ms), later ones (bar: median 10 ms), memory (bar: 150 MB).
// Renames come with the processor time of the server and of PostgreSQL, which other programs of the machine lengthen less.

import { join } from "node:path";
import { paths } from "../../src/protocol/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, postmasterOf, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { checkins } from "./checkin.ts";
import {
  load,
  median,
  print,
  residentKb,
  spread,
  startServer,
  writeRequests,
  type Program,
} from "./measure.ts";
import { childrenOf, processorMs } from "./processor.ts";
import { seed, slug } from "./seed.ts";

const runs = 5;

type Renamed = { ms: number; processorMs: number };

/** Until the answer: the time, and the processor time of the server and its database. */
async function rename(
  { url, pid }: Program,
  admin: string,
  { id, name }: { id: number; name: string },
  postmaster: number | undefined,
): Promise<Renamed> {
  const processes = () => [pid, ...(postmaster === undefined ? [] : childrenOf(postmaster))];
  const [from, used] = [performance.now(), processorMs(processes())];
  const answer = await fetch(`${url}${paths.node(slug, id)}`, {
    method: "PATCH",
    headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
    body: JSON.stringify({ name }),
  });
  await answer.text();
  const took = { ms: performance.now() - from, processorMs: processorMs(processes()) - used };
  if (answer.status !== 200) throw new Error(`PATCH: ${answer.status}`);
  return took;
}

type Measured = {
  name: string;
  flags: string[];
  admin: string;
  nodes: number;
  directory: string;
  postmaster?: number;
};

async function measure({ name, flags, admin, nodes, directory, postmaster }: Measured) {
  const starts: number[] = [];
  const firsts: Renamed[] = [];
  for (let run = 0; run < runs; run++) {
    const from = performance.now();
    await using server = await startServer(flags);
    const answer = await fetch(`${server.url}/healthz`);
    if (answer.status !== 200) throw new Error(`/healthz: ${answer.status}`);
    starts.push(performance.now() - from);
    firsts.push(
      await rename(server, admin, { id: 1000 + run, name: `first-${run}-${Date.now()}` }, postmaster),
    );
  }
  const shown = (renamed: readonly Renamed[]) =>
    `${spread(
      renamed.map(({ ms }) => ms),
      1,
    )} ms, processor ${spread(
      renamed.map((each) => each.processorMs),
      1,
    )} ms`;
  print(`${name}: first rename after a start ${shown(firsts)}, bar 30`);
  print(`${name}: start to first answer ${spread(starts)} ms, bar 500`);
  await using server = await startServer(flags);
  const everyone = writeRequests(join(directory, "all"), checkins(nodes, nodes));
  await load(server.url, everyone, { seconds: 5 });
  const renames: Renamed[] = [];
  for (let run = 0; run < 20; run++)
    renames.push(await rename(server, admin, { id: 4000 + run, name: `renamed-${run}` }, postmaster));
  print(`${name}: one rename ${shown(renames)}, bar: median 10`);
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
  const common = { nodes, directory: directory.path };
  await measure({ ...common, name: "SQLite", flags: ["--data-dir", sqlite], admin: seeded.admin });
  await using cluster = await startPostgres();
  const data = {
    dataDirectory: join(directory.path, "data"),
    databaseUrl: await createDatabase(cluster.directory),
  };
  const { admin } = await seed(data, nodes);
  const flags = ["--data-dir", data.dataDirectory, "--database-url", data.databaseUrl];
  await measure({ ...common, name: "PostgreSQL", flags, admin, postmaster: postmasterOf(cluster) });
}
