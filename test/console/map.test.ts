// The map: which edges and dots it has, and where the dots lie.

import { expect, test } from "bun:test";
import { edgesOf, graphOf, maxDots, type Path } from "../../src/console/map/graph.ts";
import { placesOf, type Place } from "../../src/console/map/layout.ts";

const machine = (id: number, groups: readonly string[] = [], more = {}) => ({
  id,
  name: `node-${id}`,
  groups: [...groups],
  online: true,
  is_lighthouse: false,
  subnets: [],
  state: "active" as const,
  ...more,
});
const path = (node: number, peer: number, more: Partial<Path> = {}): Path => ({
  node,
  peer,
  path: "direct",
  relays: [],
  probe: "answers",
  rtt_ms: 3,
  loss: 0,
  ...more,
});
const never = new AbortController().signal;

test("both ends of a pair are one edge, and the worse end counts", () => {
  const all = new Set([1, 2, 3]);
  expect(edgesOf([path(1, 2), path(2, 1, { path: "relayed", relays: ["hub"], rtt_ms: 9 })], all)).toEqual([
    { from: "1", to: "2", kind: "relayed", pairs: 1, rttMs: 9, relays: ["hub"] },
  ]);
  expect(edgesOf([path(2, 3, { probe: "broken", path: "none" }), path(3, 2)], all)).toMatchObject([
    { kind: "broken" },
  ]);
  // Neither carries anything, is of a machine that left, or has a peer that is no machine.
  expect(
    edgesOf([path(1, 3, { path: "none" }), path(1, 9), path(9, 1), path(1, 2, { peer: null })], all),
  ).toEqual([]);
});

test("a group shows its machines and those that they reach; revoked ones are not drawn", () => {
  const machines = [
    machine(1, ["web"]),
    machine(2, ["db"], { is_lighthouse: true }),
    machine(3, ["db"], { subnets: ["192.0.2.0/24"] }),
    machine(4, ["web"], { state: "revoked" }),
  ];
  const graph = graphOf(machines, [path(1, 2), path(2, 3)], "web");
  expect(graph.dots.map(({ label, shape }) => [label, shape])).toEqual([
    ["node-1", "machine"],
    ["node-2", "lighthouse"],
  ]);
  expect(graph.edges).toHaveLength(1);
  expect(graphOf(machines, [], "").dots.map(({ shape }) => shape)).toEqual([
    "machine",
    "lighthouse",
    "router",
  ]);
});

test("beyond the limit, groups are dots with counts, and their paths are counted", () => {
  const machines = Array.from({ length: maxDots + 1 }, (_, at) =>
    machine(at + 1, at % 2 === 0 ? ["web"] : []),
  );
  const paths = [path(1, 2), path(3, 2), path(2, 4, { path: "relayed" })];
  const graph = graphOf(machines, paths, "");
  expect(graph.isGrouped).toBe(true);
  expect(graph.dots.map(({ label, machines: count }) => [label, count])).toEqual([
    ["web (251)", 251],
    ["without a group (250)", 250],
  ]);
  expect(graph.edges).toMatchObject([
    { from: "web", to: "without a group", kind: "direct", pairs: 2 },
    { from: "without a group", to: "without a group", kind: "relayed", pairs: 1 },
  ]);
  expect(graphOf(machines, paths, "web").isGrouped).toBe(false);
});

test("no two dots lie on each other, and places stay when a machine leaves", async () => {
  const machines = Array.from({ length: 80 }, (_, at) => machine(at + 1, [`g${at % 4}`]));
  const paths = machines.slice(1).map(({ id }) => path(1, id));
  const places = await placesOf(graphOf(machines, paths, ""), new Map(), never);
  const all = [...(places?.values() ?? [])];
  expect(all).toHaveLength(80);
  const distance = (a: Place, b: Place) => Math.hypot(a.x - b.x, a.y - b.y);
  const closest = Math.min(...all.flatMap((a, at) => all.slice(at + 1).map((b) => distance(a, b))));
  expect(closest).toBeGreaterThan(8);
  const later = await placesOf(graphOf(machines.slice(1), paths, ""), places ?? new Map(), never);
  expect(later?.get("7")).toEqual(places?.get("7") ?? { x: 0, y: 0 });
});
