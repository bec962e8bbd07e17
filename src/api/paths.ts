// The paths that nodes report, the traffic of relays, and routes to networks behind nodes. Members see the paths of their own nodes. Underlay
// addresses show where users are, so only administrators see them. Below: which nodes need a person (`attentionApi`).

import * as v from "valibot";
import { Cidr } from "../engine/allowed-settings.ts";
import { maxMetric } from "../protocol/routing/advertised.ts";
import { flowProtocols } from "../protocol/traffic-reports.ts";
import { recordId } from "../protocol/values.ts";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { ruleWords } from "./rules.ts";
import { GroupName, since, ListQuery, Moment, policyErrors, Text, Time, whole, word } from "./values.ts";

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
  /** The peer is away: then a path to it is not called broken. */
  peer_away: v.boolean(),
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
  /** The peer is not away, and does not answer, whatever the path. */
  broken: v.number(),
});
export type PathCounts = v.InferOutput<typeof PathCounts>;

/** Groups of one answer of GET paths/groups/: the worst ones. */
export const maxMapGroups = 60;
/** Paths that an answer names; the rest is counted. */
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
  /** The active nodes without phones: the sum of the next four. A node is in the last of them that holds. */
  nodes: v.number(),
  /** Online, and no path of theirs is relayed or broken. */
  well: v.number(),
  /** Online, with a relayed path that they report. */
  relayed: v.number(),
  /** Online, with a broken path that they report. */
  broken: v.number(),
  away: v.number(),
  /** Of those that are away: lighthouses and relays, which others need. */
  hubs_away: v.number(),
  /** Lighthouses, relays and routers among the nodes. */
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
    /** Paths over relays that are all away, without another one that is reported. */
    cut: v.number(),
    ...roundTrips,
  }),
  /** At most 60, the worst first: by broken paths, nodes that are away, relayed paths, then by name. */
  groups: v.array(MapGroup),
  /** Groups beyond these, and their nodes. */
  left_out: v.object({ groups: v.number(), nodes: v.number() }),
  /** The pairs of these groups that have paths; `from` comes first by name (null last), and may be `to`. */
  pairs: v.array(MapPair),
  /** The first 20 broken paths; `totals` and `pairs` count all. */
  broken: v.array(NamedPath),
  /** The first 20 relayed paths. */
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
  /** How many paths have a round trip above the former bound, and up to this one; null: any. */
  round_trips: v.array(v.object({ up_to_ms: v.nullable(v.number()), paths: v.number() })),
  /** The worst 20 paths: broken ones, then by round trip. */
  worst: v.array(NamedPath),
});
export type BetweenGroups = v.InferOutput<typeof BetweenGroups>;

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
    summary:
      "The paths between the nodes of two groups, counted as in GET paths/groups/, or within one: by kind, by round trip, and the worst 20. Without `from` or `to`: the nodes without a group",
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
    errors: ["conflict"],
  }),
};

// Which nodes need a person: for the first page of the console, and for scripts that watch.

/** Nodes that an answer names of each kind; the rest is counted. */
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
  hubs_away: foundOf(
    v.object({
      ...named,
      is_lighthouse: v.boolean(),
      last_checkin_at: since("0.2.0", v.nullable(Time)),
    }),
  ),
  /** Certificates that end within a week and should have been renewed. Ephemeral nodes and phones are left out. */
  not_renewed: foundOf(ending),
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
  /** The first seal while it is the only one: nodes trust its signers, so its hash should be compared. Null: there is none, or a member asks. */
  first_seal: since("0.2.0", v.nullable(v.object({ hash: Text, made_at: Time }))),
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

// Networks behind nodes, each with its routers: a view of the nodes' subnets.

const Metric = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(maxMetric));
const Routers = v.pipe(v.array(recordId), v.minLength(1), v.maxLength(16));

const Router = v.object({
  node: v.number(),
  node_name: Text,
  online: v.boolean(),
  /** False: root of its machine offers the network, and no administrator has approved it. */
  approved: v.boolean(),
  /** Whether root of its machine offers the network. Otherwise the machine has to be made ready by hand. */
  offered: v.boolean(),
  /** Lower is preferred. */
  metric: v.number(),
  /** Others are used as long as one of them works. */
  maintenance: v.boolean(),
  /** The network as it is there, if the router translates its addresses. */
  behind: v.nullable(Text),
  masquerade: v.nullable(v.boolean()),
  /** The address that must answer the router. */
  watch: v.nullable(Text),
  /** As the node reported: `ready`, `down` if what is behind does not answer, `failed`, `not_approved`. */
  state: v.nullable(Text),
  why: v.nullable(Text),
});

export const Route = v.object({ network: Text, routers: v.array(Router) });
export type Route = v.InferOutput<typeof Route>;

const routesPath = "/api/org/{slug}/routes/";
const routeAnswers = { 200: { description: "The route", schema: Route } };

