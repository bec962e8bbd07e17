// What updates in rings cost a control plane with 100,000 nodes while nothing happens: the last ring is watched. The bar is 2 % of a
// core. Also how long it takes to start one. Usage: bun test/bench/rollouts.ts [NODES]

import { operator } from "../../src/server/audit/record.ts";
import { createRollout } from "../../src/server/rollout/rollouts.ts";
import { advanceRollouts, makeRollouts } from "../../src/server/rollout/rollout-turn.ts";
import { registerNode } from "../support/nodes.ts";
import { makeTestServer } from "../support/server.ts";

const count = Number(process.argv[2] ?? 100_000);
const barPercent = 2;
const print = (line: string) => void process.stdout.write(`${line}\n`);

await using server = await makeTestServer();
const acme = await server.organization("acme", "10.0.0.0/12");
const { services } = server.app;
const now = server.clock.ms;
await server.db.write(async (tx) => {
  for (let at = 1; at <= count; at++) {
    const ip = `10.${(at >> 16) & 15}.${(at >> 8) & 255}.${at & 255}`;
    await tx.run(
      `INSERT INTO nodes (org_id, name, ip, state, created_at, registered_at, overlay_version, agent_version, may_update, platform)
       VALUES ($1, $2, $3, 'active', $4, $4, $5, '0.2.0', 'agent,engine 60', 'linux')`,
      [acme.id, `node${at}`, ip, now, at % 3 === 0 ? "1.10.3" : "1.11.1"],
    );
  }
  await tx.run(
    `INSERT INTO sightings (node_id, last_checkin_at, reported_version) SELECT id, $1, '0.2.0' FROM nodes WHERE org_id = $2`,
    [now, acme.id],
  );
});
// One node checks in all the time meanwhile.
const node = await registerNode(server, acme, "beside");
const times: number[] = [];
const isOver = new AbortController();
const beside = (async () => {
  while (!isOver.signal.aborted) {
    const from = performance.now();
    await node.checkin({});
    times.push(performance.now() - from);
    await Bun.sleep(10);
  }
})();
const quantiles = () => {
  const sorted = times.splice(0).sort((a, b) => a - b);
  const at = (share: number) => (sorted[Math.floor(sorted.length * share)] ?? 0).toFixed(1);
  return `check-ins beside: median ${at(0.5)} ms, p99 ${at(0.99)} ms, longest ${at(0.9999)} ms (${sorted.length})`;
};
await Bun.sleep(2000);
print(`before: ${quantiles()}`);
const begun = performance.now();
const wanted = { engine: "1.12.0", groups: [], hours: [], watch_s: 1800 };
const { id } = await createRollout(services, acme, wanted, operator);
print(`answer to the start of a rollout with ${count} nodes: ${Math.round(performance.now() - begun)} ms`);
const ringOf = async () => (await server.db.get("SELECT ring FROM rollouts"))?.["ring"];
while ((await ringOf()) === 0) await advanceRollouts(services);
print(`all nodes written after ${Math.round(performance.now() - begun)} ms; ${quantiles()}`);
isOver.abort();
await beside;

const costOf = async (what: string) => {
  const turns: number[] = [];
  for (let at = 0; at < 5; at++) {
    const from = performance.now();
    await advanceRollouts(services);
    turns.push(performance.now() - from);
  }
  const ms = turns.toSorted((a, b) => a - b)[2] ?? 0;
  print(`a turn while ${what}: ${ms.toFixed(1)} ms (${turns.map((each) => each.toFixed(0)).join(", ")})`);
};
const set = (ring: number, state: string) =>
  server.db.write(async (tx) => {
    await tx.run("UPDATE rollouts SET ring = $1 WHERE id = $2", [ring, id]);
    await tx.run("UPDATE rollout_nodes SET state = $1, at = $2 WHERE rollout_id = $3 AND ring = $4", [
      state,
      now - 60_000,
      id,
      ring,
    ]);
  });
await set(3, "applied");
await costOf("25 % are watched");
await set(4, "applied");
await costOf("all are watched");

// The loop itself: only its own turns count, because nothing else of a control plane runs here.
const turn = makeRollouts({
  ...services,
  system: { ...services.system, monotonic: () => performance.now() },
});
// Several rests of the loop, which last up to 45 s.
const seconds = 180;
let busyMs = 0;
for (let at = 0; at < seconds; at++) {
  const from = process.cpuUsage();
  await turn();
  const { user, system } = process.cpuUsage(from);
  busyMs += (user + system) / 1000;
  await Bun.sleep(1000);
}
const percent = busyMs / (seconds * 10);
print(`processor of the loop: ${percent.toFixed(2)} % of a core (bar ${barPercent} %)`);
process.exitCode = percent < barPercent ? 0 : 1;
