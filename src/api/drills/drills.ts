// Drills: a lighthouse, a relay or the control plane is away for a while, and nodes report whom they lost.

import * as v from "valibot";
import { drillKinds, leastDrillS, mostDrillS } from "../../protocol/updates/drill.ts";
import { recordId, wholeWithin, listOf } from "../../protocol/values.ts";
import { endpoint } from "../endpoint.ts";
import { since, Text, Time, whole, word } from "../values.ts";

const DrillRequest = v.strictObject({
  kind: v.picklist(drillKinds),
  /** The lighthouses or relays that are away; empty: the only one. Without the control plane, no node may be named. */
  nodes: v.optional(listOf(recordId, 16), []),
  for_s: v.optional(wholeWithin(leastDrillS, mostDrillS), 60),
});
export type DrillRequest = v.InferOutput<typeof DrillRequest>;

/** The most drills of a list. */
export const maxDrills = 20;

/** How many nodes, and the names of the first ones. */
const NamedNodes = v.object({ count: v.number(), first: v.array(Text) });

export const drillStates = ["running", "reporting", "ended"] as const;

export const Drill = v.object({
  id: v.number(),
  kind: word(drillKinds),
  /** `reporting`: it is over, and nodes still report. */
  state: word(drillStates),
  /** The nodes that are away; if the control plane is away: only those that refused it. `reason`: why a node refused. */
  nodes: v.array(
    v.object({
      node: v.number(),
      node_name: Text,
      state: word(["told", "began", "refused"]),
      reason: Text,
    }),
  ),
  for_s: v.number(),
  begins_at: Time,
  ends_at: Time,
  ended_at: v.nullable(Time),
  /** When an administrator ended it; null: it ended by itself. */
  aborted_at: since("0.2.0", v.nullable(Time)),
  /** How many nodes reported, and how many peers they watched: without any, the drill proves nothing. */
  reported: v.number(),
  watched: v.number(),
  /** Nodes that were online when it began and have not reported. `too_old`: those of them whose agent knows no drills. */
  silent: NamedNodes,
  too_old: NamedNodes,
  /** Seconds from the beginning. `until_s` is null if the two did not reach each other again in time. */
  losses: v.array(
    v.object({
      node: v.number(),
      node_name: Text,
      peer: v.number(),
      peer_name: Text,
      from_s: v.number(),
      until_s: v.nullable(v.number()),
    }),
  ),
  /** Losses beyond these. */
  left_out: v.number(),
});
export type Drill = v.InferOutput<typeof Drill>;

export const drillsApi = {
  list: endpoint({
    name: "drills_list",
    method: "GET",
    path: "/api/org/{slug}/drills/",
    access: "admin",
    summary: `The latest drills, and which nodes lost which peers, the newest first: at most ${maxDrills}, with \`newest\` so many, with \`id\` only that one`,
    query: v.strictObject({
      id: v.optional(v.pipe(whole(1, Number.MAX_SAFE_INTEGER), recordId)),
      newest: v.optional(whole(1, maxDrills)),
    }),
    answers: { 200: { description: "Drills", schema: v.array(Drill) } },
  }),
  create: endpoint({
    name: "drills_create",
    method: "POST",
    path: "/api/org/{slug}/drills/",
    access: "admin",
    usersOnly: true,
    summary:
      "Take a lighthouse, a relay or the control plane away for a while. It ends by itself, and nodes report whom they lost",
    fresh: true,
    grows: true,
    body: DrillRequest,
    answers: { 201: { description: "The drill", schema: Drill } },
    errors: ["conflict"],
  }),
  abort: endpoint({
    name: "drills_abort",
    method: "POST",
    path: "/api/org/{slug}/drills/{id}/abort/",
    access: "admin",
    usersOnly: true,
    summary: "End a drill before its time. Not one without the control plane, which cannot tell nodes",
    fresh: false,
    answers: { 200: { description: "The drill", schema: Drill } },
    errors: ["conflict"],
  }),
};
