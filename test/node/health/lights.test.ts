// Lights over hours: random faults of a simulated network, each held for an hour of the agent's time. A tenth of them in
// ordinary tests.

import { expect, test } from "bun:test";
import { localApi } from "../../../src/node/engine/local-api.ts";
import { Healer } from "../../../src/node/health/healer.ts";
import type { OrganizationHealth } from "../../../src/node/health/organization-health.ts";
import { writePeerMap } from "../../../src/node/files/config/peer-map.ts";
import { writeRouterFile } from "../../../src/node/routing/router-file.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { ReplayedNetwork } from "../../support/replayed-network.ts";
import { instants } from "../../support/soak.ts";

const faults = 200;
const hourMs = 3_600_000;
/** Told within this time; a path that loses large packets is measured every five minutes while there is no traffic. */
const toldMs = 15_000;
const idleToldMs = 305_000;

type Right = { verdict: string; kinds: readonly string[]; broken?: readonly string[] };
type Fault = {
  name: string;
  isOfHub?: true;
  toldMs?: number;
  make(network: ReplayedNetwork): Right;
  end(network: ReplayedNetwork): void;
};

const green: Right = { verdict: "running", kinds: [], broken: [] };
const lost = (broken: readonly string[]): Right => ({
  verdict: "degraded",
  kinds: ["lighthouses_silent", "peers_silent"],
  broken,
});
const noted = (broken: readonly string[]): Right => ({ verdict: "running", kinds: ["peers_silent"], broken });

function on(
  name: string,
  change: Partial<ReplayedNetwork["peers"][number]>,
  right: Right,
  told = toldMs,
): Fault {
  const back = {
    isOn: true,
    losesTo: false,
    losesFrom: false,
    refusesIcmp: false,
    largest: 1500,
    isListed: true,
  };
  return {
    name: `${name}: ${JSON.stringify(change)}`,
    toldMs: told,
    make: (network) => {
      Object.assign(network.peer(name), change);
      network.list();
      return right;
    },
    end: (network) => {
      Object.assign(network.peer(name), back);
      network.list();
    },
  };
}

const ofNode: readonly Fault[] = [
  on("hub", { isOn: false }, lost(["hub"])),
  on("hub", { losesTo: true }, lost(["hub"])),
  on("hub", { losesFrom: true }, lost(["hub"])),
  on("b", { isOn: false }, noted(["b"])),
  on("b", { losesTo: true }, noted(["b"])),
  on("b", { losesFrom: true }, noted(["b"])),
  on(
    "hub",
    { largest: 1200 },
    { verdict: "degraded", kinds: ["large_packets_lost"], broken: [] },
    idleToldMs,
  ),
  // No rule connects the nodes any more, and the lighthouse is dead.
  on("hub", { isOn: false, isListed: false }, lost(["hub"])),
  on("b", { isOn: false, isListed: false }, green),
  // A deleted rule is no fault; the handshake that shows it takes a minute.
  on("hub", { refusesIcmp: true }, green, 180_000),
];
const ofHub: readonly Fault[] = [
  {
    name: "the port is closed",
    make: (network) => {
      for (const peer of network.peers) peer.losesFrom = true;
      return { verdict: "degraded", kinds: ["nodes_silent", "peers_silent"] };
    },
    end: (network) => {
      for (const peer of network.peers) peer.losesFrom = false;
    },
  },
  on("b", { isOn: false }, noted(["b"])),
];

function look(health: OrganizationHealth, { broken }: Right): Right {
  const { verdict = "none", findings = [], broken: silent = [] } = health.current() ?? {};
  return {
    verdict,
    kinds: findings.map(({ kind }) => kind),
    ...(broken === undefined ? {} : { broken: silent }),
  };
}

