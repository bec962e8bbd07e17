// `bun test/bench/databases.ts [ROUNDS] [SECONDS]`: the same requests on SQLite and on PostgreSQL of this machine, in
// turns, printed side by side: check-ins, pages of the list, audited writes, registrations.

import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { checkins } from "./checkin.ts";
import {
  describeLoads,
  inTurns,
  load,
  print,
  ratios,
  spread,
  startServer,
  writeRequests,
  type Request,
} from "./measure.ts";
import { registrations } from "./registration.ts";
import { groups, seed, slug, type Seeded } from "./seed.ts";

const nodes = 1000;

function* pages(token: string): Generator<Request> {
  for (let page = 1; page <= 10; page++) {
    yield { method: "GET", path: `${paths.nodes(slug)}?page=${page}`, token };
  }
}

function* descriptions(token: string): Generator<Request> {
  for (let at = 0; at < 20_000; at++) {
    const path = `/api/org/${slug}/groups/group-${at % groups}/`;
    yield { method: "PATCH", path, token, body: { description: `of turn ${at}` } };
  }
}

type Contestant = { url: string; seeded: Seeded };

/** Requests that may be sent again and again. */
const repeatable: Record<string, (seeded: Seeded) => Iterable<Request>> = {
  "check-in": () => checkins(nodes, 20_000),
  "list of nodes, 100 a page": ({ admin }) => pages(admin),
  "audited write": ({ admin }) => descriptions(admin),
};

async function compare(
  name: string,
  rounds: number,
  sqlite: () => ReturnType<typeof load>,
  postgres: () => ReturnType<typeof load>,
): Promise<void> {
  await sqlite();
  await postgres();
  const loads = await inTurns(rounds, { sqlite, postgres });
  print(describeLoads(`${name}, SQLite`, loads.sqlite));
  print(describeLoads(`${name}, PostgreSQL`, loads.postgres));
  print(`PostgreSQL of SQLite           ${spread(ratios(loads.postgres, loads.sqlite), 2)}\n`);
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 3);
  buildAgent();
  using directory = temporaryDirectory();
  await using cluster = await startPostgres();
  const small = { dataDirectory: join(directory.path, "sqlite") };
  const large = {
    dataDirectory: join(directory.path, "postgres"),
    databaseUrl: await createDatabase(cluster.directory),
  };
  const [first, second] = [await seed(small, nodes), await seed(large, nodes)];
  await using onSqlite = await startServer(["--data-dir", small.dataDirectory]);
  const words = ["--data-dir", large.dataDirectory, "--database-url", large.databaseUrl];
  await using onPostgres = await startServer(words);
  const sqlite: Contestant = { url: onSqlite.url, seeded: first };
  const postgres: Contestant = { url: onPostgres.url, seeded: second };

  for (const [name, requests] of Object.entries(repeatable)) {
    const run = ({ url, seeded }: Contestant) => {
      const file = writeRequests(join(directory.path, `requests-${new URL(url).port}`), requests(seeded));
      return () => load(url, file, { seconds });
    };
    await compare(name, rounds, run(sqlite), run(postgres));
  }
  // More than any machine can do, so that none is sent twice.
  const most = 1500 * seconds;
  let made = 0;
  const register =
    ({ url, seeded }: Contestant) =>
    () => {
      const file = join(directory.path, "registrations");
      writeRequests(file, registrations(slug, seeded.registration, made, most));
      made += most;
      return load(url, file, { seconds });
    };
  await compare("registration", rounds, register(sqlite), register(postgres));
}
