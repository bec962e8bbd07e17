// Which nodes need a person: for the first page of the console, and for scripts that watch.

import * as v from "valibot";
import { endpoint } from "../endpoint.ts";
import { since, Text, Time } from "../values.ts";

/** Nodes that an answer names of each kind; the rest is counted. */
export const maxFirst = 20;

const named = { id: v.number(), name: Text };
const ending = v.object({ ...named, not_after: Time });
/** `first`: at most `maxFirst` of `count`. */
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
  /**
   * The first seal while it is the only one: nodes trust its signers, so its hash should be compared. Null: there is none, or a
   * member asks.
   */
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
    summary: `How many nodes are online, and which need a person: of each kind their number and the first ${maxFirst}. Members see the broken paths of their own nodes. \`failing_tests\`: how many tests of the policy failed when they ran last, null if none`,
    answers: { 200: { description: "Nodes that need a person", schema: Attention } },
  }),
};
