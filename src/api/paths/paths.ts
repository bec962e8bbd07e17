// The paths that nodes report. Members see those of their own nodes. Underlay addresses show where users are, so only
// administrators see them.

import { GroupName } from "../../protocol/values.ts";
import * as v from "valibot";
import { endpoint } from "../endpoint.ts";
import { ListQuery, since, Text, Time, word } from "../values.ts";

/** none: the engine has no tunnel with the peer. unknown: the engine does not report its tunnels. */
export const pathKinds = ["direct", "relayed", "none", "unknown"] as const;
export const probeResults = ["answers", "broken", "not_probed"] as const;

const PathQuery = v.strictObject({
  ...ListQuery.entries,
  path: v.optional(v.picklist(pathKinds)),
  probe: v.optional(v.picklist(probeResults)),
});
export type PathQuery = v.InferOutput<typeof PathQuery>;

export const Path = v.object({
  node: v.number(),
  node_name: Text,
  /** Null if no active node has the address. */
  peer: v.nullable(v.number()),
  peer_name: v.nullable(Text),
  peer_address: Text,
  path: word(pathKinds),
  /** The peer's underlay address and port. */
  remote: v.nullable(Text),
  relays: v.array(Text),
  /** All relays of the path are away. The rest of the answer is as it was reported before. */
  relays_away: v.boolean(),
  /** The peer is away, so the path does not count as broken. */
  peer_away: v.boolean(),
  probe: word(probeResults),
  rtt_ms: v.nullable(v.number()),
  /** The share of probes that were lost, 0 to 1. */
  loss: v.nullable(v.number()),
  /** When the node reported it. It reports only changes. */
  reported_at: Time,
});
export type Path = v.InferOutput<typeof Path>;

const PathCounts = v.object({
  node: v.number(),
  direct: v.number(),
  relayed: v.number(),
  /** Number of `relayed` paths whose relays are all away. */
  relays_away: v.number(),
  /** The peer is not away, and does not answer, whatever the path. */
  broken: v.number(),
});
export type PathCounts = v.InferOutput<typeof PathCounts>;

/** Groups of one answer of GET paths/groups/: the worst ones. */
export const maxMapGroups = 60;
/** How many paths an answer names. The others are only counted. */
export const maxNamedPaths = 20;

/** Each pair of nodes counts once. */
const pairCounts = { direct: v.number(), relayed: v.number(), broken: v.number() };
const roundTrips = {
  /** Of the paths that were probed, ms; null without one. */
  rtt_ms_median: v.nullable(v.number()),
  rtt_ms_95: v.nullable(v.number()),
};
/** A group of the map: the first group of a node, its name, or null for the nodes without one (`mapGroup`). */
const MapGroupName = v.nullable(Text);

const MapGroup = v.object({
  name: MapGroupName,
  /** Active nodes without phones. Each counts in one of the next four: the last one that holds for it. */
  nodes: v.number(),
  /** Online, with no relayed or broken path. */
  well: v.number(),
  /** Online, with a relayed path that they report. */
  relayed: v.number(),
  /** Online, with a broken path that they report. */
  broken: v.number(),
  away: v.number(),
  /** Lighthouses and relays among those that are away. */
  hubs_away: v.number(),
  /** Lighthouses among these. */
  lighthouses_away: since("0.2.0", v.number()),
  /** Lighthouses, relays, routers and exits among the nodes. */
  hubs: v.number(),
  /** The paths of these nodes: to others and within the group. */
  paths: v.object(pairCounts),
});

const MapPair = v.object({ from: MapGroupName, to: MapGroupName, ...pairCounts, ...roundTrips });

const NamedPath = v.object({
  node: v.number(),
  node_name: Text,
  group: MapGroupName,
  peer: v.number(),
  peer_name: Text,
  peer_group: MapGroupName,
  kind: word(["direct", "relayed", "broken"]),
  rtt_ms: v.nullable(v.number()),
});

