// `bun test/bench/scale.ts [NODES]`: 10,000 nodes in one organization, on SQLite and on PostgreSQL: start to the first
// answer (bar: 500 ms), the first rename after a start (bar: 30 ms), later ones (bar: median 10 ms), memory (bar: 150 MB).
// Renames come with the processor time of the server and of PostgreSQL, which other programs of the machine lengthen less,
// and beside their floor: one BEGIN, UPDATE and COMMIT by this process, in turns with them, on the same disk and cluster. The list
// of nodes: a page of 100 anywhere in it (bar: 5 ms), and all of it in pages of 1,000 (bar: 1 s).

import { join } from "node:path";
import { SQL } from "bun";
import { paths } from "../support/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, postmasterOf, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { checkins } from "./checkin.ts";
import { openDurable } from "./floor.ts";
import { figure, load, residentKb, startServer, writeRequests, type Program } from "./measure.ts";
import { childrenOf, processorMs } from "./processor.ts";
import { seed, slug } from "./seed.ts";

const runs = 5;
/** Reports of check-ins are written within a second. */
const restMs = 3000;

type Renamed = { ms: number; processorMs: number };

/** Until the answer: the time, and the processor time of the server and its database. */
async function rename(
  { url, pid }: Program,
  admin: string,
  { id, name }: { id: number; name: string },
  postmaster: number | undefined,
): Promise<Renamed> {
  // Listing processes takes milliseconds: not within the time. Sessions that start meanwhile are missed.
  const processes = [pid, ...(postmaster === undefined ? [] : childrenOf(postmaster))];
  const used = processorMs(processes);
  const from = performance.now();
  const answer = await fetch(`${url}${paths.node(slug, id)}`, {
    method: "PATCH",
    headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
    body: JSON.stringify({ name }),
  });
  await answer.text();
  const ms = performance.now() - from;
  if (answer.status !== 200) throw new Error(`PATCH: ${answer.status}`);
  return { ms, processorMs: processorMs(processes) - used };
}

type Floor = AsyncDisposable & { commit(): Promise<unknown> };

const createFloor = "CREATE TABLE floor (id INT PRIMARY KEY, value INT)";
const firstRow = "INSERT INTO floor VALUES (1, 0)";
const update = "UPDATE floor SET value = value + 1 WHERE id = 1";

function sqliteFloor(directory: string): Floor {
  const db = openDurable(join(directory, "floor.db"));
  db.run(createFloor);
  db.run(firstRow);
  const statement = db.prepare(update);
  const transaction = db.transaction(() => statement.run());
  return { commit: async () => transaction.immediate(), [Symbol.asyncDispose]: async () => db.close() };
}

async function postgresFloor(url: string): Promise<Floor> {
  const sql = new SQL(url, { max: 1 });
  await sql.unsafe(createFloor);
  await sql.unsafe(firstRow);
  return {
    commit: () => sql.begin((inside) => inside.unsafe(update)),
    [Symbol.asyncDispose]: () => sql.close(),
  };
}

async function timed({ commit }: Floor): Promise<number> {
  const from = performance.now();
  await commit();
  return performance.now() - from;
}

type Measured = {
  name: string;
  flags: string[];
  admin: string;
  nodes: number;
  directory: string;
  floor: Floor;
  postmaster?: number;
};

async function measure({ name, flags, admin, nodes, directory, floor, postmaster }: Measured) {
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
  const show = (what: string, renamed: readonly Renamed[], beside: Parameters<typeof figure>[2]) => {
    const figures = (key: keyof Renamed) => renamed.map((each) => each[key]);
    figure(`${name}: ${what}`, figures("ms"), { unit: "ms", ...beside });
    figure(`${name}: ${what}, processor`, figures("processorMs"), { unit: "ms" });
  };
  show("first rename after a start", firsts, { most: 30 });
  figure(`${name}: start to first answer`, starts, { unit: "ms", digits: 0, most: 500 });
  await using server = await startServer(flags);
  const everyone = writeRequests(join(directory, "all"), checkins(nodes, nodes));
  await load(server.url, everyone, { seconds: 5 });
  const later = async (when: string, from: number) => {
    const renames: Renamed[] = [];
    const floors: number[] = [];
    for (let run = 0; run < 20; run++) {
      floors.push(await timed(floor));
      const node = { id: from + run, name: `renamed-${from + run}` };
      renames.push(await rename(server, admin, node, postmaster));
    }
    show(`one rename ${when}`, renames, { floor: floors, most: 10 });
  };
  // The server writes the reports of the last second meanwhile.
  await later("right after these check-ins", 4000);
  await Bun.sleep(restMs);
  await later("at rest", 5000);
  figure(`${name}: memory`, residentKb(server.pid) / 1024, { unit: "MB", digits: 0, most: 150 });
  await list(name, server.url, admin, nodes);
}

/** The list of nodes: pages of 100 anywhere in it, and all of it. */
async function list(name: string, url: string, admin: string, nodes: number): Promise<void> {
  const get = async (query: string) => {
    const from = performance.now();
    const answer = await fetch(`${url}/api/org/${slug}/nodes/?${query}`, {
      headers: { Authorization: `Bearer ${admin}` },
    });
    const list: unknown = await answer.json();
    if (!Array.isArray(list)) throw new Error(`${answer.status} ${JSON.stringify(list)}`);
    return { ms: performance.now() - from, length: list.length };
  };
  const pages = [1, 2, 50, 99, 100].filter((page) => page * 100 <= nodes);
  for (let warm = 0; warm < 50; warm++) await get(`page=${pages[warm % pages.length]}`);
  for (const page of pages) {
    const times: number[] = [];
    for (let run = 0; run < 20; run++) {
      const { ms, length } = await get(`page=${page}`);
      if (length !== 100) throw new Error(`Page ${page} has ${length} nodes`);
      times.push(ms);
    }
    figure(`${name}: page ${page} of 100 nodes`, times, { unit: "ms", most: 5 });
  }
  const whole: number[] = [];
  for (let run = 0; run < 5; run++) {
    const from = performance.now();
    let seen = 0;
    for (let page = 1; page <= nodes / 1000; page++)
      seen += (await get(`page=${page}&page_size=1000`)).length;
    if (seen !== nodes) throw new Error(`${seen} nodes`);
    whole.push(performance.now() - from);
  }
  figure(`${name}: all ${nodes} nodes in pages of 1,000`, whole, { unit: "ms", digits: 0, most: 1000 });
}

if (import.meta.main) {
  const nodes = Number(process.argv[2] ?? 10_000);
  buildAgent();
  using directory = temporaryDirectory();
  const sqlite = join(directory.path, "sqlite");
  const seeded = await seed({ dataDirectory: sqlite }, nodes);
  const common = { nodes, directory: directory.path };
  {
    await using floor = sqliteFloor(directory.path);
    await measure({ ...common, name: "SQLite", flags: ["--data-dir", sqlite], admin: seeded.admin, floor });
  }
  await using cluster = await startPostgres();
  const data = {
    dataDirectory: join(directory.path, "data"),
    databaseUrl: await createDatabase(cluster.directory),
  };
  const { admin } = await seed(data, nodes);
  const flags = ["--data-dir", data.dataDirectory, "--database-url", data.databaseUrl];
  await using floor = await postgresFloor(data.databaseUrl);
  await measure({ ...common, name: "PostgreSQL", flags, admin, floor, postmaster: postmasterOf(cluster) });
}
