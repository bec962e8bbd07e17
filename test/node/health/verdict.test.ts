import { expect, test } from "bun:test";
import type { DiskState } from "../../../src/base/disk-space.ts";
import { conclude, type LighthouseState, type Observation } from "../../../src/node/health/verdict.ts";

const hub = (state: LighthouseState, name = "hub") => ({ name, state });
const seen = (change: Partial<Observation>): Observation => ({
  slug: "acme",
  lighthouses: [hub("answers")],
  contact: undefined,
  silent: [],
  unrouted: [],
  unreached: [],
  stuck: [],
  keptCount: 0,
  unmet: [],
  hasOthers: true,
  certificate: "valid",
  engineVersion: "1.12.0",
  reportsTunnels: true,
  isDenied: false,
  isCutOff: false,
  isCloned: false,
  elsewhere: undefined,
  clockAheadMs: undefined,
  disk: undefined,
  large: undefined,
  ...change,
});
const told = (change: Partial<Observation>) => {
  const { verdict, reason } = conclude(seen(change));
  return reason === undefined ? { verdict } : { verdict, reason };
};
const kinds = (change: Partial<Observation>) => conclude(seen(change)).findings.map(({ kind }) => kind);
const verdict = (change: Partial<Observation>) => conclude(seen(change)).verdict;

test("of several findings, the reason is the gravest: a silent lighthouse explains dead tunnels", () => {
  const both = { lighthouses: [hub("lost")], stuck: ["web"], isCloned: true };
  expect(kinds(both)).toEqual(["cloned", "lighthouses_silent", "tunnels_dead"]);
  expect(told({ ...both, isCloned: false }).reason).toBe("The lighthouse hub does not answer");
});

test("running: a lighthouse answers, or the engine has a tunnel to one that never answered", () => {
  expect(conclude(seen({}))).toEqual({ verdict: "running", findings: [] });
  expect(verdict({ lighthouses: [hub("tunnel")] })).toBe("running");
  expect(verdict({ lighthouses: [hub("lost"), hub("answers", "hub2")] })).toBe("running");
});

test("broken peers do not degrade a node whose lighthouse answers", () => {
  expect([verdict({ silent: ["b"] }), kinds({ silent: ["b"] })]).toEqual(["running", ["peers_silent"]]);
});

test("degraded, with the reason: no lighthouse, a lighthouse that is lost, an expired certificate", () => {
  expect(told({ lighthouses: [] })).toEqual({
    verdict: "degraded",
    reason: "There is no lighthouse: this node cannot find other nodes, nor they this one",
  });
  expect(conclude(seen({ lighthouses: [hub("lost")] })).reason).toBe("The lighthouse hub does not answer");
  expect(conclude(seen({ lighthouses: [hub("lost"), hub("lost")] })).reason).toBe(
    "None of the 2 lighthouses answers",
  );
  expect(conclude(seen({ lighthouses: [hub("lost")], keptCount: 3, unmet: ["b"] })).reason).toBe(
    "The lighthouse hub does not answer; 3 peers are found by addresses that this node keeps; no handshake with b: off, moved, or behind a NAT for which both need a lighthouse and a relay",
  );
  expect(told({ certificate: "expired" }).reason).toBe("The certificate has expired");
});

test("a lighthouse and the control plane that are both silent are told together, without blame for a firewall", () => {
  const cut = { isCutOff: true, lighthouses: [hub("lost")] };
  expect(conclude(seen(cut)).findings).toMatchObject([
    {
      kind: "lighthouses_silent",
      what: "The lighthouse hub does not answer, nor does the control plane",
      cure: expect.stringContaining("way out"),
    },
  ]);
  const contact = { isMade: false, silent: 3, isEarly: false, othersOnline: undefined };
  expect(conclude(seen({ ...cut, contact })).findings).toMatchObject([
    { kind: "nodes_silent", cure: expect.stringContaining("way out") },
  ]);
  // A peer that is found proves a connection.
  expect(conclude(seen({ ...cut, keptCount: 1 })).findings).toMatchObject([
    { kind: "lighthouses_silent", cure: "agent doctor" },
  ]);
  // The control plane alone is no matter of traffic.
  expect(conclude(seen({ isCutOff: true })).findings).toEqual([]);
});

test("degraded while a tunnel stays dead after all attempts to heal it, though the lighthouse answers", () => {
  expect(told({ stuck: ["web", "db"] })).toEqual({
    verdict: "degraded",
    reason: "Tunnels stay dead after 3 attempts to heal each: web, db",
  });
});

test("degraded while another machine uses the keys, though the lighthouse answers", () => {
  expect(told({ isCloned: true })).toEqual({
    verdict: "degraded",
    reason: "Another machine uses the keys of this node",
  });
});

test("running, with a note, while the clock differs from the control plane's", () => {
  const { verdict, findings } = conclude(seen({ clockAheadMs: -3_600_000 }));
  expect(verdict).toBe("running");
  expect(findings).toEqual([
    expect.objectContaining({
      kind: "clock_differs",
      what: "The clock of this machine is 60 minutes behind the control plane's",
    }),
  ]);
});

