// Which nodes need a person: for the first page of the console, and for scripts that watch.

import * as v from "valibot";
import { endpoint } from "../endpoint.ts";
import { since, Text, Time } from "../values.ts";

/** How many nodes of each kind an answer names. The others are only counted. */
export const maxFirst = 20;

const named = { id: v.number(), name: Text };
const ending = v.object({ ...named, not_after: Time });
/** `first`: at most `maxFirst` of `count`. */
const countAndFirst = <S extends v.GenericSchema>(schema: S) =>
  v.object({ count: v.number(), first: v.array(schema) });

const NodeTrouble = v.object({
  /** All nodes that are not revoked. */
  nodes: v.number(),
  /** Active nodes without phones, which never check in. */
  active: v.number(),
  online: v.number(),
  /** Active lighthouses. */
  lighthouses: since("0.2.0", v.number()),
  /** Lighthouses and relays that are not online. */
  hubs_away: countAndFirst(
    v.object({
      ...named,
      is_lighthouse: v.boolean(),
      last_checkin_at: since("0.2.0", v.nullable(Time)),
    }),
  ),
  /** Certificates that end within a week and should have been renewed. Ephemeral nodes and phones are left out. */
  not_renewed: countAndFirst(ending),
  vulnerable_engines: countAndFirst(
    v.object({ ...named, overlay_version: Text, advisory: Text, fixed_in: Text }),
  ),
  /** Online nodes that had ten minutes to apply a configuration, and have not. */
  not_applied: countAndFirst(v.object({ ...named, since: Time })),
  /** Online nodes whose keys two machines use. */
  cloned: countAndFirst(v.object(named)),
  /** Phones to import again. */
  phones_due: countAndFirst(v.object(named)),
  /** The nodes whose certificates end first, renewed or not. */
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
  broken_paths: countAndFirst(BrokenPaths),
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
