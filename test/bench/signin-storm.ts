// `bun test/bench/signin-storm.ts [SECONDS]`: check-ins of 100,000 nodes, each once a minute (bar: p99 20 ms, 400 MB), and
// the same while 32 people sign in again and again (bar: p99 50 ms).

import { join } from "node:path";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { checkins } from "./checkin.ts";
import { load, print, residentKb, startServer, writeRequests, type Load } from "./measure.ts";
import { password, seed } from "./seed.ts";

const nodes = 100_000;
const people = 32;
/** 64 connections that pause 38 ms on average send 1,667 a second. */
const pace = { connections: 64, pauseMs: 38 };

function describe(name: string, { rate, p50Ms, p99Ms, maxMs }: Load, bar: number): string {
  const latencies = `p50 ${p50Ms.toFixed(1)}, p99 ${p99Ms.toFixed(1)}, longest ${maxMs.toFixed(0)} ms`;
  return `${name.padEnd(30)} ${rate.toFixed(0)} a second: ${latencies}, bar p99 ${bar}`;
}

if (import.meta.main) {
  const seconds = Number(process.argv[2] ?? 20);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { people: emails } = await seed({ dataDirectory: data }, nodes, { people });
  const requests = writeRequests(join(directory.path, "requests"), checkins(nodes, nodes));
  await using server = await startServer(["--data-dir", data]);
  // All nodes once, so that all are in memory.
  await load(server.url, requests, { seconds: 10 });
  const calm = await load(server.url, requests, { seconds, ...pace });
  print(describe("check-ins of 100,000 nodes", calm, 20));
  print(`memory                         ${(residentKb(server.pid) / 1024).toFixed(0)} MB, bar 400`);

  const storm = new AbortController();
  let signedIn = 0;
  const signIn = async (email: string) => {
    while (!storm.signal.aborted) {
      const body = JSON.stringify({ email, password });
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch(`${server.url}${tokenPairsApi.create.path}`, {
        method: "POST",
        headers,
        body,
      });
      if (answer.status !== 200) throw new Error(`Signing in: ${answer.status} ${await answer.text()}`);
      await answer.body?.cancel();
      signedIn++;
    }
  };
  const stormy = Promise.all(emails.map(signIn));
  const storming = await load(server.url, requests, { seconds, ...pace });
  storm.abort();
  await stormy;
  print(describe("the same in a sign-in storm", storming, 50));
  print(`sign-ins meanwhile             ${(signedIn / seconds).toFixed(1)} a second, ${people} at once`);
  await server.stop();
}