const GroupPaths = v.object({
  /** When it was computed. */
  at: Time,
  /** Of all groups, also of those that are left out. */
  totals: v.object({
    nodes: v.number(),
    online: v.number(),
    /** The nodes that have applied their newest configuration. */
    current: v.number(),
    ...pairCounts,
    /** Pairs whose only reported paths go over relays that are all away. */
    cut: v.number(),
    ...roundTrips,
  }),
  /** At most `maxMapGroups`, the worst first: by broken paths, nodes that are away, relayed paths, then by name. */
  groups: v.array(MapGroup),
  /** Groups beyond these, and their nodes. */
  left_out: v.object({ groups: v.number(), nodes: v.number() }),
  /** The pairs of these groups that have paths; `from` comes first by name (null last), and may be `to`. */
  pairs: v.array(MapPair),
  /** The first `maxNamedPaths` broken paths; `totals` and `pairs` count all. */
  broken: v.array(NamedPath),
  /** The first `maxNamedPaths` relayed paths. */
  relayed: v.array(NamedPath),
});
export type GroupPaths = v.InferOutput<typeof GroupPaths>;

const BetweenQuery = v.strictObject({
  /** Without one: the nodes without a group. */
  from: v.optional(GroupName),
  to: v.optional(GroupName),
});

const BetweenGroups = v.object({
  ...MapPair.entries,
  /** How many paths have a round trip up to this bound, and above that of the entry before; null: no bound. */
  round_trips: v.array(v.object({ up_to_ms: v.nullable(v.number()), paths: v.number() })),
  /** The worst `maxNamedPaths` paths: broken ones, then by round trip. */
  worst: v.array(NamedPath),
});
export type BetweenGroups = v.InferOutput<typeof BetweenGroups>;

const answers = { 200: { description: "Paths", schema: v.array(Path) } };

export const pathsApi = {
  list: endpoint({
    name: "paths_list",
    method: "GET",
    path: "/api/org/{slug}/paths/",
    access: "member",
    scope: "nodes",
    summary:
      "How nodes reach their peers, as they reported last. `search` looks in the names of the reporting nodes. Members see those of their own nodes, without `remote`",
    query: PathQuery,
    answers,
  }),
  counts: endpoint({
    name: "paths_counts",
    method: "GET",
    path: "/api/org/{slug}/paths/counts/",
    access: "member",
    scope: "nodes",
    summary:
      "How many paths each node has: direct, relayed, and broken, whose peer does not answer. Members see those of their own nodes",
    query: v.omit(ListQuery, ["search"]),
    answers: { 200: { description: "Counts", schema: v.array(PathCounts) } },
  }),
  groups: endpoint({
    name: "paths_groups",
    method: "GET",
    path: "/api/org/{slug}/paths/groups/",
    access: "member",
    scope: "nodes",
    summary:
      "Nodes and paths summed by group, for a map of many nodes: the states of the nodes of each group, and between each two groups the paths by kind and their round trips. A node counts in its first group. Each pair of nodes counts once, with the worse of what both report; what nodes reported that are away does not count, nor do broken paths to nodes that are away, nor paths over relays that are all away. Members see the paths of their own nodes. May be some seconds old",
    answers: { 200: { description: "Groups", schema: GroupPaths } },
  }),
  between: endpoint({
    name: "paths_between",
    method: "GET",
    path: "/api/org/{slug}/paths/between/",
    access: "member",
    scope: "nodes",
    summary: `The paths between the nodes of two groups, counted as in GET paths/groups/, or within one: by kind, by round trip, and the worst ${maxNamedPaths}. Without \`from\` or \`to\`: the nodes without a group`,
    query: BetweenQuery,
    answers: { 200: { description: "The paths", schema: BetweenGroups } },
  }),
  ofNode: endpoint({
    name: "nodes_peers",
    method: "GET",
    path: "/api/org/{slug}/nodes/{id}/peers/",
    access: "member",
    scope: "nodes",
    summary:
      "How a node reaches its peers, as it reported last. Members see those of their own nodes, without `remote`",
    query: PathQuery,
    answers,
  }),
};