test("running, with a note, where the control plane sees a lighthouse at another address than nodes do", () => {
  const contact = { isMade: true, silent: 0, isEarly: false, othersOnline: true };
  const elsewhere = { public_ip: "198.51.100.7", seen: "198.51.100.8" };
  const { verdict, findings } = conclude(seen({ contact, elsewhere }));
  expect(verdict).toBe("running");
  expect(findings).toEqual([
    {
      kind: "address_moved",
      light: "note",
      what: "The control plane sees this lighthouse at 198.51.100.8, and other nodes look for it at 198.51.100.7",
      cure: "If its address has changed: agent admin node update acme NODE --public-ip 198.51.100.8",
    },
  ]);
  for (const text of ["hub.example", "$(id)", ""])
    expect(conclude(seen({ contact, elsewhere: { ...elsewhere, seen: text } })).findings).toEqual([]);
  // The address of another node decides nothing.
  expect(conclude(seen({ elsewhere })).findings).toEqual([]);
});

test("without another node and without a lighthouse there is nothing that could be degraded", () => {
  expect(verdict({ lighthouses: [], hasOthers: false })).toBe("running");
});

test("a lighthouse in the configuration is needed, also if no rule connects this node with another one", () => {
  expect(verdict({ lighthouses: [hub("lost")], hasOthers: false })).toBe("degraded");
});

test("a lighthouse is running while a node is in contact, or while the control plane says that none is online", () => {
  const of = (change: Partial<NonNullable<Observation["contact"]>>, hasOthers = true) => {
    const contact = { isMade: false, silent: 0, isEarly: false, othersOnline: undefined, ...change };
    return kinds({ lighthouses: [], contact, hasOthers });
  };
  expect(of({ isMade: true, silent: 3 })).toEqual([]);
  expect(of({ silent: 3 })).toEqual(["nodes_silent"]);
  expect(of({ silent: 3, othersOnline: true })).toEqual(["nodes_silent"]);
  expect(of({ silent: 3, othersOnline: false })).toEqual([]);
  expect(of({ othersOnline: true, isEarly: true })).toEqual(["probing"]);
  expect(of({ othersOnline: true })).toEqual(["no_node_came"]);
  expect(of({})).toEqual(["contact_unknown"]);
  expect(of({}, false)).toEqual([]);
});

test("a subnet whose routers are silent degrades it, and the routers are named", () => {
  const unrouted = [
    { network: "192.168.9.0/24", routers: ["office"] },
    { network: "10.2.0.0/16", routers: ["office", "spare"] },
  ];
  expect(conclude(seen({ unrouted }))).toMatchObject({
    verdict: "degraded",
    findings: [
      {
        kind: "routers_silent",
        what: "192.168.9.0/24, 10.2.0.0/16 cannot be reached: no answer from the router office, spare",
        cure: "On office, spare: agent doctor",
      },
    ],
  });
});

test("a router is degraded while it does not reach a network behind it", () => {
  const unreached = [
    { what: "This node is a router of 192.168.7.0/24, but nft failed", cure: "nft list ruleset" },
  ];
  expect(conclude(seen({ unreached }))).toMatchObject({
    verdict: "degraded",
    reason: unreached[0]?.what,
    findings: [{ kind: "network_unreached", ...unreached[0] }],
  });
});

test("a disk is told before it is full, and a full one makes no light green", () => {
  const disk = (state: DiskState) => ({
    state,
    text: "1 GB of 90 GB are free at /etc",
    freeBytes: 1,
    totalBytes: 9,
  });
  expect(conclude(seen({ disk: disk("ok") })).findings).toEqual([]);
  expect(conclude(seen({ disk: disk("filling") }))).toMatchObject({
    verdict: "running",
    findings: [{ kind: "disk_filling", what: "The disk is nearly full: 1 GB of 90 GB are free at /etc" }],
  });
  expect(conclude(seen({ disk: disk("full") }))).toMatchObject({
    verdict: "not_probed",
    findings: [{ kind: "disk_full", what: "The disk is full: 1 GB of 90 GB are free at /etc" }],
  });
});

test("large packets that are lost degrade it, with the cure", () => {
  const { verdict: told, findings } = conclude(seen({ large: { to: ["hub"], bytes: 1284, cure: "mtu" } }));
  expect([told, findings]).toEqual([
    "degraded",
    [
      {
        kind: "large_packets_lost",
        light: "degraded",
        what: "Packets above 1284 bytes are lost on the way to hub: large transfers hang",
        cure: "mtu",
      },
    ],
  ]);
});

test("an engine that does not report its tunnels, and refused ICMP: not probed, with the remedy", () => {
  const old = { lighthouses: [hub("unknown")], reportsTunnels: false, engineVersion: "1.6.1" };
  expect(told(old)).toEqual({
    verdict: "not_probed",
    reason: "No lighthouse answers ICMP, and engine 1.6.1 does not report its tunnels",
  });
  expect(conclude(seen({ ...old, isDenied: true })).reason).toBe("This process may not send ICMP");
});

test("before the first probes are decided nothing is claimed", () => {
  expect(verdict({ lighthouses: [hub("early"), hub("lost")] })).toBe("not_probed");
});
