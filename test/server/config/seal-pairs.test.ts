// Who gains and loses access by the next seal, with whoever has the control plane as one of the peers.

import { expect, test } from "bun:test";
import type { SealedNode, SealedRule, SealedState } from "../../../src/protocol/seals/seal.ts";
import { networkGroup, selfGroup } from "../../../src/protocol/users-groups.ts";
import { pairDifferences } from "../../../src/server/config/seal-pairs.ts";
import { sealOf } from "../../support/seals.ts";

const offline = "f".repeat(64);
let keys = 0;
const node = (
  name: string,
  groups: string[] = [],
  kind: "open" | "closed" = "open",
  routes: string[] = [],
) => {
  const key = String(++keys).padStart(64, "0");
  const role = { lighthouse: false, relay: false, routes, exit: [] };
  return {
    name,
    addresses: [`10.77.0.${keys}`],
    ...role,
    identity: { kind, key, groups },
  } satisfies SealedNode;
};
const rule = (
  peer: SealedRule["peer"],
  target: SealedRule["target"],
  ports = "22",
  direction: "inbound" | "outbound" = "inbound",
): SealedRule => ({ direction, protocol: ports === "any" ? "any" : "tcp", ports, peer, target });
const any = { any: true as const };
const goesOut = rule(any, any, "any", "outbound");
const [store, hub, ops] = [node("store", ["db"], "closed"), node("hub"), node("ops", ["admins"])];
const stateOf = (
  rules: readonly SealedRule[],
  {
    nodes = [store, hub, ops],
    privileged = ["db", "admins"],
  }: { nodes?: SealedNode[]; privileged?: string[] } = {},
): SealedState => ({
  ...sealOf({ signers: [] }).state,
  authorities: [offline, "a".repeat(64)],
  nodes,
  rules: [goesOut, ...rules],
  sealing: { offline: [offline], privileged, revoked: [] },
});
const anyone = "ANYONE who has the control plane";

test("equal seals have no difference", async () => {
  const state = stateOf([rule({ group: "admins" }, { group: "db" })]);
  expect(await pairDifferences(state, structuredClone(state))).toEqual({ gained: [], lost: [], legend: [] });
});

test("equal seals of a large organization are not compared pair by pair, which takes seconds", async () => {
  const names = Array.from({ length: 2000 }, (_, at) => `db${at}`);
  const rules = names.map((name, at) =>
    rule({ group: name }, { group: names[(at * 7 + 1) % 2000] ?? "" }, String(at + 1)),
  );
  const nodes = names.map((name, at) => node(name, names.slice(at % 40, (at % 40) + 60)));
  const state = stateOf(rules, { nodes });
  expect(await pairDifferences(state, structuredClone(state))).toEqual({ gained: [], lost: [], legend: [] });
});

test("a rule between privileged groups is no gain of anyone else", async () => {
  const after = stateOf([rule({ group: "admins" }, { group: "db" })]);
  expect(await pairDifferences(stateOf([]), after)).toEqual({
    gained: ["tcp/22 from ops to store"],
    lost: [],
    legend: [],
  });
  expect((await pairDifferences(after, stateOf([]))).lost).toEqual(["tcp/22 from ops to store"]);
});

test("a group that leaves the privileged ones opens its rules to the control plane, which is shown first", async () => {
  const rules = [rule({ group: "admins" }, { node: "hub" }), rule({ group: "admins" }, { group: "db" })];
  const after = stateOf([...rules, rule({ node: "hub" }, { node: "ops" }, "80")], { privileged: ["db"] });
  const { gained } = await pairDifferences(stateOf(rules), after);
  // The closed node has no tunnels with what the control plane certifies.
  expect(gained[0]).toBe(`tcp/22 from ${anyone} to hub`);
  expect(gained.some((each) => each.startsWith("tcp/80 from hub to ops"))).toBe(true);
  expect(gained.join()).not.toContain("to store");
});

test("a closed node that becomes open, and a rule that names anyone", async () => {
  const rules = [rule(any, { group: "db" })];
  const opened = { ...store, identity: { ...store.identity, kind: "open" as const } };
  const { gained } = await pairDifferences(stateOf(rules), stateOf(rules, { nodes: [opened, hub, ops] }));
  expect(gained[0]).toContain(`from ${anyone} to store`);
  const wide = await pairDifferences(stateOf([]), stateOf([rule(any, { node: "hub" })]));
  expect(wide.gained[0]).toBe(`tcp/22 from ${anyone} to hub`);
});

test("names and groups of unprivileged nodes, and networks, are the control plane's", async () => {
  for (const peer of [{ node: "laptop" }, { group: "web" }, { cidr: "10.77.0.0/24" }]) {
    const { gained } = await pairDifferences(stateOf([]), stateOf([rule(peer, { node: "hub" })]));
    expect([peer, gained[0]]).toEqual([peer, `tcp/22 from ${anyone} to hub`]);
  }
  const { gained } = await pairDifferences(stateOf([]), stateOf([rule({ node: "ops" }, { node: "hub" })]));
  expect(gained).toEqual(["tcp/22 from ops to hub"]);
  const web = await pairDifferences(stateOf([]), stateOf([rule({ group: "web" }, { group: "web" })]));
  const group = 'unprivileged nodes in group "web"';
  expect(web.gained).toContain(`tcp/22 from ${group} to ${group}`);
});

test("what a node may send to the control plane's nodes is a gain, too", async () => {
  const before = { ...stateOf([]), rules: [] };
  const { gained } = await pairDifferences(before, {
    ...before,
    rules: [rule(any, { node: "hub" }, "443", "outbound")],
  });
  expect(gained[0]).toContain(`tcp/443 from hub to ${anyone}`);
});