/** Runs the real health of one node in the network, while `work` changes it. */
async function watched(
  isHub: boolean,
  work: (network: ReplayedNetwork, health: OrganizationHealth) => Promise<void>,
  own: Parameters<ReplayedNetwork["watch"]>[0] = {},
) {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), isHub ? ["b", "c"] : ["hub", "b"], isHub);
  const api = { ...localApi(undefined, network), closeTunnel: async (at: string) => network.closeTunnel(at) };
  const healer = new Healer(
    {
      slug: "acme",
      api: { ...api, createTunnel: async () => true },
      apply: async () => undefined,
      log: { warn() {}, info() {} },
    },
    { denied: [] },
    network.now,
  );
  const health = network.watch({ healer, ...own });
  const over = new AbortController();
  const running = health.run(over.signal);
  await network.pass(60_000, () => meanwhile(network, health));
  await work(network, health);
  over.abort();
  await network.pass(1000);
  await running;
}

/** What happens meanwhile: the control plane answers, and a user talks to the peer. */
function meanwhile(network: ReplayedNetwork, health: OrganizationHealth): void {
  health.reporter.noteAnswer({ others_online: true });
  if (!network.isLighthouse) health.named.add([network.peer("b").address], network.now);
}

async function hold(
  network: ReplayedNetwork,
  health: OrganizationHealth,
  ms: number,
  right: Right,
  what: string,
) {
  await network.pass(ms, () => {
    health.reporter.noteAnswer({ others_online: true });
    expect([what, look(health, right)]).toEqual([what, right]);
  });
}

for (const [who, all, isHub] of [
  ["node", ofNode, false],
  ["lighthouse", ofHub, true],
] as const) {
  const count = isHub ? faults / 5 : (faults * 4) / 5;
  test(`no light of a ${who} is wrong in the hour after any of ${count} random faults, nor after its repair`, async () => {
    const order = instants(count, all.length).map(Math.floor);
    await watched(isHub, async (network, health) => {
      await hold(network, health, 30_000, green, "at the start");
      for (const index of order) {
        const fault = all[index] ?? expect.unreachable();
        const right = fault.make(network);
        await network.pass(fault.toldMs ?? toldMs, () => meanwhile(network, health));
        await hold(network, health, hourMs, right, fault.name);
        fault.end(network);
        await network.pass(toldMs + 10_000, () => meanwhile(network, health));
        await hold(network, health, 60_000, green, `repaired: ${fault.name}`);
      }
    });
  }, 1_200_000);
}

test("a route through routers that are silent is not in effect, one through a router that refuses ICMP is", async () => {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), ["hub", "office", "spare"]);
  network.route("192.168.9.0/24", ["office", "spare"]);
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  const look = () => {
    const { findings = [], routes: { used, ...routes } = { answering: 0, of: 0 } } = health.current() ?? {};
    expect(used).toEqual([{ network: "192.168.9.0/24", router: "office" }]);
    return { kinds: findings.map(({ kind }) => kind).filter((kind) => kind !== "peers_silent"), routes };
  };
  await network.pass(30_000);
  expect(look()).toEqual({ kinds: [], routes: { answering: 1, of: 1 } });
  network.peer("office").isOn = false;
  await network.pass(hourMs);
  expect(look()).toEqual({ kinds: [], routes: { answering: 1, of: 1 } });
  network.peer("spare").isOn = false;
  await network.pass(toldMs);
  await network.pass(hourMs, () =>
    expect(look()).toEqual({ kinds: ["routers_silent"], routes: { answering: 0, of: 1 } }),
  );
  expect(health.current()?.reason).toBe(
    "192.168.9.0/24 cannot be reached: no answer from the router office, spare",
  );
  network.peer("spare").isOn = true;
  await network.pass(25_000);
  expect(look()).toEqual({ kinds: [], routes: { answering: 1, of: 1 } });
  over.abort();
  await network.pass(1000);
  await running;
});

