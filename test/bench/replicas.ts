// `bun test/bench/replicas.ts [ROUNDS] [SECONDS] [SHARE]`: audited writes over 50 organizations on one and on three servers
// (bar: three servers at least 2.5 times one). Each server gets SHARE (0.1) of a core, and each commit takes 5 ms / SHARE
// longer: so two cores behave as many, only slower, and what binds is not that the servers take the cores from each other.
// SHARE 1: no limit, commits take 5 ms longer; wants a core for each server and two for PostgreSQL.

import { join } from "node:path";
import { SQL } from "bun";
import * as v from "valibot";
import { realSystem } from "../../src/base/system.ts";
import { operator } from "../../src/server/audit/record.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { createGroup } from "../../src/server/policy/groups.ts";
import { createOrganization } from "../../src/server/organizations/organizations.ts";
import { openData, type DataOptions } from "../../src/server/store/data-directory.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, postmasterOf, startPostgres } from "../support/postgres.ts";
import { makeRandom } from "../support/random.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  describeLoads,
  figure,
  inTurns,
  load,
  print,
  ratios,
  spread,
  startServer,
  writeRequests,
  type Load,
  type Request,
} from "./measure.ts";
import { childrenOf, limitProcessor, processorMs } from "./processor.ts";

const organizations = 50;
const connections = 150;
/** Creates the organizations, each with a group. Returns a service token of each. */
async function furnish(options: DataOptions): Promise<string[]> {
  const system = realSystem();
  const { db, secretKey, clock } = await openData(options, "server", system);
  const services = { db, system, clock, secretKey };
  try {
    const tokens = [];
    for (let at = 0; at < organizations; at++) {
      const request = { slug: `bench-${at}`, network: "10.64.0.0/16" };
      const by = { ownerId: null, ownerEmail: null, actor: operator };
      const org = await createOrganization(services, request, by);
      await createGroup(services, org, { name: "web", description: "" }, operator);
      const maker = { userId: null, actor: operator };
      tokens.push((await createServiceToken(services, org, { name: "bench", role: "admin" }, maker)).token);
    }
    return tokens;
  } finally {
    await db.close();
  }
}

/** Writes of the organizations whose number has this remainder. Each description differs from the others of its group. */
function* descriptions(tokens: readonly string[], servers: number, rest: number): Generator<Request> {
  const random = makeRandom(servers + rest);
  for (let at = 0; at < 20_000; at++) {
    const org = Math.floor(random() * organizations);
    if (org % servers !== rest) continue;
    const path = `/api/org/bench-${org}/groups/web/`;
    yield {
      method: "PATCH",
      path,
      token: tokens[org] ?? "",
      body: { description: `${servers} ${rest} ${at}` },
    };
  }
}

/** The sum of the loads, with the worst latencies. */
function together(loads: readonly Load[]): Load {
  const sum = (key: "requests" | "rate") => loads.reduce((total, each) => total + each[key], 0);
  const worst = (key: "p50Ms" | "p99Ms" | "maxMs") => Math.max(...loads.map((each) => each[key]));
  return {
    requests: sum("requests"),
    rate: sum("rate"),
    p50Ms: worst("p50Ms"),
    p99Ms: worst("p99Ms"),
    maxMs: worst("maxMs"),
  };
}

/** What a load cost, and what its transactions waited for. */
type Cost = { serversMs: number; postgresMs: number; locks: number; sessions: number };

const sessionsSql = `SELECT count(*) FILTER (WHERE wait_event_type = 'Lock') AS locks, count(*) AS sessions
  FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid() AND datname = current_database()`;
const Sessions = v.tuple([
  v.object({ locks: v.pipe(v.string(), v.toNumber()), sessions: v.pipe(v.string(), v.toNumber()) }),
]);

