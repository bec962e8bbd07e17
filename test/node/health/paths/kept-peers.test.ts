import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { KeptPeers, type KeptSeen } from "../../../../src/node/health/paths/kept-peers.ts";
import { madeHandshakes } from "../../../../src/node/health/handshakes.ts";
import {
  byEachAddress,
  readPeerMap,
  withPeerMap,
  writePeerMap,
  type PeerMap,
} from "../../../../src/node/files/config/peer-map.ts";
import { writeHosts } from "../../../../src/node/files/hosts.ts";
import { overlayRoles, staticHosts } from "../../../../src/node/files/config/read-config.ts";
import { stringifyYaml } from "../../../../src/base/yaml.ts";
import { temporaryDirectory } from "../../../support/temporary.ts";

const hub = "10.77.0.1";
const second = 1000;
const hour = 3_600_000;
const day = 24 * hour;

function makeWorld() {
  const directory = temporaryDirectory();
  const said: string[] = [];
  const applied: PeerMap[] = [];
  const world = {
    // The real time, because the last change of the map is that of a file.
    now: Date.now(),
    own: ["192.0.2.9/24"],
    gone: new Set<string>(),
    fails: false,
    ports: [] as number[],
    keptPorts: [] as number[],
    applied,
    said,
    make: () =>
      new KeptPeers({
        slug: "acme",
        directory: directory.path,
        async apply(map) {
          if (world.fails) throw new Error("The disk is full");
          applied.push(map);
          writePeerMap(directory.path, map);
        },
        portsOf: () => world.ports,
        keepPort: async (port) => void world.keptPorts.push(port),
        ownAddresses: () => world.own,
        sourceFor: async () => world.own[0]?.replace(/\/.*/, ""),
        monotonic: () => world.now,
        system: { now: () => world.now },
        log: { warn: (text) => void said.push(text) },
      }),
    map: () => readPeerMap(directory.path),
    path: join(directory.path, "run", "peers.json"),
    directory: directory.path,
    seen: (working: Record<string, string>, more: Partial<KeptSeen> = {}): KeptSeen => ({
      working: Object.entries(working).map(([address, remote]) => ({ address, remote })),
      pid: 1,
      areLighthousesLost: false,
      isPeer: (address) => address !== hub,
      isInside: (address) => address.startsWith("10.77."),
      goneAmong: (addresses) => addresses.filter((each) => world.gone.has(each)),
      ...more,
    }),
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
  return world;
}

test("the engine gets the addresses at which tunnels worked, and keeps them after them, and in the next process", async () => {
  using world = makeWorld();
  const kept = world.make();
  await kept.refresh(world.seen({ "10.77.0.2": "203.0.113.2:4001", [hub]: "203.0.113.1:4242" }));
  expect(world.map()).toEqual({ "10.77.0.2": ["203.0.113.2:4001"] });
  world.now += hour;
  await kept.refresh(world.seen({}));
  expect(world.map()).toEqual({ "10.77.0.2": ["203.0.113.2:4001"] });
  const next = world.make();
  await next.refresh(world.seen({}));
  expect([world.map(), next.nextToProbe(256).length, world.applied.length]).toEqual([
    { "10.77.0.2": ["203.0.113.2:4001"] },
    1,
    1,
  ]);
  // Whom this node knows is for root alone.
  expect(Bun.file(world.path).size).toBeGreaterThan(0);
});

test("an address in the overlay, of this machine or of everybody is not kept, and no name", async () => {
  using world = makeWorld();
  const remotes = [
    "10.77.0.9:1",
    "127.0.0.1:4001",
    "0.0.0.0:4001",
    "224.0.0.1:4001",
    "255.255.255.255:1",
    "169.254.169.254:80",
    "[fe80::1]:4001",
    "[::1]:4001",
    "evil.example:4001",
    "203.0.113.2:0",
    "203.0.113.2:65536",
    "203.0.113.2",
  ];
  await world
    .make()
    .refresh(world.seen(Object.fromEntries(remotes.map((each, at) => [`10.77.1.${at + 1}`, each]))));
  expect(world.map()).toEqual({});
});

test("a peer that is revoked, deleted or out of reach leaves the engine's map at the next look", async () => {
  using world = makeWorld();
  const kept = world.make();
  await kept.refresh(world.seen({ "10.77.0.2": "203.0.113.2:1", "10.77.0.3": "203.0.113.3:1" }));
  kept.addAnswer({ since: 7, peers: [{ peer: "10.77.0.4", remotes: ["203.0.113.4:1"] }] });
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  world.gone = new Set(["10.77.0.2", "10.77.0.4"]);
  await kept.refresh(world.seen({}));
  expect(world.map()).toEqual({ "10.77.0.3": ["203.0.113.3:1"] });
  // Also one that an earlier process gave the engine, and that this one does not know.
  writePeerMap(world.directory, { "10.77.0.4": ["203.0.113.4:1"] });
  writeFileSync(world.path, "damaged");
  await world.make().refresh(world.seen({}));
  expect(world.map()).toEqual({});
});

test("a private address that worked counts in the network where it did", async () => {
  using world = makeWorld();
  world.own = ["192.168.1.9/24"];
  const kept = world.make();
  await kept.refresh(world.seen({ "10.77.0.2": "192.168.1.20:4001", "10.77.0.3": "10.200.0.3:4001" }));
  expect(Object.keys(world.map())).toEqual(["10.77.0.2", "10.77.0.3"]);
  world.own = ["192.168.1.77/24"];
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(world.map()).toEqual({});
  world.own = ["192.168.1.9/24"];
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(Object.keys(world.map())).toHaveLength(2);
});

test("a private address that the control plane tells counts only on a network of this machine", async () => {
  using world = makeWorld();
  const kept = world.make();
  const remotes = ["192.168.1.20:4001", "203.0.113.2:4001"];
  kept.addAnswer({ since: 7, peers: [{ peer: "10.77.0.2", remotes }] });
  await kept.refresh(world.seen({}));
  expect(world.map()).toEqual({ "10.77.0.2": ["203.0.113.2:4001"] });
  world.own = ["192.168.1.9/24"];
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(world.map()).toEqual({ "10.77.0.2": remotes });
});

test("at most 256 peers, the most used first, then those that the control plane knows", async () => {
  using world = makeWorld();
  const kept = world.make();
  const many = Array.from({ length: 300 }, (_, at) => `10.77.${1 + Math.floor(at / 250)}.${(at % 250) + 1}`);
  kept.addAnswer({
    since: 7,
    peers: many.slice(0, 200).map((peer) => ({ peer, remotes: ["203.0.113.7:1"] })),
  });
  const [often = "", once = ""] = many.slice(-2);
  for (let at = 0; at < 3; at++) {
    await kept.refresh(
      world.seen({ [often]: "203.0.113.8:1", ...(at === 0 ? { [once]: "203.0.113.9:1" } : {}) }),
    );
    world.now += hour;
  }
  expect(Object.keys(world.map()).slice(0, 2)).toEqual([often, once]);
  await kept.refresh(
    world.seen(Object.fromEntries(many.map((peer) => [peer, "203.0.113.7:1"])), { areLighthousesLost: true }),
  );
  expect([kept.nextToProbe(257).length, Object.keys(world.map())[0]]).toEqual([256, often]);
});

test("an hour, a day and a month later the map is right: a new address replaces the old one, an unused one ends", async () => {
  using world = makeWorld();
  const kept = world.make();
  for (let minute = 0; minute < 60; minute++) {
    await kept.refresh(
      world.seen({ "10.77.0.2": `203.0.113.2:${4000 + minute}`, "10.77.0.3": "203.0.113.3:1" }),
    );
    world.now += 60 * second;
  }
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(world.map()).toEqual({ "10.77.0.3": ["203.0.113.3:1"], "10.77.0.2": ["203.0.113.2:4059"] });
  world.now += 29 * day;
  await kept.refresh(world.seen({ "10.77.0.3": "203.0.113.3:1" }));
  world.now += 2 * day;
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(world.map()).toEqual({ "10.77.0.3": ["203.0.113.3:1"] });
});

test("the engine is reloaded every two minutes at most, at once without a lighthouse; a failure is tried again", async () => {
  using world = makeWorld();
  const kept = world.make();
  for (let at = 0; at < 12; at++) {
    await kept.refresh(world.seen({ "10.77.0.2": `203.0.113.2:${4000 + at}` }));
    world.now += 10 * second;
  }
  expect(world.applied).toHaveLength(1);
  await kept.refresh(world.seen({ "10.77.0.2": "203.0.113.2:5000" }, { areLighthousesLost: true }));
  expect(world.map()).toEqual({ "10.77.0.2": ["203.0.113.2:5000"] });
  world.fails = true;
  await kept.refresh(world.seen({ "10.77.0.2": "203.0.113.2:5001" }, { areLighthousesLost: true }));
  expect(world.said).toEqual(["Cannot keep the addresses of peers"]);
  world.fails = false;
  world.now += 61 * second;
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(world.map()).toEqual({ "10.77.0.2": ["203.0.113.2:5001"] });
});

test("the control plane is asked now and then, for everything once a day, and sooner without a lighthouse", async () => {
  using world = makeWorld();
  const kept = world.make();
  const asked: number[] = [];
  for (let at = 0; at < 2 * day; at += 55 * second) {
    const question = kept.request(false);
    world.now += 55 * second;
    if (question === undefined) continue;
    asked.push(question.since);
    kept.addAnswer({ since: 7, whole: question.since === 0, peers: [] });
  }
  expect(asked.length).toBeLessThan(2 * 24 * 6 + 10);
  expect(asked.filter((since) => since === 0)).toHaveLength(2);
  world.now += 10 * second;
  expect(kept.request(false)).toBeUndefined();
  expect(kept.request(true)).toEqual({ since: 7 });
  // What cannot be parsed changes nothing; a whole answer replaces what was told.
  kept.addAnswer({ since: 8, whole: true, peers: [{ peer: "10.77.0.2", remotes: ["203.0.113.2:1"] }] });
  for (const answer of [null, "x", { since: -1 }, { since: 9, peers: [{ peer: "x", remotes: [] }] }])
    kept.addAnswer(answer);
  await kept.refresh(world.seen({}));
  expect(world.map()).toEqual({ "10.77.0.2": ["203.0.113.2:1"] });
  kept.addAnswer({ since: 10, whole: true, peers: [] });
  await kept.refresh(world.seen({}, { areLighthousesLost: true }));
  expect(world.map()).toEqual({});
});

test("kept peers are asked in turn", async () => {
  using world = makeWorld();
  const kept = world.make();
  const peers = Array.from({ length: 6 }, (_, at) => ({
    peer: `10.77.0.${at + 2}`,
    remotes: ["203.0.113.2:1"],
  }));
  kept.addAnswer({ since: 1, peers });
  await kept.refresh(world.seen({}));
  expect(new Set([...kept.nextToProbe(4), ...kept.nextToProbe(4)]).size).toBe(6);
  expect(world.make().nextToProbe(4)).toHaveLength(4);
});

test("the log of an engine that reports no tunnels tells where handshakes succeeded", () => {
  const line = (message: string, rest: string) =>
    `{"level":"info","msg":"${message}",${rest},"time":"2026-11-22T12:00:00Z"}`;
  const lines = [
    line(
      "Handshake message received",
      '"handshake":{"stage":2,"style":"ix_psk0"},"udpAddr":{"ip":"203.0.113.2","port":4001},"vpnIp":"10.77.0.2"',
    ),
    line(
      "Handshake message sent",
      '"handshake":{"stage":2,"style":"ix_psk0"},"udpAddr":"203.0.113.3:4001","vpnAddrs":["10.77.0.3"]',
    ),
    line(
      "Handshake message sent",
      '"handshake":{"stage":1,"style":"ix_psk0"},"udpAddrs":["203.0.113.4:4001"],"vpnIp":"10.77.0.4"',
    ),
    line("Handshake message received", '"handshake":{"stage":2},"relay":"10.77.0.1","vpnIp":"10.77.0.5"'),
  ];
  const at = Date.parse("2026-11-22T12:00:00Z");
  expect(madeHandshakes(lines)).toEqual([
    { address: "10.77.0.2", remote: "203.0.113.2:4001", at },
    { address: "10.77.0.3", remote: "203.0.113.3:4001", at },
  ]);
});

test("in config.yml, what the control plane says of hubs stands above kept peers, and they are not taken for hubs", () => {
  const config = {
    static_host_map: { [hub]: ["192.0.2.1:4242"] },
    lighthouse: { am_lighthouse: false, hosts: [hub] },
    listen: { host: "0.0.0.0" },
  };
  const map = {
    [hub]: ["203.0.113.1:1"],
    "10.77.0.2": ["203.0.113.2:1", "[2001:db8::2]:1"],
    "10.77.0.3": ["[2001:db8::3]:1"],
  };
  const made = withPeerMap(config, map);
  expect(made["static_host_map"]).toEqual({ [hub]: ["192.0.2.1:4242"], "10.77.0.2": ["203.0.113.2:1"] });
  const text = stringifyYaml(made);
  expect(staticHosts(text).map(({ overlay }) => overlay)).toEqual([hub]);
  expect(overlayRoles(text).underlays).toEqual(["192.0.2.1"]);
  expect(withPeerMap({ ...config, listen: { host: "::" } }, map)["static_host_map"]).toMatchObject({
    "10.77.0.3": ["[2001:db8::3]:1"],
  });
  expect(withPeerMap({ ...config, lighthouse: { am_lighthouse: true } }, map)["static_host_map"]).toEqual(
    config.static_host_map,
  );
});

test("the engine gets a peer by each of its addresses that are in networks of the certificate", () => {
  using directory = temporaryDirectory();
  const map = { "10.77.0.2": ["203.0.113.2:1"], "10.77.0.3": ["203.0.113.3:1"] };
  const networks = ["10.77.0.0/16", "fd77::/64"];
  expect(byEachAddress(map, directory.path, networks)).toEqual(map);
  const node = (id: number, name: string, ip6: string) => ({ id, name, ip: `10.77.0.${id}`, ip6 });
  const nodes = [node(2, "two", "fd77::2"), node(3, "three", "fd78::3"), node(4, "four", "fd77::4")];
  writeHosts(directory.path, { schema: 1, version: 1, view: "all", nodes, aliases: [] });
  const both = { ...map, "fd77::2": ["203.0.113.2:1"] };
  expect(byEachAddress(map, directory.path, networks)).toEqual(both);
  // In a sealed network, the seal gives the second address, also one that hosts.json does not have.
  const self = {
    schema: 1,
    node_id: 1,
    name: "one",
    org_slug: "acme",
    ip_address: "10.77.0.1",
    network: "10.77.0.0/16",
  };
  const roles = { mode: "server", is_lighthouse: false, is_relay: false, config_version: 1 };
  const sealed_names = { three: ["fd77::33", "10.77.0.3"] };
  const config = { ...self, ...roles, registered_at: "2026-01-01T00:00:00Z", sealed_names };
  writeFileSync(join(directory.path, "node-config.json"), JSON.stringify(config));
  expect(Object.keys(byEachAddress(map, directory.path, networks))).toContain("fd77::33");
});

test("the port that the engine got is kept for its next start, once, and not where the configuration has one", async () => {
  using world = makeWorld();
  const kept = world.make();
  await kept.refresh(world.seen({}));
  // A lookup of a name has a socket, too.
  world.ports = [40_001, 40_002];
  await kept.refresh(world.seen({}));
  expect(world.keptPorts).toEqual([]);
  world.ports = [40_001];
  await kept.refresh(world.seen({}));
  await kept.refresh(world.seen({}));
  expect(world.keptPorts).toEqual([40_001]);
  writeFileSync(join(world.directory, "config.yml"), "listen: { port: 4242 }\n");
  await kept.refresh(world.seen({}, { pid: 2 }));
  expect(world.keptPorts).toEqual([40_001]);
});
