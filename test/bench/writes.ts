// `bun test/bench/writes.ts [ROUNDS] [SECONDS]`: audited, durable writes a second beside a bare program that does the
// same statements in group commits (bar: 0.5 of it), and how many of them share an fsync.

import { join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  countFsyncs,
  describeFloor,
  describeLoads,
  figure,
  guide,
  inTurns,
  load,
  print,
  ratios,
  startFloor,
  startServer,
  writeRequests,
  type Request,
} from "./measure.ts";
import { groups, seed, slug } from "./seed.ts";

/** Each description differs from the one before it in its group. */
function* descriptions(token: string): Generator<Request> {
  for (let at = 0; at < 20_000; at++) {
    const path = `/api/org/${slug}/groups/group-${at % groups}/`;
    yield { method: "PATCH", path, token, body: { description: `of turn ${at}` } };
  }
}

/** Each changes its row, also in the second pass over the rows: SQLite writes nothing where nothing changes. */
export function* updates(rows: number): Generator<Request> {
  for (let at = 0; at < rows * 4; at++) {
    const value = Bun.hash(`${at}`).toString(36).repeat(15).slice(0, 200);
    yield { method: "POST", path: "/", body: { id: (at % rows) + 1, value } };
  }
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 3);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { admin } = await seed({ dataDirectory: data }, 1000);
  const requests = writeRequests(join(directory.path, "requests"), descriptions(admin));
  const rows = writeRequests(join(directory.path, "updates"), updates(10_000));
  await using commit = await startFloor("commit", [directory.path]);
  await using floor = await startFloor("writes", [directory.path]);
  await using server = await startServer(["--data-dir", data]);
  const loads = await inTurns(rounds, {
    commit: () => load(commit.url, rows, { seconds }),
    floor: () => load(floor.url, requests, { seconds }),
    server: () => load(server.url, requests, { seconds }),
  });
  print(describeFloor("bare group commit", loads.commit, guide.commit));
  print(describeLoads("the same statements, bare", loads.floor));
  print(describeLoads("PATCH of a group", loads.server));
  figure("of the floor", ratios(loads.server, loads.floor), { digits: 2, least: 0.5 });
  await server.stop();
  const fsyncs = join(directory.path, "fsyncs");
  const traced = await startServer(["--data-dir", data], { fsyncs });
  const { requests: sent } = await load(traced.url, requests, { seconds: 2 });
  await traced.stop();
  print(countFsyncs(fsyncs, sent));
}