test("an address that is kept is no peer that is found: it counts while the peer answers", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const network = new ReplayedNetwork(organization, ["hub", "web"]);
  writePeerMap(organization.directory, { [network.peer("web").address]: ["192.0.2.7:4242"] });
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  await network.pass(1000);
  health.named.add([network.peer("web").address], network.now);
  await network.pass(30_000);
  network.peer("hub").isOn = false;
  health.named.add([network.peer("web").address], network.now);
  await network.pass(30_000);
  const alone = "The lighthouse hub does not answer";
  expect(health.current()?.reason).toBe(`${alone}; 1 peer is found by addresses that this node keeps`);
  network.peer("web").isOn = false;
  await network.pass(toldMs);
  expect(health.current()?.reason).toBe(alone);
  over.abort();
  await network.pass(1000);
  await running;
});

test("a router says within seconds that what is behind it does not answer, and that it is back", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const network = new ReplayedNetwork(organization, ["hub"]);
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  const put = (state: string) =>
    writeRouterFile(organization.directory, { forwarding: {}, networks: { "192.168.7.0/24": { state } } });
  for (const [state, right] of [
    ["ready", { verdict: "running", findings: [] }],
    [
      "down",
      {
        verdict: "degraded",
        reason: "This node is a router of 192.168.7.0/24, but what is behind it does not answer",
        findings: [{ kind: "network_unreached", cure: "ip route get 192.168.7.0" }],
      },
    ],
    ["ready", { verdict: "running", findings: [] }],
  ] as const) {
    put(state);
    await network.pass(toldMs);
    expect(health.current()).toMatchObject(right);
  }
  over.abort();
  await network.pass(1000);
  await running;
});

test("a router that was off from the start, and one that refuses ICMP", async () => {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), ["hub", "office"]);
  network.route("192.168.9.0/24", ["office"]);
  network.peer("office").isOn = false;
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  await network.pass(20_000);
  expect(health.current()?.findings?.map(({ kind }) => kind)).toEqual(["routers_silent"]);
  Object.assign(network.peer("office"), { isOn: true, refusesIcmp: true });
  await network.pass(30_000);
  expect(health.current()).toMatchObject({ verdict: "running", routes: { answering: 1, of: 1 } });
  over.abort();
  await network.pass(1000);
  await running;
});

test("large packets that are lost are told within 15 s of traffic, and cost little without", async () => {
  await watched(false, async (network, health) => {
    const right: Right = { verdict: "degraded", kinds: ["large_packets_lost"] };
    for (const ms of instants(200, 60_000)) {
      await network.pass(ms, () => network.talk("b", 5));
      // The path to a lighthouse, and that to a peer with traffic.
      for (const name of ["hub", "b"]) {
        network.peer(name).largest = 1200;
        await network.pass(toldMs, () => network.talk("b", 5));
        expect([ms, name, look(health, right)]).toEqual([ms, name, right]);
        expect(health.current()?.reason).toContain(`on the way to ${name}:`);
        network.peer(name).largest = 1500;
        await network.pass(toldMs, () => network.talk("b", 5));
        expect([ms, name, look(health, green)]).toEqual([ms, name, green]);
      }
    }
    // What was lost without traffic since is not forgotten.
    network.peer("b").largest = 1200;
    await network.pass(toldMs, () => network.talk("b", 5));
    await network.pass(60_000);
    expect(look(health, right)).toEqual(right);
    network.peer("b").largest = 1500;
    await network.pass(toldMs);
    expect(look(health, green)).toEqual(green);
    await network.pass(600_000);
    const before = network.largePackets;
    await network.pass(hourMs);
    expect(network.largePackets - before).toBeWithin(10, 15);
    // While a user reads the status, the pace is as before.
    network.peer("hub").largest = 1200;
    await network.pass(35_000, () => health.attend());
    expect(look(health, right)).toEqual(right);
    network.peer("hub").largest = 1500;
    await network.pass(600_000);
    expect(look(health, green)).toEqual(green);
    // Who asks for a check is told at once.
    network.peer("hub").largest = 1200;
    const asking = health.check(8000, "lighthouses");
    await network.pass(9000);
    await asking;
    expect(look(health, right)).toEqual(right);
  });
}, 1_200_000);

