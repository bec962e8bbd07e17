// How soon a dead router and a dead network leave the routes of others, and what flows notice: with TCP flows through two
// routers, and resets counted by the kernel of the hosts behind them. Usage: bun test/bench/route-failover.ts [ENGINE] [ROUNDS].
// Bars: left within 5 s; flows through the other router have no gap above 1 s; a planned change resets none.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { unsafeRoutes } from "../../src/node/files/config/read-config.ts";
import { buildAgent } from "../support/agent.ts";
import { command, startDaemon, untilStatus } from "../support/daemon.ts";
import { engineNamed, engineNames } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import type { Member } from "../support/members.ts";
import { makeSite, startFlow, type Flow } from "../support/sites.ts";
import { until } from "../support/until.ts";

const name = engineNames.find((each) => each === process.argv[2]) ?? "1.12";
const rounds = Number(process.argv[3] ?? 5);
const engine = engineNamed(name);
buildAgent();

await using scene = await makeHealingScene(engine.nebula, ["hub", "a", "b", "user"]);
const { a, b, plane } = scene;
const user = scene.members[3] ?? a;
const routers = [a, b];
using first = await makeSite(
  "one",
  "192.168.7",
  routers.map(({ host }) => host),
  { device: "lan0" },
);
using second = await makeSite(
  "two",
  "192.168.8",
  routers.map(({ host }) => host),
  { device: "lan1" },
);
const [one, two] = ["192.168.7.0/24", "192.168.8.0/24"] as const;

async function must(done: Promise<{ status: number; stderr: string }>): Promise<void> {
  const { status, stderr } = await done;
  if (status !== 0) throw new Error(stderr);
}
const usedFor = (network: string) =>
  unsafeRoutes(readFileSync(join(user.places.configRoot, "acme/config.yml"), "utf8")).find(
    (each) => each.network === network,
  )?.routers[0];
const uses = (network: string, { ip }: Member, ms = 120_000) =>
  until(() => usedFor(network) === ip, { what: `${network} by ${ip}`, ms, everyMs: 10 });
/** Connects again where that failed: an old engine restarts for a changed route, and has no interface meanwhile. */
async function flowing(address: string): Promise<Flow> {
  for (const end = performance.now() + 60_000; ;) {
    const flow = startFlow(user.host, address);
    await until(() => flow.answers.length > 5 || flow.ended() !== undefined, { what: "answers", ms: 60_000 });
    if (flow.ended() === undefined || performance.now() > end) return flow;
    flow.stop();
    await Bun.sleep(100);
  }
}
const route = (...words: string[]) => must(plane.admin(["route", ...words]));

for (const { places } of routers) {
  const offers = [`${one}@${first.address}+masquerade`, `${two}@${second.address}+masquerade`].join(",");
  await must(command(places, ["sync-config", "--org-slug", "acme", "--advertise", offers]));
}
for (const [network, best] of [
  [one, "a"],
  [two, "b"],
] as const) {
  await route("create", "acme", network, "--via", "a", "--via", "b");
  await route("update", "acme", network, "--via", best, "--metric", "50");
}
await must(plane.admin(["rule", "create", "acme", "--protocol", "tcp", "--ports", "7777"]));
await uses(one, a);
await uses(two, b);

const figures: Record<string, number[]> = {};
const note = (what: string, ms: number) => {
  (figures[what] ??= []).push(Math.round(ms));
  process.stderr.write(`${what} ${Math.round(ms)}\n`);
};
for (let round = 0; round < rounds; round++) {
  // Each relapse doubles the time until a router is used again: a new program has no relapses.
  user.daemon.signal("SIGTERM");
  await user.daemon.exited;
  user.daemon = await startDaemon(user.host, user.places);
  await untilStatus(user.places, "acme", ({ state }) => state === "running");
  // At any moment of the pace of the probes.
  await Bun.sleep(11_000 + Math.random() * 1500);
  const [hit, other] = [await flowing(first.address), await flowing(second.address)];
  // The router dies.
  let at = performance.now();
  a.host.link("down");
  await uses(one, b);
  note("router dead: left after, ms", performance.now() - at);
  await flowing(first.address).then((flow) => flow.stop());
  note("router dead: new flow answered after, ms", performance.now() - at);
  note("router dead: longest gap of the flow by the other router, ms", other.gapSince(at));
  hit.stop();
  a.host.link("up");
  await uses(one, a);
  // What is behind the router goes: its link, then the host that must answer.
  const again = await flowing(first.address);
  at = performance.now();
  first.cable(a.host, "down");
  await uses(one, b);
  note("link behind dead: left after, ms", performance.now() - at);
  note("link behind dead: longest gap of the flow by the other router, ms", other.gapSince(at));
  again.stop();
  first.cable(a.host, "up");
  await uses(one, a);
  at = performance.now();
  a.host.run(["ip", "route", "replace", "blackhole", `${first.address}/32`]);
  await uses(one, b);
  note("target behind silent: left after, ms", performance.now() - at);
  a.host.run(["ip", "route", "del", "blackhole", `${first.address}/32`]);
  await uses(one, a);
  // Planned.
  const kept = await flowing(first.address);
  const resets = first.resets();
  at = performance.now();
  await route("update", "acme", one, "--via", "a", "--maintenance");
  await uses(one, b);
  await flowing(first.address).then((flow) => flow.stop());
  await Bun.sleep(3000);
  note("planned: longest gap of the flow, ms", kept.gapSince(at));
  note("planned: flows that ended", kept.ended() === undefined ? 0 : 1);
  note("planned: resets seen", first.resets() - resets);
  kept.stop();
  await route("update", "acme", one, "--via", "a", "--no-maintenance");
  await uses(one, a);
  other.stop();
}
for (const [what, values] of Object.entries(figures)) {
  const sorted = values.toSorted((x, y) => x - y);
  const middle = sorted[Math.floor(sorted.length / 2)];
  process.stdout.write(
    `${engine.version} ${what}: median ${middle}, ${sorted[0]} to ${sorted.at(-1)} (n ${sorted.length})\n`,
  );
}
