// 100,000 nodes on three servers of one PostgreSQL: each node checks in once a minute at any of the servers, so each server
// knows all of them. Beside bare handlers that get the same requests at the same rate. About ten minutes.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { checkins } from "../bench/checkin.ts";
import {
  anonymousMb,
  load,
  median,
  print,
  residentKb,
  spread,
  startFloor,
  startServer,
  writeRequests,
  type Load,
} from "../bench/measure.ts";
import { processorMs, queuedMs } from "../bench/processor.ts";
import { seed, slug } from "../bench/seed.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, describePostgres, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const nodes = Number(process.env["FLEET_NODES"] ?? 100_000);
const servers = 3;
const rounds = 5;
/** Of the servers; the floors get half of it. */
const seconds = Number(process.env["FLEET_SECONDS"] ?? 50);
const pauseMs = 100;
/** So that each node checks in once a minute. */
const connections = Math.round((nodes / 60 / servers) * (pauseMs / 1000));
const maxMs = 20;
const maxMb = 200;

/** Creates a group each second at one server after the other, until it is stopped. Returns how long each took, ms. */
function administer(urls: readonly string[], admin: string, round: number) {
  const times: number[] = [];
  const over = new AbortController();
  const run = async () => {
    for (let at = 0; !over.signal.aborted; at++) {
      const from = performance.now();
      const answer = await fetch(`${urls[at % urls.length]}${paths.organization(slug)}groups/`, {
        method: "POST",
        headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
        body: JSON.stringify({ name: `made-${round}-${at}` }),
      });
      expect([answer.status, await answer.text()]).toEqual([201, expect.any(String)]);
      times.push(performance.now() - from);
      await Bun.sleep(1000);
    }
  };
  const running = run();
  const stop = async () => {
    over.abort();
    await running;
    return times;
  };
  return { stop };
}

describePostgres("a hundred thousand nodes on three servers", () => {
  test("check-ins are answered in time, and no server needs much memory", async () => {
    buildAgent();
    using directory = temporaryDirectory();
    await using cluster = await startPostgres();
    const data = {
      dataDirectory: join(directory.path, "data"),
      databaseUrl: await createDatabase(cluster.directory),
    };
    const { admin } = await seed(data, nodes);
    const flags = ["--data-dir", data.dataDirectory, "--database-url", data.databaseUrl];
    await using stack = new AsyncDisposableStack();
    const programs = await Promise.all(Array.from({ length: servers }, () => startServer(flags)));
    const floors = await Promise.all(Array.from({ length: servers }, () => startFloor("handler")));
    for (const each of [...programs, ...floors]) stack.use(each);
    const requests = writeRequests(join(directory.path, "requests"), checkins(nodes, nodes));
    // Each server hears of each node, so that it has all of them in memory.
    for (const { url } of programs)
      await load(url, requests, { seconds: Math.ceil(nodes / 5000), connections: 32 });

    const atRate = (urls: readonly string[], length: number): Promise<Load[]> =>
      Promise.all(
        urls.map((url) => load(url, requests, { seconds: Math.ceil(length), connections, pauseMs })),
      );
    const seen = { servers: [] as Load[], floors: [] as Load[], writes: [] as number[] };
    const pids = programs.map(({ pid }) => pid);
    const before = processorMs(pids);
    let queued = 0;
    for (let round = 0; round < rounds; round++) {
      seen.floors.push(
        ...(await atRate(
          floors.map(({ url }) => url),
          seconds / 2,
        )),
      );
      const administration = administer(
        programs.map(({ url }) => url),
        admin,
        round,
      );
      queued -= queuedMs(pids);
      seen.servers.push(
        ...(await atRate(
          programs.map(({ url }) => url),
          seconds,
        )),
      );
      queued += queuedMs(pids);
      seen.writes.push(...(await administration.stop()));
    }
    const used = processorMs(pids) - before;
    const count = seen.servers.reduce((sum, each) => sum + each.requests, 0);
    const p99 = (loads: readonly Load[]) => loads.map((each) => each.p99Ms);
    const resident = programs.map(({ pid }) => residentKb(pid) / 1024);
    const anonymous = programs.map(({ pid }) => anonymousMb(pid));
    print(
      `${nodes} nodes, ${(count / seconds / rounds).toFixed(0)} check-ins a second on ${servers} servers`,
    );
    print(`check-ins, p99 of each server  ${spread(p99(seen.servers), 2)} ms, bar ${maxMs}`);
    print(`bare handlers, p99 of each     ${spread(p99(seen.floors), 2)} ms`);
    print(
      `check-ins, p50                 ${spread(
        seen.servers.map((each) => each.p50Ms),
        2,
      )} ms`,
    );
    print(`processor of a check-in        ${((1000 * used) / count).toFixed(0)} µs, all other work included`);
    // Nearly all of a high p99: see how much of each second other programs took from a server that had work.
    print(
      `waiting for a processor        ${(queued / seconds / rounds / servers).toFixed(0)} ms of each second of a server`,
    );
    print(`creating a group               ${spread(seen.writes, 1)} ms`);
    print(
      `memory of each server          ${spread(resident)} MB, bar ${maxMb}; anonymous ${spread(anonymous)} MB`,
    );
    for (const each of resident) expect(each).toBeLessThan(maxMb);
    // What the machine itself takes is in both.
    expect(median(p99(seen.servers)) - median(p99(seen.floors))).toBeLessThan(maxMs);
    for (const each of programs) await each.stop();
  }, 3_600_000);
});
