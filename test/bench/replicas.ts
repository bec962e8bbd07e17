// `bun test/bench/replicas.ts [ROUNDS] [SECONDS] [DELAY]`: audited writes over 50 organizations on one and on three
// servers, on a PostgreSQL whose every commit takes DELAY (5) ms longer (bar: three servers at least 2.5 times one). Wants
// a core for each server and two for PostgreSQL: on fewer, a longer delay shows how many commits run side by side.

import { join } from "node:path";
import { realSystem } from "../../src/system.ts";
import { operator } from "../../src/server/audit/record.ts";
import { createServiceToken } from "../../src/server/people/service-tokens.ts";
import { createGroup } from "../../src/server/policy/groups.ts";
import { createOrganization } from "../../src/server/policy/organizations.ts";
import { openData, type DataOptions } from "../../src/server/store/data-directory.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, startPostgres } from "../support/postgres.ts";
import { makeRandom } from "../support/random.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  describeLoads,
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

const organizations = 50;
const connections = 150;
/** Creates the organizations, each with a group. Returns a service token of each. */
async function furnish(options: DataOptions): Promise<string[]> {
  const system = realSystem();
  const { db, secretKey } = await openData(options, "server", system);
  const services = { db, system, secretKey };
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

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 5);
  const delayMs = Number(process.argv[4] ?? 5);
  buildAgent();
  using directory = temporaryDirectory();
  await using cluster = await startPostgres([
    // Also when no other transaction runs.
    "commit_siblings = 0",
    `commit_delay = ${delayMs * 1000}`,
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
  const loads = await inTurns(rounds, { one: () => loadOn(one), three: () => loadOn(three) });
  print(describeLoads("one server", loads.one));
  print(describeLoads("three servers", loads.three));
  print(`three servers of one           ${spread(ratios(loads.three, loads.one), 2)}, bar 2.5`);
  for (const server of servers) await server.stop();
}
