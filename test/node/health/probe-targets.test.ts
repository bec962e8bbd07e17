import { expect, test } from "bun:test";
import { probeTargets, relaysToMeasure, type Probable } from "../../../src/node/health/probe-targets.ts";
import type { ProbeRecord } from "../../../src/node/health/probe-record.ts";
import { Tunnels, type EngineTunnel } from "../../../src/node/health/tunnels.ts";

const now = 1_000_000;
const facts = {
  own: ["10.77.0.1"],
  lighthouses: ["10.77.0.9"],
  relays: ["10.77.0.21", "10.77.0.22"],
  routes: [],
  underlays: [],
  otherHubs: [],
  byTcp: [],
  isLighthouse: false,
  certificate: { from: 0, to: 0 },
  mtu: undefined,
  isBlocked: () => false,
  isInside: (address: string) => address.startsWith("10.77."),
};
const tunnel = (address: string, remote = "203.0.113.7:4242", relays: string[] = []): EngineTunnel => ({
  vpnAddrs: [address],
  localIndex: 1,
  messageCounter: 0,
  currentRemote: remote,
  currentRelaysToMe: relays,
});
const record = (part: Partial<ProbeRecord>): ProbeRecord => ({
  answeredAt: undefined,
  rttMs: undefined,
  missed: 0,
  since: 0,
  index: undefined,
  sent: 0,
  history: [],
  ...part,
});

function choose(listed: readonly EngineTunnel[], part: Partial<Probable> = {}): string[] {
  const tunnels = new Tunnels();
  tunnels.update(listed, { own: facts.own, now, probesTo: () => 0 });
  const usual = { records: [], named: [], choosesRelays: false, reportsTunnels: true, served: [] };
  return probeTargets({ facts, tunnels, now, ...usual, ...part });
}

test("lighthouses, relays in use, peers with traffic and named ones are probed", () => {
  expect(choose([])).toEqual(["10.77.0.9"]);
  const relayed = tunnel("10.77.0.5", "", ["10.77.0.21"]);
  expect(choose([relayed], { named: ["10.77.0.6"] })).toEqual([
    "10.77.0.9",
    "10.77.0.21",
    "10.77.0.5",
    "10.77.0.6",
  ]);
});

test("a peer that stopped answering is probed without a tunnel; one that never answered is not", () => {
  const records: Probable["records"] = [
    ["10.77.0.7", record({ answeredAt: now - 60_000, missed: 9 })],
    ["10.77.0.8", record({ missed: 9 })],
  ];
  expect(choose([], { records })).toEqual(["10.77.0.9", "10.77.0.7"]);
});

test("of those that are reached by TCP one is probed, also a relay that is not used", () => {
  const byTcp = ["10.77.0.22", "10.77.0.21"];
  expect(choose([], { facts: { ...facts, byTcp } })).toEqual(["10.77.0.9", "10.77.0.22"]);
});

test("this node and addresses outside the overlay are never probed", () => {
  expect(choose([tunnel("192.0.2.1")], { named: ["10.77.0.1", "198.51.100.1"] })).toEqual(["10.77.0.9"]);
});

test("at most 16 routers are probed, each counted once", () => {
  const routes = (last: number) =>
    Array.from({ length: 40 }, (_, at) => {
      const routers = [`10.77.3.${Math.min(at < 20 ? 1 : at, last)}`];
      return { network: `192.168.${at}.0/24`, routers };
    });
  const probed = (last: number) => choose([], { facts: { ...facts, routes: routes(last) } });
  expect(probed(2)).toEqual(["10.77.0.9", "10.77.3.1", "10.77.3.2"]);
  expect(probed(40)).toHaveLength(17);
});

test("at most 32 peers are probed unasked", () => {
  const many = Array.from({ length: 50 }, (_, at) => tunnel(`10.77.1.${at + 1}`));
  expect(choose(many)).toHaveLength(33);
});

test("a node measures relays only where it has a choice, and only if it chooses", () => {
  expect(relaysToMeasure(facts)).toEqual([]);
  const three = { ...facts, relays: [...facts.relays, "10.77.0.23"] };
  expect(relaysToMeasure(three).toSorted()).toEqual(three.relays);
  expect(choose([], { facts: three })).toEqual(["10.77.0.9"]);
  expect(choose([], { facts: three, choosesRelays: true }).toSorted()).toEqual(
    [...three.relays, "10.77.0.9"].toSorted(),
  );
});

test("a lighthouse begins no contact with a node, whose engine would then be known by one address alone", () => {
  const records: Probable["records"] = [
    ["10.77.0.7", record({ answeredAt: now - 60_000, missed: 9 })],
    ["10.77.0.8", record({ answeredAt: now - 1000 })],
  ];
  const routes = [{ network: "192.168.9.0/24", routers: ["10.77.0.6"] }];
  const hub = { ...facts, lighthouses: [], isLighthouse: true, routes };
  const part = { facts: hub, records, served: ["10.77.0.5"] };
  expect(choose([], part)).toEqual([]);
  expect(choose([tunnel("10.77.0.7"), tunnel("10.77.0.6")], part)).toEqual(["10.77.0.6", "10.77.0.7"]);
  // An engine that does not report its tunnels learns nothing of the nodes without probes.
  const unreported = choose([], { ...part, reportsTunnels: false });
  expect(unreported).toEqual(["10.77.0.6", "10.77.0.7", "10.77.0.8", "10.77.0.5"]);
  // A user may ask.
  expect(choose([], { ...part, named: ["10.77.0.8"] })).toEqual(["10.77.0.8"]);
});