/** Runs the load and looks at the sessions of PostgreSQL meanwhile. Costs are for each write. */
async function observe(
  run: () => Promise<Load>,
  { sql, servers, postmaster }: { sql: SQL; servers: readonly number[]; postmaster: number },
): Promise<Load & Cost> {
  const [serversBefore, postgresBefore] = [processorMs(servers), processorMs(childrenOf(postmaster))];
  const running = run();
  const over = running.then(
    () => true,
    () => true,
  );
  const seen = { locks: 0, sessions: 0 };
  do {
    const [now] = v.parse(Sessions, await sql.unsafe(sessionsSql));
    seen.locks += now.locks;
    seen.sessions += now.sessions;
  } while ((await Promise.race([over, Bun.sleep(20)])) !== true);
  const loaded = await running;
  return {
    ...loaded,
    ...seen,
    serversMs: (processorMs(servers) - serversBefore) / loaded.requests,
    postgresMs: (processorMs(childrenOf(postmaster)) - postgresBefore) / loaded.requests,
  };
}

function describeCosts(costs: readonly Cost[]): string {
  const of = (key: "serversMs" | "postgresMs") =>
    `${spread(
      costs.map((each) => each[key]),
      2,
    )} ms`;
  const sum = (key: "locks" | "sessions") => costs.reduce((total, each) => total + each[key], 0);
  const waiting = ((100 * sum("locks")) / sum("sessions")).toFixed(1);
  return `${" ".repeat(31)}processor of a write: servers ${of("serversMs")}, PostgreSQL ${of("postgresMs")}; ${waiting} % of its sessions waited for a lock`;
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 6);
  const share = Number(process.argv[4] ?? 0.1);
  const delayMs = Math.round(5 / share);
  buildAgent();
  using stack = new DisposableStack();
  const directory = stack.use(temporaryDirectory());
  await using cluster = await startPostgres([
    // Also when no other transaction runs.
    "commit_siblings = 0",
    `commit_delay = ${1000 * delayMs}`,
  ]);
  const options = {
    dataDirectory: join(directory.path, "data"),
    databaseUrl: await createDatabase(cluster.directory),
  };
  const tokens = await furnish(options);
  const flags = ["--data-dir", options.dataDirectory, "--database-url", options.databaseUrl];
  const servers = await Promise.all([0, 1, 2].map(() => startServer(flags)));
  /** As a proxy does that sends the requests of an organization to the same server. */
  const spreadOver = (count: number) =>
    servers.slice(0, count).map(({ url }, rest) => ({
      url,
      requests: writeRequests(join(directory.path, `${count}-${rest}`), descriptions(tokens, count, rest)),
    }));
  const loadOn = async (parts: ReturnType<typeof spreadOver>) =>
    together(
      await Promise.all(
        parts.map(({ url, requests }) =>
          load(url, requests, { seconds, connections: connections / parts.length }),
        ),
      ),
    );
  const [one, three] = [spreadOver(1), spreadOver(3)];
  // Compiled code: first writes cost several times more.
  for (const server of [
    ...one,
    ...servers.slice(1).map(({ url }) => ({ url, requests: one[0]?.requests ?? "" })),
  ])
    await load(server.url, server.requests, { seconds, connections });
  if (share < 1) for (const { pid } of servers) stack.use(limitProcessor(pid, share));
  await using sql = new SQL(options.databaseUrl, { max: 1 });
  const observed = {
    sql,
    servers: servers.map(({ pid }) => pid),
    postmaster: postmasterOf(cluster),
  };
  const seen = await inTurns(rounds, {
    one: () => observe(() => loadOn(one), observed),
    three: () => observe(() => loadOn(three), observed),
  });
  print(`each server has ${share} of a core, a commit takes ${delayMs} ms longer`);
  for (const [name, loads] of [
    ["one server", seen.one],
    ["three servers", seen.three],
  ] as const)
    print(`${describeLoads(name, loads)}\n${describeCosts(loads)}`);
  figure("three servers, of one", ratios(seen.three, seen.one), { digits: 2, least: 2.5 });
  for (const server of servers) await server.stop();
}
