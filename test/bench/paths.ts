// `bun test/bench/paths.ts`: what reported paths cost the control plane. 10,000 nodes with 20 tunnels each report all of
// them (bar: 40 MB more memory), then two that changed, every 30 s (bar: 5 % of a core). Processor time, so that other
// programs on the machine change little.

import { makeTestServer } from "../support/server.ts";
import { registerNode } from "../support/nodes.ts";
import { listPaths } from "../../src/server/paths/list-paths.ts";
import { pathFigures } from "../../src/server/paths/path-figures.ts";
import { figure, print } from "./measure.ts";

const [nodes, tunnels, rounds] = [10_000, 20, 5];

await using server = await makeTestServer();
const org = await server.organization("acme", "10.64.0.0/10");
const first = await registerNode(server, org, "node-1");
await server.db.write(async (tx) => {
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ${nodes})`;
  await tx.run(
    `INSERT INTO nodes (org_id, name, ip, state, created_at, registered_at) ${numbers}
     SELECT org_id, 'node-' || i, '10.64.' || (i / 250) || '.' || (i % 250 + 1), 'active', created_at, registered_at
     FROM n JOIN nodes ON nodes.id = $1`,
    [first.id],
  );
});

const path = (node: number, at: number, round: number) => {
  const peer = (node + at * 97) % nodes;
  return {
    peer: `10.64.${Math.floor(peer / 250)}.${(peer % 250) + 1}`,
    path: "direct",
    remote: `198.51.${Math.floor(peer / 250)}.${peer % 250}:4242`,
    probe: "answers",
    rtt_ms: 10 + ((at + round * 7) % 40),
    loss: 0,
  };
};
const { pathReports } = server.app.services;

/** All nodes report; the bodies are parsed as those of a check-in are. Returns seconds of processor time. */
async function report(round: number, count: number, whole: boolean): Promise<number> {
  const bodies = Array.from({ length: nodes }, (_, node) =>
    JSON.stringify({
      whole,
      changed: Array.from({ length: count }, (__, at) => path(node, at + round, round)),
    }),
  );
  server.clock.ms += 30_000;
  const before = process.cpuUsage();
  for (const [at, body] of bodies.entries()) {
    if ((await pathReports.take(org.id, first.id + at, JSON.parse(body))) !== "taken")
      throw new Error("refused");
    // As often as it would write in 30 s.
    if (at % (nodes / 60) < 1) await pathReports.stop();
  }
  await pathReports.stop();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

function memory(): number {
  Bun.gc(true);
  return process.memoryUsage.rss() / 1e6;
}

const before = memory();
const all = await report(0, tunnels, true);
const more = memory() - before;
const changed = [];
for (let round = 1; round <= rounds; round++) changed.push((await report(round, 2, false)) / 30);
const timed = async (work: () => Promise<unknown>) => {
  const begun = process.cpuUsage();
  await work();
  return Math.round(process.cpuUsage(begun).user / 1000);
};
const query = { page: 1, page_size: 100, search: "" };
const range = changed.map((each) => 100 * each);
print(`${nodes} nodes report ${tunnels} paths each: ${all.toFixed(1)} s of processor time`);
figure("memory, more than before", more, { unit: "MB", digits: 0, most: 40 });
figure("two changed paths of each node every 30 s", range, { unit: "% of a core", most: 5 });
print(
  `one page of the list, processor time: ${await timed(() => listPaths(server.db, org.id, query, { ownerId: undefined, isOnline: () => true }))} ms`,
);
print(
  `figures for the metrics, processor time, once a minute: ${await timed(() => pathFigures(server.db))} ms`,
);
