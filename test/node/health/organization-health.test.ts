import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { OrganizationHealth } from "../../../src/node/health/organization-health.ts";
import { writeHosts } from "../../../src/node/files/hosts.ts";
import { isUnknown } from "../../../src/node/health/shown-peer.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { quietEngine } from "../../support/quiet-engine.ts";

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
    ...quietEngine,
    system: {
      ...world.system,
      sleep: (ms: number) => {
        waits.push(ms);
        return new Promise<void>(() => {});
      },
    },
    engine: async () => (isRunning ? { pid: 1, version: "1.12.0", ageMs: 60_000 } : undefined),
  });
  await health.check(0, "lighthouses");
  expect(health.prober.targets()).toEqual(["10.77.0.9"]);
  expect(health.current()?.lighthouses).toEqual({ answering: 0, of: 1 });
  isRunning = false;
  waits.length = 0;
  await health.check(60_000, "lighthouses");
  await health.check(60_000, "all");
  expect(waits).toEqual([]);
  expect(health.current()).toBeUndefined();
  expect(health.peers()).toEqual([]);
});

test("a lighthouse whose engine reports no tunnels lists the other lighthouse, and probes it only when asked", async () => {
  await using world = await makeNodeWorld();
  const place = await world.register();
  const other = "10.77.0.9";
  const config = {
    lighthouse: { am_lighthouse: true, hosts: [] },
    static_host_map: { [other]: ["192.0.2.9:4242"], "192.168.1.1": ["192.0.2.8:4242"] },
  };
  writeFileSync(join(place.directory, "config.yml"), JSON.stringify(config));
  const make = (tunnels: [] | undefined) =>
    new OrganizationHealth(place, {
      ...quietEngine,
      system: world.system,
      engine: async () => ({ pid: 1, version: "1.6.1", ageMs: 60_000 }),
      tunnels: async () => tunnels,
    });
  const old = make(undefined);
  await old.check(0, "lighthouses");
  expect(old.prober.targets()).toEqual([]);
  const { peers } = await old.readPeers(0);
  expect(peers.map(({ address, path }) => [address, path])).toEqual([[other, "unknown"]]);
  expect(old.prober.targets()).toEqual([other]);
  expect(old.current()).toMatchObject({ verdict: "not_probed", is_lighthouse: true });
  expect((await make([]).readPeers(0)).peers).toEqual([]);
});

test("two answers in a row tell that the clock of this machine is wrong, one that is right ends it", async () => {
  await using world = await makeNodeWorld();
  const place = await world.register();
  const health = new OrganizationHealth(place, {
    ...quietEngine,
    system: world.system,
  });
  await health.check(0, "lighthouses");
  const answer = (aheadMs: number) =>
    health.reporter.noteAnswer({ server_time: new Date(world.system.now() - aheadMs).toISOString() });
  const said = () => health.current()?.findings?.filter(({ kind }) => kind === "clock_differs");
  answer(7_200_000);
  // It may have waited while the machine slept.
  expect(said()).toEqual([]);
  answer(7_200_000);
  expect(said()).toMatchObject([
    { light: "note", what: "The clock of this machine is 2 hours ahead of the control plane's" },
  ]);
  // The control plane is not told of a note: it compares by itself.
  expect(health.reporter.findingKind()).not.toBe("clock_differs");
  answer(60_000);
  expect(said()).toEqual([]);
});

test.each(["db", "10.77.0.9"])(
  "in a sealed network, a node that is asked for as %s is shown with its address outside of that network",
  async (asked) => {
    await using world = await makeNodeWorld();
    const place = await world.register();
    const [sealed, plain] = ["10.77.0.9", "10.77.0.5"];
    writeFileSync(
      join(place.directory, "node-config.json"),
      JSON.stringify({ ...place.config, sealed_names: { db: [sealed, plain] } }),
    );
    const print = "f".repeat(64);
    const node = { id: 9, name: "db", ip: plain };
    writeHosts(place.directory, { schema: 1, version: 1, view: "all", nodes: [node], aliases: [] });
    const tunnel = {
      vpnAddrs: [sealed],
      localIndex: 1,
      messageCounter: 1,
      currentRemote: "192.0.2.9:4242",
      currentRelaysToMe: [],
      cert: { details: { name: "db", notAfter: "2030-01-01T00:00:00Z", groups: [] }, fingerprint: print },
    };
    const health = new OrganizationHealth(place, {
      ...quietEngine,
      system: world.system,
      tunnels: async () => [tunnel],
    });
    const { peers } = await health.readPeers(0, asked);
    expect(peers).toMatchObject([{ name: "db", address: plain, path: "direct" }]);
    writeFileSync(join(place.directory, "config.yml"), JSON.stringify({ pki: { blocklist: [print] } }));
    expect((await health.readPeers(0, asked)).peers.filter((each) => !isUnknown(each))).toEqual([]);
  },
);
