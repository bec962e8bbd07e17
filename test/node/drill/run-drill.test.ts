// A node's part in a drill: the rules in the kernel, the order that it takes once, and for how long it does not ask.

import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { makeLog } from "../../../src/base/log.ts";
import { realSystem } from "../../../src/base/system.ts";
import { deadPortBody } from "../../../src/node/drill/dead-port.ts";
import { runDrill, type DrillDeps } from "../../../src/node/drill/run-drill.ts";
import { drillLeftMs, planeAwayMs, readDrill } from "../../../src/node/files/drill-state.ts";
import { resumeDrill, takeDrill } from "../../../src/node/contact/requests/drill-orders.ts";
import { putTable, readTable } from "../../../src/platform/nftables.ts";
import { asRoot } from "../../support/engines.ts";
import { makeLan } from "../../support/namespaces.ts";
import { writeOrganization } from "../../support/organization-engines.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

const log = makeLog({ verbose: false, write: () => {}, now: Date.now, stamped: false });

function makeNode() {
  const root = temporaryDirectory();
  const started: string[] = [];
  const clock = { ms: 1_000_000 };
  writeOrganization(root.path, "acme");
  const place = { slug: "acme", directory: join(root.path, "acme") };
  const system = { now: () => clock.ms };
  const edge = { log, system, startDrill: async (slug: string) => void started.push(slug) };
  return { place, started, clock, edge, [Symbol.dispose]: () => root[Symbol.dispose]() };
}

const order = { order: 7, kind: "control-plane-away", begins_in_ms: 5000, ends_in_ms: 65_000 };

test("an order is taken once, and the control plane is not asked until its end", async () => {
  using node = makeNode();
  const { place, clock } = node;
  await takeDrill(order, place, node.edge);
  await takeDrill(order, place, node.edge);
  expect(node.started).toEqual(["acme"]);
  expect(planeAwayMs(place.directory, false, clock.ms)).toBe(65_000);
  expect(planeAwayMs(place.directory, true, clock.ms)).toBe(0);
  expect(planeAwayMs(place.directory, false, clock.ms + 65_000)).toBe(0);
});

test("a clock that was set back ends a drill instead of making it longer", async () => {
  using node = makeNode();
  await takeDrill(order, node.place, node.edge);
  expect(planeAwayMs(node.place.directory, false, node.clock.ms - 3_600_000)).toBe(0);
});

test("other kinds do not keep the node from asking; a dead one is resumed after its end to remove the table", async () => {
  using node = makeNode();
  const { place, clock } = node;
  await takeDrill({ ...order, kind: "lighthouse-away", dead: true }, place, node.edge);
  expect(planeAwayMs(place.directory, false, clock.ms)).toBe(0);
  clock.ms += 3_600_000;
  const drill = readDrill(place.directory);
  expect(drill === undefined ? undefined : drillLeftMs(drill, clock.ms)).toBe(0);
  await resumeDrill(place, node.edge);
  expect(node.started).toEqual(["acme", "acme"]);
});

test("drills take 10 minutes at once, then a tenth of the time, however often the control plane begins one", async () => {
  using node = makeNode();
  const { place, clock, edge } = node;
  const began = clock.ms;
  let awayMs = 0;
  for (let number = 1; number <= 100; number++) {
    await takeDrill({ ...order, order: number, begins_in_ms: 0, ends_in_ms: 600_000 }, place, edge);
    const away = planeAwayMs(place.directory, false, clock.ms);
    awayMs += away;
    clock.ms += Math.max(away, 300_000);
  }
  expect(readDrill(place.directory)?.order).toBe(100);
  expect(awayMs).toBeLessThanOrEqual(605_000 + (clock.ms - began) / 10);
  expect(awayMs).toBeGreaterThan((clock.ms - began) / 20);
});

test("neither a begin before its order nor a clock that was set back makes room for more drills", async () => {
  using node = makeNode();
  const { place, clock, edge } = node;
  clock.ms = 100_000_000;
  await takeDrill({ ...order, order: 1, ends_in_ms: 600_000 }, place, edge);
  await takeDrill({ ...order, order: 3, begins_in_ms: -1_000_000, ends_in_ms: -1_000_000 }, place, edge);
  clock.ms -= 50_000_000;
  await takeDrill({ ...order, order: 4, begins_in_ms: 590_000, ends_in_ms: 600_000 }, place, edge);
  expect(planeAwayMs(place.directory, false, clock.ms)).toBe(0);
  // Longer than any drill may be, it would begin tomorrow.
  clock.ms += 500_000_000;
  await takeDrill({ ...order, order: 5, begins_in_ms: 80_000_000, ends_in_ms: 80_600_000 }, place, edge);
  expect(planeAwayMs(place.directory, false, clock.ms + 80_000_000)).toBe(0);
  await takeDrill({ ...order, order: 6 }, place, edge);
  expect(planeAwayMs(place.directory, false, clock.ms)).toBe(65_000);
});