test("what this agent sends by itself is no traffic", async () => {
  await watched(false, async (network, health) => {
    // The tunnel to the lighthouse has probes, measurements of large packets and a trial of offloads.
    await network.pass(hourMs);
    expect(health.reporter.isBusy()).toBe(false);
    const sent = network.packets;
    await network.pass(hourMs);
    // A probe every 10 s, and a large packet every five minutes.
    expect(network.packets - sent).toBeWithin(366, 378);
    await network.pass(30_000, () => network.talk("hub", 5));
    expect(health.reporter.isBusy()).toBe(false);
    await network.pass(30_000, () => network.talk("b", 5));
    expect(health.reporter.isBusy()).toBe(true);
    await network.pass(60_000);
    expect(health.reporter.isBusy()).toBe(false);
    // An old engine says nothing of traffic.
    network.reports = false;
    await network.pass(20_000);
    expect(health.reporter.isBusy()).toBe(true);
  });
}, 1_200_000);

test("a lighthouse that nodes answered since the control plane knew of none misses them", async () => {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), ["b", "c"], true);
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  health.reporter.noteAnswer({ others_online: false });
  await network.pass(30_000);
  const kinds = () => health.current()?.findings?.map(({ kind }) => kind);
  expect(kinds()).toEqual([]);
  for (const peer of network.peers) peer.losesFrom = true;
  await network.pass(toldMs);
  expect(kinds()).toEqual(["nodes_silent", "peers_silent"]);
  const what = () => health.current()?.reason;
  health.reporter.noteUnreachable();
  await network.pass(hourMs);
  expect(what()).toBe("None of the 2 probed peers answers this lighthouse, nor does the control plane");
  health.reporter.noteAnswer({});
  expect(what()).toBe("None of the 2 probed peers answers this lighthouse");
  health.reporter.noteAnswer({ others_online: false });
  expect(kinds()).toEqual(["peers_silent"]);
  over.abort();
  await network.pass(1000);
  await running;
});

test("a lighthouse whose port was closed from the start is degraded as soon as another node is online", async () => {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), ["b", "c"], true);
  for (const peer of network.peers) peer.losesFrom = true;
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  await network.pass(31_000);
  const kinds = () => health.current()?.findings?.map(({ kind }) => kind);
  expect(kinds()).toEqual(["contact_unknown"]);
  health.reporter.noteAnswer({ others_online: true });
  expect(kinds()).toEqual(["no_node_came"]);
  health.reporter.noteAnswer({
    others_online: true,
    elsewhere: { public_ip: "198.51.100.7", seen: "198.51.100.8" },
  });
  expect(kinds()).toEqual(["no_node_came", "address_moved"]);
  await network.pass(hourMs, () => {
    health.reporter.noteAnswer({ others_online: true });
    expect(kinds()).toEqual(["no_node_came"]);
  });
  health.reporter.noteAnswer({ others_online: false });
  expect(kinds()).toEqual([]);
  // What the control plane said is no longer known: that does not make it green.
  await network.pass(200_000);
  expect(kinds()).toEqual(["contact_unknown"]);
  over.abort();
  await network.pass(1000);
  await running;
});

test.each([false, true])(
  "an idle node tries its offloads again within a minute while nothing is certain (a lighthouse: %p)",
  async (isHub) => {
    let [asked, isUncertain] = [0, false];
    const look = async () => {
      asked++;
      return isUncertain;
    };
    await watched(
      isHub,
      async (network) => {
        await network.pass(hourMs);
        const before = asked;
        await network.pass(hourMs);
        expect(asked - before).toBeWithin(10, 15);
        isUncertain = true;
        await network.pass(305_000);
        for (let minute = 0; minute < 10; minute++) {
          const last = asked;
          await network.pass(60_000);
          expect(asked).toBeGreaterThan(last);
        }
      },
      { offloads: { tryIfDue: look } },
    );
  },
);
