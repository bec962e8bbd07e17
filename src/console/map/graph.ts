// The content of the map, from the lists of machines and of the paths that they report: dots, and one edge for each
// pair. Pure: layout.ts places it, pages/map.ts draws it.

import { shownGroups } from "../../protocol/owner-group.ts";
import type { Machine as Listed } from "../machines.ts";
import type { ReportedPath } from "../peer-path.ts";

/** How a node reaches a peer, as GET paths/ shows it. */
export type Path = ReportedPath & { node: number };

export type EdgeKind = "direct" | "relayed" | "broken";
export type Edge = {
  from: string;
  to: string;
  kind: EdgeKind;
  /** How many pairs of machines it stands for. */
  pairs: number;
  /** The worst of both sides, ms. */
  rttMs: number | undefined;
  relays: readonly string[];
  /** When it was reported, ms, if the machine that reports it is away, or its relays are. Undefined: it is current. */
  oldAt?: number | undefined;
};

export type Shape = "machine" | "lighthouse" | "router" | "group";
export type Dot = {
  key: string;
  label: string;
  shape: Shape;
  /** Dots of one cluster lie together: the first group of a machine. */
  cluster: string;
  isOnline: boolean;
  /** How many machines it stands for. */
  machines: number;
  /** Id of the machine; undefined for a group. */
  id?: number;
};
export type Graph = { dots: readonly Dot[]; edges: readonly Edge[]; isGrouped: boolean };

/** Beyond this number of machines, groups are dots. */
export const maxDots = 500;
const noGroup = "without a group";

type Machine = Pick<Listed, "id" | "name" | "groups" | "online" | "is_lighthouse" | "subnets" | "state">;

/** `group`: only its machines, and those that they have paths to. "" means all. */
export function graphOf(machines: readonly Machine[], paths: readonly Path[], group: string): Graph {
  const active = machines.filter(({ state }) => state === "active");
  const edges = edgesOf(paths, active);
  if (group === "") return fitted(active, edges);
  const inside = new Set(active.filter((each) => shownGroups(each).includes(group)).map(({ id }) => `${id}`));
  const touching = edges.filter(({ from, to }) => inside.has(from) || inside.has(to));
  const shown = new Set([...inside, ...touching.flatMap(({ from, to }) => [from, to])]);
  return fitted(
    active.filter(({ id }) => shown.has(`${id}`)),
    touching,
  );
}

function fitted(machines: readonly Machine[], edges: readonly Edge[]): Graph {
  return machines.length > maxDots
    ? grouped(machines, edges)
    : { dots: machines.map(dotOf), edges, isGrouped: false };
}

const clusterOf = (machine: Machine) => shownGroups(machine)[0] ?? noGroup;

function dotOf(machine: Machine): Dot {
  const { id, name, is_lighthouse, subnets, online } = machine;
  return {
    key: `${id}`,
    label: name,
    shape: is_lighthouse ? "lighthouse" : subnets.length > 0 ? "router" : "machine",
    cluster: clusterOf(machine),
    isOnline: online,
    machines: 1,
    id,
  };
}

export const rank: Readonly<Record<EdgeKind, number>> = { direct: 0, relayed: 1, broken: 2 };
const worst = (a: EdgeKind, b: EdgeKind) => (rank[a] >= rank[b] ? a : b);
const larger = (a: number | undefined, b: number | undefined) =>
  a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);

/** Both ends report a path: of the two, the worse counts. Paths that carry nothing are no edges, unless they broke. */
export function edgesOf(paths: readonly Path[], active: readonly Machine[]): Edge[] {
  const byId = new Map(active.map((machine) => [machine.id, machine]));
  const edges = new Map<string, Edge>();
  for (const { node, peer, path, probe, relays, relays_away, rtt_ms, reported_at } of paths) {
    const reporter = byId.get(node);
    if (peer === null || reporter === undefined || !byId.has(peer)) continue;
    const kind: EdgeKind | "none" | "unknown" = probe === "broken" ? "broken" : path;
    if (kind === "none" || kind === "unknown") continue;
    const oldAt = reporter.online && !relays_away ? undefined : Date.parse(reported_at);
    const [from, to] = [`${Math.min(node, peer)}`, `${Math.max(node, peer)}`];
    const found: Edge = { from, to, kind, pairs: 1, rttMs: rtt_ms ?? undefined, relays, oldAt };
    const known = edges.get(`${from} ${to}`);
    edges.set(`${from} ${to}`, known === undefined ? found : together(known, found));
  }
  return [...edges.values()];
}

/** Only current reports count. */
function together(a: Edge, b: Edge): Edge {
  if ((a.oldAt === undefined) !== (b.oldAt === undefined)) return a.oldAt === undefined ? a : b;
  return {
    ...b,
    kind: worst(a.kind, b.kind),
    rttMs: larger(a.rttMs, b.rttMs),
    relays: [...new Set([...a.relays, ...b.relays])],
    oldAt: larger(a.oldAt, b.oldAt),
  };
}

/** One dot for each group, and one edge for each pair of groups and kind. */
function grouped(machines: readonly Machine[], edges: readonly Edge[]): Graph {
  const clusters = new Map(machines.map((machine) => [`${machine.id}`, clusterOf(machine)]));
  const dots = [...Map.groupBy(machines, clusterOf)].map(([name, members]): Dot => ({
    key: name,
    label: `${name} (${members.length})`,
    shape: "group",
    cluster: name,
    isOnline: members.some(({ online }) => online),
    machines: members.length,
  }));
  const merged = new Map<string, Edge>();
  for (const edge of edges) {
    const ends = [clusters.get(edge.from) ?? noGroup, clusters.get(edge.to) ?? noGroup].sort();
    const [from = "", to = ""] = ends;
    const { kind, oldAt } = edge;
    const key = JSON.stringify([from, to, kind, oldAt === undefined]);
    const known = merged.get(key);
    merged.set(key, {
      from,
      to,
      kind,
      pairs: (known?.pairs ?? 0) + 1,
      rttMs: larger(known?.rttMs, edge.rttMs),
      relays: [],
      oldAt: larger(known?.oldAt, oldAt),
    });
  }
  return { dots, edges: [...merged.values()], isGrouped: true };
}