test("networks behind a router, nodes of one owner, and the first seal", async () => {
  const router = node("router", ["admins"], "closed", ["192.168.5.0/24"]);
  const nodes = [router, ops];
  const behind = rule({ group: "admins" }, { group: networkGroup("192.168.5.0/24") });
  const { gained } = await pairDifferences(stateOf([], { nodes }), stateOf([behind], { nodes }));
  expect(gained.join("\n")).toContain("tcp/22 from ops to 192.168.5.0/24 behind router");
  expect(gained.join("\n")).not.toMatch(/to router/);
  const owned = [node("a", ["user:id.1"]), node("b", ["user:id.1"]), node("c", ["user:id.2"])];
  const self = await pairDifferences(
    stateOf([], { nodes: owned }),
    stateOf([rule({ group: selfGroup }, any)], { nodes: owned, privileged: ["user:id.1", "user:id.2"] }),
  );
  expect(self.gained).toEqual(["tcp/22 from a, b to a, b"]);
  const first = await pairDifferences(undefined, stateOf([rule({ group: "admins" }, { group: "db" })]));
  expect(first.gained.join("\n")).toContain("tcp/22 from ops to store");
});

test("many nodes of one kind are one line, whose names are all written once", async () => {
  const nodes = Array.from({ length: 300 }, (_, at) => node(`db${at}`, ["db"], "closed"));
  const all = [...nodes, ops];
  const { gained, legend } = await pairDifferences(
    stateOf([], { nodes: all }),
    stateOf([rule({ group: "admins" }, { group: "db" })], { nodes: all }),
  );
  // Not among what is gained: it would read as access.
  expect(gained).toEqual(["tcp/22 from ops to 300 nodes [1]"]);
  expect(legend).toEqual([expect.stringMatching(/^\[1\]: db0, db1, .*db299/)]);
});

/** What a rule says, one packet and one pair at a time. `undefined`: whoever has the control plane. */
function passes(
  { nodes, rules, sealing }: SealedState,
  from?: SealedNode,
  to?: SealedNode,
  port = "22",
): boolean {
  const isClosed = (each?: SealedNode) => each?.identity?.kind === "closed";
  if ((from === undefined && isClosed(to)) || (to === undefined && isClosed(from))) return false;
  const isPeer = (peer: SealedRule["peer"], each?: SealedNode) => {
    if ("any" in peer) return true;
    if ("group" in peer)
      return each === undefined
        ? sealing?.privileged.includes(peer.group) !== true
        : each.identity?.groups.includes(peer.group) === true;
    if ("node" in peer)
      return each === undefined ? !nodes.some(({ name }) => name === peer.node) : each.name === peer.node;
    return (
      each === undefined ||
      each.addresses.some((address) => address.startsWith(peer.cidr.replace("0/24", "")))
    );
  };
  const lets = (direction: "inbound" | "outbound", self: SealedNode | undefined, peer?: SealedNode) =>
    self === undefined ||
    rules.some(
      (each) =>
        each.direction === direction &&
        ["any", port].includes(each.ports) &&
        isPeer(each.target, self) &&
        isPeer(each.peer, peer),
    );
  return lets("outbound", from, to) && lets("inbound", to, from);
}

test("random seals: the pairs are those that each rule by itself permits", async () => {
  let state = 20_261_128;
  const below = (count: number) => {
    state = (state * 48_271) % 0x7f_ff_ff_ff;
    return Math.floor((state / 0x7f_ff_ff_ff) * count);
  };
  const of = <T>(all: readonly T[]): T => all[below(all.length)] as T;
  const groups = ["db", "web", "admins"];
  for (let round = 0; round < 200; round++) {
    keys = 0;
    const nodes = ["a", "b", "c"].map((name) =>
      node(
        name,
        groups.filter(() => below(2) === 0),
        of(["open", "closed"]),
      ),
    );
    const side = () => of([any, { group: of(groups) }, { node: of(["a", "b", "x"]) }]);
    const random = () => ({
      ...stateOf([], { nodes, privileged: groups.filter(() => below(2) === 0) }),
      rules: Array.from({ length: 1 + below(5) }, () =>
        rule(
          of([side(), { cidr: "10.77.0.0/24" }]),
          side(),
          of(["22", "80", "any"]),
          of(["inbound", "outbound"]),
        ),
      ),
    });
    const [before, after] = [random(), random()];
    const differences = await pairDifferences(before, after);
    const told = (lines: readonly string[], [from, to]: readonly (SealedNode | undefined)[], port: string) =>
      lines.some((line) => {
        const [, what = "", senders = "", receivers = ""] = /^(.*) from (.*) to (.*)$/.exec(line) ?? [];
        const named = (list: string, each?: SealedNode) => list.split(", ").includes(each?.name ?? anyone);
        const covers = what.split(", ").some((each) => {
          const [first = 0, last = first] = (/^tcp\/([\d-]+)$/.exec(each)?.[1] ?? "").split("-").map(Number);
          return each === "any" || each === "tcp/any" || (first <= Number(port) && Number(port) <= last);
        });
        return named(senders, from) && named(receivers, to) && covers;
      });
    const all = [undefined, ...nodes];
    for (const from of all)
      for (const to of all) {
        if (from === to) continue;
        for (const port of ["22", "80"]) {
          const [was, is] = [passes(before, from, to, port), passes(after, from, to, port)];
          const where = JSON.stringify([round, from?.name, to?.name, port, before, after, differences]);
          expect([where, told(differences.gained, [from, to], port)]).toEqual([where, is && !was]);
          expect([where, told(differences.lost, [from, to], port)]).toEqual([where, was && !is]);
        }
      }
  }
});
