import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { OrganizationHealth } from "../../../src/node/health/organization-health.ts";
import { makeNodeWorld } from "../../support/node.ts";

test("a check returns at once when the engine has stopped", async () => {
  await using world = await makeNodeWorld();
  const place = await world.register();
  writeFileSync(
    join(place.directory, "config.yml"),
    JSON.stringify({ lighthouse: { hosts: ["10.77.0.9"] } }),
  );
  let isRunning = true;
  const waits: number[] = [];
  const health = new OrganizationHealth(place, {
    system: {
      ...world.system,
      sleep: (ms: number) => {
        waits.push(ms);
        return new Promise<void>(() => {});
      },
    },
    monotonic: () => 1000,
    open: async () => ({ send: () => true, close() {} }),
    engine: async () => (isRunning ? { pid: 1, version: "1.12.0" } : undefined),
    tunnels: async () => [],
    recentLog: async () => [],
  });
  await health.check(0, { all: false });
  expect(health.prober.targets()).toEqual(["10.77.0.9"]);
  expect(health.look()?.lighthouses).toEqual({ answering: 0, of: 1 });
  isRunning = false;
  waits.length = 0;
  await health.check(60_000, { all: false });
  await health.check(60_000, { all: true });
  expect(waits).toEqual([]);
  expect(health.look()).toBeUndefined();
  expect(health.peers()).toEqual([]);
});
