// `bun test/bench/policy.ts [ROUNDS]`: planning and applying a policy with 10,000 nodes in 300 combinations of 100 groups
// and 500 rules (bar: 1 s), and how long /healthz takes meanwhile (bar: no answer over 20 ms, beside the same load without
// plans).

import { join } from "node:path";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/system.ts";
import { buildAgent } from "../support/agent.ts";
import { makeRandom } from "../support/random.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, spread, startServer } from "./measure.ts";
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

/** Asks /healthz every 5 ms in a process of its own, and prints the longest answers of each run in ms. */
function watch(url: string): { stop(): Promise<number[]> } {
  const program = `
    const times = [];
    process.on("SIGTERM", () => { console.log(JSON.stringify(times.sort((a, b) => b - a).slice(0, 5))); process.exit(0); });
    for (;;) { const at = performance.now(); await fetch(process.argv[1]).then((a) => a.arrayBuffer());
      times.push(performance.now() - at); await Bun.sleep(5); }`;
  const child = Bun.spawn([process.execPath, "-e", program, url], { stdout: "pipe" });
  return {
    async stop() {
      child.kill();
      const longest: number[] = JSON.parse(await new Response(child.stdout).text());
      return longest;
    },
  };
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
  const quiet = watch(`${server.url}/healthz`);
  await Bun.sleep(3000);
  print(
    `longest answers of /healthz without plans, ms: ${(await quiet.stop()).map((each) => each.toFixed(1)).join(" ")}`,
  );
  const busy = watch(`${server.url}/healthz`);
  const plans: number[] = [];
  const applications: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    plans.push(await send("plan", { policy: policyOf(round * 1000) }));
    applications.push(await send("apply", { policy: policyOf(round) }));
  }
  print(
    `longest answers of /healthz with plans, ms: ${(await busy.stop()).map((each) => each.toFixed(1)).join(" ")}`,
  );
  print(`plan, ms (bar: 1000): ${spread(plans)}`);
  print(`apply, ms: ${spread(applications)}`);
}
