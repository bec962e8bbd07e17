// The paths that nodes report, and what relays forward. Members see the paths of their own nodes. Underlay addresses say where
// people are, so these are for administrators alone.

import * as v from "valibot";
import { endpoint } from "./endpoint.ts";
import { ListQuery, Text, Time, word } from "./values.ts";

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
  /** It goes over relays that are all away: it was so when it was reported. */
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
  /** So many of `relayed` go over relays that are all away. */
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
