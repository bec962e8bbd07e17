// `bun test/bench/policy.ts [ROUNDS]`: planning and applying a policy with 10,000 nodes in 300 combinations of 100 groups
// and 500 rules (bar: 1 s), and how long /healthz takes meanwhile (bar: no answer over 20 ms, beside the same load without
// plans).

import { join } from "node:path";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent } from "../support/agent.ts";
import { makeRandom } from "../support/random.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, spread, startServer, type Program } from "./measure.ts";
import { groups, seed, slug } from "./seed.ts";

const nodes = 10_000;
const combinations = 300;
const rules = 500;

async function giveGroups(dataDirectory: string): Promise<void> {
  const random = makeRandom(1);
  const group = () => `group-${Math.floor(random() * groups)}`;
  const sets = Array.from({ length: combinations }, () => [...new Set([group(), group(), group()])].sort());
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  await db.write(async (tx) => {
    for (let id = 1; id <= nodes; id++) {
      const set = JSON.stringify(sets[id % combinations]);
      await tx.run("UPDATE nodes SET groups = $1 WHERE id = $2", [set, id]);
    }
  });
  await db.close();
}

/** `shift`: another policy of the same size, half of whose rules differ. */
function policyOf(shift: number): string {
  const lines = ["rules:", "  - {direction: outbound, peer: any, target: any}"];
  for (let at = 0; at < rules - 1; at++) {
    const port = 1000 + at + (at % 2 === 0 ? shift : 0);
    lines.push(
      "  - protocol: tcp",
      `    ports: ${port}`,
      `    peer: group:group-${at % groups}`,
      `    target: group:group-${(at * 7) % groups}`,
    );
  }
  lines.push("tests:", "  - accept: {from: group:group-1, to: group:group-7, protocol: tcp, port: 1001}", "");
  return lines.join("\n");
}

/** `queuedMs`: while it took, server or client were ready to run, but other programs had the processors. */
type Answered = { ms: number; queuedMs: number };

/** Asks /healthz every 5 ms in a process of its own. Returns all answers, the longest first. */
function watch({ url, pid }: Pick<Program, "url" | "pid">): { stop(): Promise<Answered[]> } {
  const program = `
    const { readFileSync } = require("node:fs");
    const [url, pid] = process.argv.slice(1);
    const queuedOf = (id) => Number(readFileSync("/proc/" + id + "/schedstat", "utf8").split(" ")[1]) / 1e6;
    const queued = () => queuedOf(pid) + queuedOf("self");
    const answers = [];
    process.on("SIGTERM", () => { console.log(JSON.stringify(answers.sort((a, b) => b.ms - a.ms))); process.exit(0); });
    for (;;) { const [at, before] = [performance.now(), queued()]; await fetch(url).then((a) => a.arrayBuffer());
      answers.push({ ms: performance.now() - at, queuedMs: queued() - before }); await Bun.sleep(5); }`;
  const child = Bun.spawn([process.execPath, "-e", program, `${url}/healthz`, String(pid)], {
    stdout: "pipe",
  });
  return {
    async stop() {
      child.kill();
      const answers: Answered[] = JSON.parse(await new Response(child.stdout).text());
      return answers;
    },
  };
}

function describe(name: string, answers: readonly Answered[]): string {
  const at = (share: number) => answers[Math.floor(answers.length * (1 - share))]?.ms.toFixed(1);
  const longest = answers.slice(0, 5).map(({ ms, queuedMs }) => `${ms.toFixed(1)} (${queuedMs.toFixed(1)})`);
  const own = answers.map(({ ms, queuedMs }) => ms - queuedMs).toSorted((a, b) => b - a);
  return [
    `/healthz ${name}, ms: p50 ${at(0.5)}, p99 ${at(0.99)}, longest without the wait for a processor ${own[0]?.toFixed(1)}`,
    `  longest (of which waiting for a processor): ${longest.join(", ")}`,
  ].join("\n");
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 7);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { admin } = await seed({ dataDirectory: data }, nodes);
  await giveGroups(data);
  await using server = await startServer(["--data-dir", data]);
  const send = async (path: string, body: object) => {
    const begun = performance.now();
    const answer = await fetch(`${server.url}/api/org/${slug}/policy/${path}/`, {
      method: "POST",
      headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
      body: JSON.stringify({ prune: true, ...body }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
    return performance.now() - begun;
  };
  print(`apply first: ${(await send("apply", { policy: policyOf(0) })).toFixed(0)} ms`);
  const quiet = watch(server);
  await Bun.sleep(3000);
  print(describe("without plans", await quiet.stop()));
  const busy = watch(server);
  const plans: number[] = [];
  const applications: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    plans.push(await send("plan", { policy: policyOf(round * 1000) }));
    applications.push(await send("apply", { policy: policyOf(round) }));
  }
  print(describe("with plans", await busy.stop()));
  print(`plan, ms (bar: 1000): ${spread(plans)}`);
  print(`apply, ms: ${spread(applications)}`);
}