/** No peer, and a clock that only sleep moves. */
function depsOf({ place, clock }: ReturnType<typeof makeNode>, report: DrillDeps["report"]): DrillDeps {
  return {
    ...place,
    tunnels: async () => [],
    report,
    openEcho: async () => "absent",
    system: {
      ...realSystem(),
      now: () => clock.ms,
      monotonic: () => clock.ms,
      sleep: async (ms) => void (clock.ms += Math.ceil(ms)),
    },
    log,
  };
}

test("a refused drill leaves the port open, and says why", async () => {
  using node = makeNode();
  const { place, edge } = node;
  await takeDrill({ ...order, order: 1, ends_in_ms: 605_000 }, place, edge);
  await takeDrill({ ...order, order: 2, kind: "relay-away", dead: true }, place, edge);
  const told: unknown[] = [];
  await runDrill(depsOf(node, async (report) => void told.push(report)));
  expect(told).toMatchObject([
    { order: 2, state: "refused", reason: expect.stringContaining("10 minutes at once") },
    { order: 2, state: "ended" },
  ]);
});

test("a refused drill without the control plane is reported, too", async () => {
  using node = makeNode();
  const { place, edge } = node;
  await takeDrill({ ...order, order: 1, ends_in_ms: 605_000 }, place, edge);
  await takeDrill({ ...order, order: 3 }, place, edge);
  const told: unknown[] = [];
  await runDrill(depsOf(node, async (report) => void told.push(report)));
  expect(told).toMatchObject([
    { order: 3, state: "refused", reason: expect.stringContaining("10 minutes at once") },
    { order: 3, state: "ended" },
  ]);
});

test("an aborted drill ends at once, and counts with the time that it took", async () => {
  using node = makeNode();
  const { place, edge, clock } = node;
  const began = clock.ms;
  await takeDrill({ ...order, order: 1, begins_in_ms: 0, ends_in_ms: 600_000 }, place, edge);
  const told: unknown[] = [];
  const deps = depsOf(node, async (report) => void told.push(report));
  const sleep: DrillDeps["system"]["sleep"] = async (ms, signal) => {
    await deps.system.sleep(ms, signal);
    const abort = { ...order, order: 2, begins_in_ms: 0, ends_in_ms: 0 };
    if (clock.ms - began > 20_000) await takeDrill(abort, place, edge);
  };
  await runDrill({ ...deps, system: { ...deps.system, sleep } });
  expect(told).toMatchObject([{ order: 1, state: "ended" }]);
  expect(clock.ms - began).toBeLessThan(30_000);
  expect(readDrill(place.directory)).toMatchObject({ order: 2, isDone: true });
  await takeDrill({ ...order, order: 4, begins_in_ms: 0, ends_in_ms: 570_000 }, place, edge);
  expect(planeAwayMs(place.directory, false, clock.ms)).toBe(570_000);
});

test("an order that comes while the former drill ends is carried out, and not forgotten", async () => {
  using node = makeNode();
  const { place, edge } = node;
  await takeDrill({ ...order, order: 1, kind: "relay-away" }, place, edge);
  const told: number[] = [];
  const deps = depsOf(node, async (report) => {
    told.push(report.order);
    // The last report of a drill ends it on the control plane, which may begin the next one at once.
    if (report.order === 1) await takeDrill({ ...order, order: 3, kind: "relay-away" }, place, edge);
  });
  await runDrill(deps);
  expect(told).toEqual([1, 3]);
  expect(readDrill(place.directory)).toMatchObject({ order: 3, isDone: true });
});

test("the rules name one port, and only while it is in the set", () => {
  expect(deadPortBody(4242, 15_000)).toBe(
    `set port {
  type inet_service; flags timeout;
  elements = { 4242 timeout 15000ms }
}
chain in {
  type filter hook input priority -150; policy accept;
  udp dport @port drop
}
chain out {
  type filter hook output priority -150; policy accept;
  udp sport @port drop
}`,
  );
});

asRoot("in a network namespace", () => {
  test.skipIf(!existsSync("/usr/sbin/nft"))("the kernel ends it by itself", async () => {
    using lan = makeLan(["a"]);
    const host = lan.host("a");
    const run = (argv: readonly string[], options?: object) =>
      realSystem().run(["/usr/bin/nsenter", `--net=/run/netns/${host.namespace}`, "--", ...argv], options);
    const system = { platform: "linux" as const, run };
    expect(await putTable("drill", "acme", deadPortBody(4242, 1500), system)).toBeUndefined();
    expect(await readTable("drill", "acme", system)).toContain("4242");
    await until(async () => (await readTable("drill", "acme", system))?.includes("4242") === false);
  });
});
