// `bun test/bench/sums.ts [ROUNDS]`: what the sums for the console cost a control plane: 10,240 nodes in 33 groups with 61,440
// reported paths by group, their five-minute count, and 100,000 events by hour. Processor time, and the longest piece of it without
// a pause, in which no other request gets its chance (bar: 20 ms). Beside them a floor: the same rows read without a sum, at once.

import { countOnline } from "../../src/server/metrics/online-history.ts";
import { countEvents, listEventsBefore } from "../../src/server/audit/read.ts";
import { makeGroupPaths } from "../../src/server/paths/group-paths.ts";
import { registerNode } from "../support/nodes.ts";
import { makeTestServer } from "../support/server.ts";
import { median, print, spread } from "./measure.ts";

const [nodes, each, groups, events, hourMs] = [10_240, 6, 33, 100_000, 3_600_000];
const rounds = Number(process.argv[2] ?? 9);
const barMs = 20;

await using server = await makeTestServer();
const org = await server.organization("acme", "10.64.0.0/10");
const first = await registerNode(server, org, "node-1");
const { db, services } = { db: server.db, services: server.app.services };
const now = server.clock.ms;
const hours = 24 * 7;
await db.write(async (tx) => {
  const numbers = (to: number) =>
    `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${to})`;
  const address = (of: string) =>
    `'10.' || (65 + (${of}) / 62500) || '.' || ((${of}) / 250 % 250) || '.' || ((${of}) % 250 + 1)`;
  await tx.run(
    `INSERT INTO nodes (org_id, name, ip, state, groups, created_at, registered_at) ${numbers(nodes)}
     SELECT org_id, 'n-' || i, ${address("i")}, 'active', '["group-' || (i % ${groups}) || '","eu"]', created_at, registered_at
     FROM n JOIN nodes ON nodes.id = $1`,
    [first.id],
  );
  await tx.run(
    "INSERT INTO sightings (node_id, last_checkin_at) SELECT id, $1 FROM nodes WHERE name LIKE 'n-%' AND id % 11 > 0",
    [now],
  );
  for (let at = 1; at <= each; at++)
    await tx.run(
      `INSERT INTO paths (node_id, peer, org_id, path, relays, probe, rtt_us, at) ${numbers(nodes)}
       SELECT nodes.id, ${address(`(i + ${at * 97}) % ${nodes} + 1`)}, org_id,
         CASE WHEN i % 40 = 0 THEN 'relayed' ELSE 'direct' END, '[]',
         CASE WHEN i % 2000 = 0 THEN 'broken' ELSE 'answers' END, 1000 * (i % 90 + 1), $1
       FROM n JOIN nodes ON nodes.name = 'n-' || i`,
      [now],
    );
  await tx.run(
    `INSERT INTO events (org_id, at, type, actor, subject, before, after, hash, chain_bytes) ${numbers(events)}
     SELECT ${org.id}, $1 + i * $2, CASE WHEN i % 9 = 0 THEN 'node.updated' WHEN i % 7 = 0 THEN 'rule.updated' ELSE 'certificate.renewed' END,
       '{"kind":"person","id":1,"ip":"192.0.2.7"}', 'node/' || i, '{"groups":["web"]}', '{"groups":["web","eu","canary","of a year"]}',
       '0000000000000000000000000000000000000000000000000000000000000000', NULL FROM n`,
    [now - hours * hourMs, Math.floor((hours * hourMs) / events)],
  );
});

/** Processor time of the work, and of its longest piece, ms. */
async function measure(work: () => Promise<unknown>): Promise<{ all: number; piece: number }> {
  const used = (since: NodeJS.CpuUsage) => {
    const { user, system } = process.cpuUsage(since);
    return (user + system) / 1000;
  };
  const seen = { isDone: false, piece: 0 };
  const watch = (async () => {
    for (let before = process.cpuUsage(); !seen.isDone; before = process.cpuUsage()) {
      await new Promise((resolve) => void setImmediate(resolve));
      seen.piece = Math.max(seen.piece, used(before));
    }
  })();
  const began = process.cpuUsage();
  await work();
  const all = used(began);
  seen.isDone = true;
  await watch;
  return { all, piece: seen.piece };
}

const works: Record<string, () => Promise<unknown>> = {
  "floor: the rows of nodes and paths": () =>
    Promise.all([
      db.all("SELECT * FROM nodes LEFT JOIN sightings ON node_id = id WHERE org_id = $1", [org.id]),
      db.all("SELECT * FROM paths WHERE org_id = $1", [org.id]),
    ]),
  "nodes and paths by group": () => makeGroupPaths(services).of(org.id, undefined),
  "the count of five minutes": async () => {
    await db.write((tx) => tx.run("DELETE FROM online_counts"));
    await countOnline({ ...services, groupPaths: makeGroupPaths(services) });
  },
  "the paths between two groups": async () =>
    (await makeGroupPaths(services).of(org.id, undefined)).between("group-1", "group-2"),
  "events by hour, a week": () => countEvents(db, org.id, 7, now),
  "a page of the events of one hour": () =>
    listEventsBefore(db, org.id, {
      before: Number.MAX_SAFE_INTEGER,
      limit: 100,
      from: now - 99 * hourMs,
      until: now - 98 * hourMs,
    }),
};
const { answer } = await makeGroupPaths(services).of(org.id, undefined);
const { totals } = answer;
print(
  `${totals.nodes} nodes, ${totals.direct + totals.relayed + totals.broken} pairs with a path, ${answer.pairs.length} pairs of groups, ${JSON.stringify(answer).length} bytes`,
);
for (const [name, work] of Object.entries(works)) {
  const [all, pieces]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    const { all: took, piece } = await measure(work);
    all.push(took);
    pieces.push(piece);
  }
  const verdict = name.startsWith("floor") || median(pieces) < barMs ? "" : `, MISSED: bar ${barMs}`;
  print(`${name.padEnd(36)}${spread(all)} ms; longest piece ${spread(pieces, 1)} ms${verdict}`);
}