export const routesApi = {
  list: endpoint({
    name: "routes_list",
    method: "GET",
    path: routesPath,
    access: "member",
    scope: "nodes",
    summary:
      "Networks behind nodes with their routers, and those that nodes offer and no administrator has approved, ordered by network",
    query: ListQuery,
    answers: { 200: { description: "Routes", schema: v.array(Route) } },
  }),
  create: endpoint({
    name: "routes_create",
    method: "POST",
    path: routesPath,
    access: "admin",
    scope: "nodes",
    summary:
      "Make nodes routers of a network, in addition to those that it has. This also approves what they offer",
    grows: true,
    fresh: true,
    body: v.strictObject({ network: Cidr, via: Routers, metric: v.optional(Metric) }),
    answers: { 201: { description: "The route", schema: Route } },
    errors: ["conflict", "too_many_certificates", ...policyErrors],
  }),
  update: endpoint({
    name: "routes_partial_update",
    method: "PATCH",
    path: routesPath,
    access: "admin",
    scope: "nodes",
    summary: "Change metric or maintenance of routers of a network; without `via`, of all of them",
    fresh: true,
    body: v.strictObject({
      network: Cidr,
      via: v.optional(Routers),
      metric: v.optional(Metric),
      maintenance: v.optional(v.boolean()),
    }),
    answers: routeAnswers,
  }),
  delete: endpoint({
    name: "routes_destroy",
    method: "DELETE",
    path: routesPath,
    access: "admin",
    scope: "nodes",
    summary: "Let nodes route a network no longer; without `via`, all that do",
    fresh: true,
    query: v.strictObject({
      network: Cidr,
      via: v.optional(
        v.pipe(
          foreignText(272),
          v.regex(/^[1-9]\d{0,14}(,[1-9]\d{0,14}){0,15}$/, "At most 16 ids, separated by commas."),
          v.transform((text) => text.split(",").map(Number)),
        ),
      ),
    }),
    answers: { 204: { description: "Deleted" } },
    errors: policyErrors,
  }),
};

// The flows that nodes report where the organization wants it: who talks to whom on what.

/** Rows of an answer; the rest is counted. */
export const maxFlows = 1000;
/** For how long flows are kept, in whole days. */
export const flowsKeptMs = 30 * 86_400_000;

const nodeId = v.pipe(whole(1, Number.MAX_SAFE_INTEGER), recordId);
const FlowQuery = v.strictObject({
  /** The node that began the flows. */
  from: v.optional(nodeId),
  /** The node that they went to. */
  to: v.optional(nodeId),
  /** Default: 7 days ago. */
  since: v.optional(Moment),
  /** Only flows that nothing answered. */
  unanswered: v.optional(v.picklist(["true", "false"]), "false"),
  limit: v.optional(whole(1, maxFlows), "200"),
});
export type FlowQuery = v.InferOutput<typeof FlowQuery>;

export const Flow = v.object({
  /** Null: no node had the address for the whole interval. */
  from: v.nullable(v.number()),
  from_name: v.nullable(Text),
  to: v.nullable(v.number()),
  to_name: v.nullable(Text),
  /** Of the peer, as the node saw it. */
  address: Text,
  protocol: word(flowProtocols),
  /** The destination port; null where the protocol has none. */
  port: v.nullable(v.number()),
  /** New ones. 0: older ones went on. */
  flows: v.number(),
  unanswered: v.number(),
  /** What an engine refuses is seen by the sender alone. */
  seen_by: word(["sender", "receiver", "both"]),
  /** The beginning of the first interval, and the end of the last one. */
  first_at: Time,
  last_at: Time,
});
export type Flow = v.InferOutput<typeof Flow>;

export const Flows = v.object({
  /** Whether the organization wants flows. */
  wanted: v.boolean(),
  since: Time,
  /** The newest first. */
  flows: v.array(Flow),
  /** Kinds of flows beyond these. */
  left_out: v.number(),
  /** Flows that nodes saw and did not list: more than 256 kinds in five minutes. */
  uncounted: v.number(),
  /** The active nodes with an agent, and how many of them reported nothing within the last hour; the first 20 by name. */
  nodes: v.number(),
  silent: v.object({ count: v.number(), first: v.array(Text) }),
  /** For administrators who ask for all flows: when each rule for incoming traffic was used last, and by how many nodes. */
  rules: v.array(
    v.object({ id: v.number(), last_at: v.nullable(Time), flows: v.number(), nodes: v.number() }),
  ),
});
export type Flows = v.InferOutput<typeof Flows>;

const RuleText = v.object(ruleWords(Text));
export const Proposal = v.object({
  /** What was asked about. */
  since: Time,
  /** When the flows begin that nodes reported of that time; null: there are none. */
  observed_since: v.nullable(Time),
  /** A policy file, with the evidence of each change in comments. */
  policy: Text,
  changes: v.array(
    v.object({
      /** Of the present rule, in the words of policy files. */
      id: v.number(),
      rule: RuleText,
      what: word(["kept", "narrowed", "removed"]),
      reason: Text,
      flows: v.number(),
      /** How many nodes began them. */
      nodes: v.number(),
      last_at: v.nullable(Time),
      /** The rules in its place. */
      into: v.array(RuleText),
    }),
  ),
  narrowed: v.number(),
  removed: v.number(),
  kept: v.number(),
});
export type Proposal = v.InferOutput<typeof Proposal>;

export const flowsApi = {
  propose: endpoint({
    name: "policy_propose",
    method: "POST",
    path: "/api/org/{slug}/policy/propose/",
    access: "admin",
    scope: "policy",
    reads: true,
    summary:
      "A policy file with today's rules narrowed to what reported flows used, each change with its evidence. It permits nothing that the present policy does not. Changes nothing. Needs the scope of GET flows/ too; each request is an event",
    fresh: false,
    body: v.strictObject({ since: v.optional(Moment) }),
    answers: { 200: { description: "The proposal", schema: Proposal } },
    errors: ["busy"],
  }),
  list: endpoint({
    name: "flows_list",
    method: "GET",
    path: "/api/org/{slug}/flows/",
    access: "member",
    scope: "nodes",
    summary:
      "Who talked to whom, by protocol and port, as nodes report it where the organization wants that (`flows`). Counts are of whole days (UTC). Members see what their own nodes report. Each request is an event",
    query: FlowQuery,
    answers: { 200: { description: "The flows", schema: Flows } },
    errors: ["busy"],
  }),
};
