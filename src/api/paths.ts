// The paths that nodes report, and the traffic of relays. Members see the paths of their own nodes. Underlay
// addresses show where users are, so only administrators see them.

import * as v from "valibot";
import { endpoint } from "./endpoint.ts";
import { since, ListQuery, Text, Time, word } from "./values.ts";

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
  /** The path uses relays that are all away: it is as it was when it was reported. */
  relays_away: v.boolean(),
  probe: word(probeResults),
  rtt_ms: v.nullable(v.number()),
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
  /** The peer does not answer, whatever the path. */
  broken: v.number(),
});
export type PathCounts = v.InferOutput<typeof PathCounts>;

/** At least 1 MB: below, a relay would pause with its first connection. */
const RelayPatch = v.strictObject({
  limit_bytes: v.nullable(v.pipe(v.number(), v.integer(), v.minValue(1e6), v.maxValue(1e18 - 1))),
});

export const Relay = v.object({
  node: v.number(),
  node_name: Text,
  /** UTC. */
  month: Text,
  /** Forwarded for others in this month; null if the node never reported it. */
  bytes: v.nullable(v.number()),
  limit_bytes: v.nullable(v.number()),
  /** The limit is reached: no node uses the relay until the next month. */
  paused: v.boolean(),
  reported_at: v.nullable(Time),
});
export type Relay = v.InferOutput<typeof Relay>;

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
    errors: ["not_found"],
  }),
  relays: endpoint({
    name: "relays_list",
    method: "GET",
    path: "/api/org/{slug}/relays/",
    access: "member",
    scope: "nodes",
    summary: "The relays, what they forwarded for other nodes this month (UTC), and their monthly limits",
    answers: { 200: { description: "Relays", schema: v.array(Relay) } },
  }),
  limitRelay: endpoint({
    name: "relays_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/relays/{id}/",
    access: "admin",
    scope: "nodes",
    summary:
      "Set or remove the monthly limit of a relay, by the id of its node. A relay that reaches it is not used until the next month",
    fresh: true,
    body: RelayPatch,
    answers: { 200: { description: "The relay", schema: Relay } },
    errors: ["not_found", "conflict"],
  }),
};

// What of the nodes needs a person, for the first page of the console and for whoever watches from a script.

/** Of each kind; the rest is counted. */
export const maxFirst = 20;

const named = { id: v.number(), name: Text };
const ending = v.object({ ...named, not_after: Time });
/** `first`: at most 20 of `count`. */
const foundOf = <S extends v.GenericSchema>(schema: S) =>
  v.object({ count: v.number(), first: v.array(schema) });

const NodeTrouble = v.object({
  /** All that are not revoked. */
  nodes: v.number(),
  /** The active ones; phones, which never check in, are not counted. */
  active: v.number(),
  online: v.number(),
  /** The active ones among them. */
  lighthouses: since("0.2.0", v.number()),
  /** Lighthouses and relays that are not online. */
  hubs_away: foundOf(v.object({ ...named, is_lighthouse: v.boolean() })),
  /** Certificates that end within a week and should have been renewed. Ephemeral nodes and phones are left out. */
  not_renewed: foundOf(ending),
  /** Engines with published vulnerabilities. */
  vulnerable_engines: foundOf(v.object({ ...named, overlay_version: Text, advisory: Text, fixed_in: Text })),
  /** Online nodes that could have applied a configuration for ten minutes, and have not, fetched or not. */
  not_applied: foundOf(v.object({ ...named, since: Time })),
  /** Online nodes whose keys two machines use. */
  cloned: foundOf(v.object(named)),
  /** Phones to import again. */
  phones_due: foundOf(v.object(named)),
  /** Whose certificates end first, renewed or not. */
  ending_first: v.array(ending),
});
export type NodeTrouble = v.InferOutput<typeof NodeTrouble>;

const BrokenPaths = v.object({
  id: v.number(),
  name: Text,
  /** Names, or addresses, of the first three. */
  peers: v.array(Text),
  peer_count: v.number(),
});

const Attention = v.object({
  ...NodeTrouble.entries,
  broken_paths: foundOf(BrokenPaths),
  /** Null: all pass. `all`: how many tests there are. */
  failing_tests: v.nullable(v.object({ count: v.number(), all: v.number() })),
});
export type Attention = v.InferOutput<typeof Attention>;

export const attentionApi = {
  retrieve: endpoint({
    name: "nodes_attention",
    method: "GET",
    path: "/api/org/{slug}/nodes/attention/",
    access: "member",
    scope: "nodes",
    summary:
      "How many nodes are online, and which need a person: of each kind their number and the first 20. Members see the broken paths of their own nodes. `failing_tests`: how many tests of the policy failed when they ran last, null if none",
    answers: { 200: { description: "Nodes that need a person", schema: Attention } },
  }),
};
