// `bun test/bench/flows.ts [nodes]`: what flows cost, on a table with today and 30 full days of 20 kinds of each node. Check-ins
// while 1,000 nodes report (bar: 1.02 of those without), a proposal for 10,000 nodes (bar: 5 s), the deletion of a day, and as
// root what a node with 1,000 new flows a second spends (bar: 0.2 % of a core). 10,000 nodes take some minutes and 1 GB of disk.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { realSystem } from "../../src/base/system.ts";
import { collectFlows } from "../../src/node/edge/collect-flows.ts";
import { noteTaken, readCollected } from "../../src/node/files/flows-state.ts";
import { proposePolicy } from "../../src/server/flows/propose-policy.ts";
import { deleteEnded } from "../../src/server/retention/ended-records.ts";
import { makeLan } from "../support/namespaces.ts";
import { registerNode } from "../support/nodes.ts";
import { makeTestServer } from "../support/server.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { figure, median, print } from "./measure.ts";

const nodes = Number(process.argv[2] ?? 10_000);
const reporting = 1000;
const kinds = 20;
const fullDays = 30;
const dayMs = 86_400_000;

await using server = await makeTestServer();
const org = await server.organization("acme", "10.64.0.0/10");
const first = await registerNode(server, org, "node-1");
const address = (at: number) => `10.64.${Math.floor(at / 250)}.${(at % 250) + 1}`;
await server.db.write(async (tx) => {
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ${nodes})`;
  await tx.run(
    `INSERT INTO nodes (org_id, name, ip, state, created_at, registered_at, groups) ${numbers}
     SELECT org_id, 'node-' || i, '10.64.' || (i / 250) || '.' || (i % 250 + 1), 'active', created_at, registered_at,
       '["group-' || (i % 100) || '"]' FROM n JOIN nodes ON nodes.id = $1`,
    [first.id],
  );
  await tx.run(
    `INSERT INTO addresses (org_id, host, node_id) ${numbers} SELECT $1, (i / 250) * 256 + i % 250 + 1, $2 + i - 1 FROM n`,
    [org.id, first.id],
  );
  await tx.run("UPDATE organizations SET flows = 1 WHERE id = $1", [org.id]);
  for (let at = 0; at < 200; at++)
    await tx.run(
      `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, description, created_at)
       VALUES ($1, 'inbound', 'tcp', '1-9999', $2, $3, '', 0)`,
      [
        org.id,
        JSON.stringify(at % 10 === 0 ? { any: true } : { group: `group-${at % 100}` }),
        JSON.stringify({ group: `group-${(at * 7) % 100}` }),
      ],
    );
});

const { flowReports } = server.app.services;
let ids = 0;
const reportOf = (node: number) => ({
  id: `boot-${++ids}`,
  from: 300,
  to: 0,
  rest: 0,
  unseen_s: 0,
  rows: Array.from({ length: kinds }, (_, at) => ({
    peer: address((node + at * 97) % nodes),
    incoming: at % 2 === 0,
    protocol: "tcp",
    port: 1000 + (at % 7),
    flows: 5,
    answered: 5,
  })),
});

// Plain check-ins with and without reports that arrive as those of 1,000 nodes do, in short turns: the median of all of each
// kind, since what other work of the machine does to one turn is many times what is measured. Times in ms.
async function checkins(forMs: number, withFlows: boolean, times: number[]): Promise<void> {
  let node = 0;
  const send = () => void flowReports.take(org, first.id + 1 + (node++ % reporting), reportOf(node));
  const timer = withFlows ? setInterval(send, 300_000 / reporting) : undefined;
  for (const end = performance.now() + forMs; performance.now() < end;) {
    const begun = performance.now();
    await first.checkin();
    times.push(performance.now() - begun);
  }
  clearInterval(timer);
}
/** Processor time of one report, ms. */
async function reports(count: number): Promise<number> {
  const start = process.cpuUsage();
  const taken: Promise<string>[] = [];
  for (let node = 0; node < count; node++) {
    taken.push(flowReports.take(org, first.id + node, reportOf(node)));
    if (node % 500 === 499) await flowReports.stop();
  }
  await flowReports.stop();
  if ((await Promise.all(taken)).some((each) => each !== "taken")) throw new Error("refused");
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000 / count;
}
const onEmpty = await reports(nodes);
for (let ago = 1; ago <= fullDays; ago++)
  await server.db.write((tx) =>
    tx.run(
      `INSERT INTO flows SELECT node_id, day - $1, side, peer, address, protocol, port, org_id, flows, answered,
         first_at - $2, last_at - $2, unseen_s, '', (day - $1) / 10 FROM flows WHERE day = $3`,
      [ago, ago * dayMs, Math.floor(server.clock.ms / dayMs)],
    ),
  );
const onFull = await reports(Math.min(nodes, reporting));
print(
  `a report with ${kinds} kinds: ${onEmpty.toFixed(2)} ms of processor time, with ${fullDays} days ${onFull.toFixed(2)} ms`,
);

await checkins(2000, false, []);
const ratios: number[] = [];
for (let trial = 0; trial < 5; trial++) {
  const times = { with: [] as number[], without: [] as number[] };
  for (let turn = 0; turn < 16; turn++)
    await (turn % 2 === 0 ? checkins(700, false, times.without) : checkins(700, true, times.with));
  ratios.push(median(times.with) / median(times.without));
}
figure("time of check-ins while 1,000 nodes report flows, of those without", ratios, {
  digits: 3,
  most: 1.02,
});

const times: number[] = [];
for (let round = 0; round < 5; round++) {
  const begun = performance.now();
  await proposePolicy(server.db, org.id, {}, server.clock.ms);
  times.push((performance.now() - begun) / 1000);
}
figure(`a proposal for ${nodes} nodes with 200 rules, ${kinds} kinds each and ${fullDays} days`, times, {
  unit: "s",
  digits: 2,
  most: 5,
});

server.clock.ms += dayMs;
const begun = performance.now();
await deleteEnded(server.app.services, 400 * dayMs, () => false);
print(`the deletion of a day of ${nodes} nodes: ${((performance.now() - begun) / 1000).toFixed(1)} s`);
server.clock.ms -= dayMs;

if (process.getuid?.() === 0) await measureNode();

/** A node with 1,000 new flows a second of 200 kinds: what its agent and nft spend on five minutes of them. */
async function measureNode(): Promise<void> {
  using lan = makeLan(["a", "b"]);
  using directory = temporaryDirectory();
  const [a, b] = [lan.host("a"), lan.host("b")];
  writeFileSync(join(directory.path, "config.yml"), "tun:\n  dev: eth0\n");
  let spentMs = 0;
  let bootS = 1000;
  const real = realSystem();
  const context = {
    slug: "acme",
    directory: directory.path,
    system: {
      ...real,
      bootTime: () => ({ id: "boot", isShared: true, ms: bootS * 1000 }),
      // With the processor time of nft.
      async run(argv: readonly string[], options: { input?: string } = {}) {
        const stdin = options.input === undefined ? ("ignore" as const) : new Blob([options.input]);
        const child = Bun.spawn(a.inside(argv), { stdin, stdout: "pipe", stderr: "pipe" });
        const [stdout, stderr] = await Promise.all([
          new Response(child.stdout).text(),
          new Response(child.stderr).text(),
        ]);
        const status = await child.exited;
        const time = child.resourceUsage()?.cpuTime;
        spentMs += Number(time?.total ?? 0) / 1000;
        return { status, stdout, stderr, timedOut: false };
      },
    },
  };
  const why = await collectFlows(context, 300);
  if (why !== undefined) throw new Error(why);
  const send = `
    for (let port = 0; port < 5000; port++) await new Promise((done) => { const s = require("node:dgram").createSocket("udp4");
      s.send("x", 7000 + port % 200, "${a.address}", () => { s.close(); done(); }); });`;
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    b.run([process.execPath, "-e", send]);
    bootS += 300;
    spentMs = 0;
    const own = process.cpuUsage();
    const failed = await collectFlows(context, 300);
    if (failed !== undefined) throw new Error(failed);
    const used = process.cpuUsage(own);
    times.push(((spentMs + (used.user + used.system) / 1000) / 300_000) * 100);
    const collected = readCollected(directory.path);
    const seen = collected?.rows.reduce((sum, row) => sum + row.flows, 0);
    // A port of the sender that is used again soon is the same flow.
    if (seen === undefined || seen > 5000 || seen < 4950) throw new Error(`${seen} flows of 5000`);
    noteTaken(directory.path, collected?.id ?? "");
  }
  const unit = { unit: "% of a core", digits: 4 };
  figure("a node collects 200 kinds of flows every five minutes", times, unit);
  const rules = join(directory.path, "rules");
  writeFileSync(rules, a.run(["nft", "list", "ruleset"]));
  const tracking = join(directory.path, "tracking");
  writeFileSync(
    tracking,
    "table inet firewall {\nchain in {\ntype filter hook input priority 0\nct state established accept\n}\n}\n",
  );
  const load = (file?: string) => {
    a.run(["nft", "flush", "ruleset"]);
    if (file !== undefined) a.run(["nft", "-f", file]);
  };
  // The receiver's kernel counts in the time of the sender, whose packets cross no real network: microseconds of one flow.
  const spentOf = (file?: string) => {
    load(file);
    const { resourceUsage } = Bun.spawnSync(b.inside([process.execPath, "-e", send]));
    return Number(resourceUsage.cpuTime.total) / 5000;
  };
  for (const [beside, bar, file] of [
    ["beside a firewall with states", { most: 0.2 }, tracking],
    ["where nothing else tracks connections", {}, undefined],
  ] as const) {
    const added = Array.from({ length: 15 }, () => spentOf(rules) - spentOf(file));
    // 1,000 flows a second, each of so many microseconds: a tenth of it is the share of a core in percent.
    const kernel = Math.max(0, median(added)) / 10;
    const whole = times.map((own) => own + kernel);
    figure(`a node with 1,000 new flows a second, ${beside}: kernel and agent`, whole, { ...unit, ...bar });
  }
}
